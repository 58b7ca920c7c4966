"""Records of the tables, one frozen class per table, and rules for keys and expiry.

Ids are texts; SportMonks ids are decimal digits. Times (`…_at`) are epoch milliseconds, and TTLs
(`expires_at`) epoch seconds, as the store requires. A start time is a text such as
`2026-11-15T14:00:00Z`, which sorts by time. A user who follows no team sees the view `NEUTRAL`. A
record has one field per attribute of its item.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tally.cricket.model.events import AlertChoice
from tally.cricket.model.feed import MatchStatus

NEUTRAL: Final = "neutral"

DEVICE_TTL_SECONDS: Final = 90 * 86_400
FOLLOW_TTL_SECONDS: Final = 48 * 3_600
MIN_FOLLOW_SECONDS: Final = 3_600
POSTPONED_TTL_SECONDS: Final = 60 * 86_400
NOTIFICATION_TTL_SECONDS: Final = 48 * 3_600
PROCESSING_TTL_SECONDS: Final = 7 * 86_400

# A follow expires two days after the last day of the match starts.
EXTRA_MATCH_DAYS: Final = MappingProxyType({"4day": 3, "Test": 4, "Test/5day": 4})
# The owner renews the record of a match with every poll; after this time it is considered dead.
STALE_MATCH_MS: Final = 30_000
# Enrichment is written in a window around the match. Batch writes, which replace whole entries,
# skip the window and a margin.
ENRICHMENT_LEAD_MS: Final = 2 * 3_600_000
ENRICHMENT_TAIL_MS: Final = 7 * 86_400_000
ENRICHMENT_MARGIN_MS: Final = 3_600_000


class ActivityStatus(StrEnum):
    """The status of a Live Activity."""

    PENDING = "pending"
    ACTIVE = "active"
    ENDED = "ended"


class EndReason(StrEnum):
    """Why a Live Activity ended."""

    MATCH_END = "match_end"
    USER_UNFOLLOW = "user_unfollow"
    USER_DISMISSED = "user_dismissed"
    TOKEN_INVALID = "token_invalid"  # noqa: S105  (not a secret)


class NotificationKind(StrEnum):
    """The kinds of notifications that a user receives at most once per match."""

    PREMATCH = "prematch"
    TOSS = "toss"


class PollerState(StrEnum):
    """The state of a match's pipeline.

    PAUSED means that play is interrupted. ENDED means that Live Activities have ended and the
    temporary data is deleted.
    """

    POLLING = "polling"
    PAUSED = "paused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """A match.

    Its scores are polled while `live_updated_at` is set, which includes the minutes after the
    result. An operator sets `held_at` and `corrected_result`, a `CorrectedResult` as a mapping.
    """

    match_id: str
    league_id: str
    league_code: str
    season_id: str
    home_team_id: str
    away_team_id: str
    match_type: str
    start_time: str
    status: MatchStatus
    updated_at: int
    round: str = ""
    venue_id: str | None = None
    note: str = ""
    toss_team_id: str | None = None
    elected: str | None = None
    winner_team_id: str | None = None
    live_updated_at: int | None = None
    archived_at: int | None = None
    toss_notified_at: int | None = None
    replay_of: str | None = None
    replay_expires_at: int | None = None
    replay_speed: int | None = None
    followers_pending: str | None = None
    followers_cursor: str | None = None
    held_at: int | None = None
    corrected_result: Mapping[str, str] | None = None

    @property
    def is_polled(self) -> bool:
        """Whether the match is in the index of live matches."""
        return self.live_updated_at is not None

    @property
    def is_live(self) -> bool:
        """Whether the match is polled and not over."""
        return self.is_polled and not self.status.is_over

    @property
    def is_held(self) -> bool:
        """Whether an operator holds the match: nothing is deleted, and nobody is alerted."""
        return self.held_at is not None

    @property
    def team_ids(self) -> tuple[str, str]:
        return self.home_team_id, self.away_team_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A team. Syncs do not overwrite its name and image once an administrator sets `edited_at`."""

    team_id: str
    name: str
    code: str
    updated_at: int
    image_url: str = ""
    country_id: str = ""
    is_national: bool = False
    color: str = ""
    edited_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSeason:
    """A team in a season of a league, with its statistics."""

    season_id: str
    team_id: str
    league_id: str
    name: str
    code: str
    updated_at: int
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class League:
    """A competition.

    `version` is an optimistic lock between syncs and administrators. Syncs do not overwrite the
    name and image of a league with `edited_at`.
    """

    league_id: str
    name: str
    code: str
    updated_at: int
    season_id: str | None = None
    country_id: str = ""
    image_url: str = ""
    type: str = ""
    active: bool = True
    version: int = 1
    edited_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDevice:
    """A phone or tablet of a user; its tokens change, its `device_id` does not."""

    user_id: str
    device_token: str
    device_id: str
    platform: str
    created_at: int
    updated_at: int
    expires_at: int
    os_version: str = ""
    app_version: str = ""
    push_to_start_token: str | None = None
    # When starts that the device had not confirmed were repeated, within the last hour.
    restarted_at: tuple[int, ...] = ()

    @property
    def can_broadcast(self) -> bool:
        """Whether the device supports broadcast channels: iOS or iPadOS 18 or later."""
        major = self.os_version.split(".", 1)[0]
        return self.platform.lower() in {"ios", "ipados"} and major.isdecimal() and int(major) >= 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """A user who follows a match, for a team or neutrally.

    `via_team_id` is set if the follow exists because the user follows this team.
    """

    match_id: str
    user_id: str
    created_at: int
    expires_at: int
    team_id: str = NEUTRAL
    alerts: AlertChoice = AlertChoice.ALL
    via_team_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamFollow:
    """A user who follows a team, and thereby its fixtures."""

    team_id: str
    user_id: str
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivitySubscription:
    """A Live Activity that an app started itself, identified by its push token."""

    match_id: str
    push_token: str
    user_id: str
    created_at: int
    expires_at: int
    team_id: str = NEUTRAL
    alerts: AlertChoice = AlertChoice.ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class SentNotification:
    """A marker that a user has received a notification about a match."""

    match_id: str
    user_id: str
    kind: NotificationKind
    sent_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateHash:
    """The hash of the content last pushed to a view of a match."""

    match_id: str
    team_id: str
    hash: str
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedDisplay:
    """A computed display state as JSON text."""

    match_id: str
    team_id: str
    content: str
    computed_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedFixture:
    """The last feed of a match as JSON text, and its enrichment with names and images."""

    match_id: str
    league_id: str
    starting_at: str
    content: str
    cached_at: int
    expires_at: int
    enrichment: Mapping[str, Any] | None = None
    enriched_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingState:
    """The ball log of a match: `content` is its JSON text."""

    match_id: str
    last_ball_id: int
    content: str
    updated_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveActivity:
    """A Live Activity of a match on a device.

    It is active once its device has confirmed it, with a token or, on a channel, without one.
    `starts` counts push-to-start requests; `shown` is the content hash of the last one. An ended
    activity keeps its token until its device has received the end.
    """

    match_id: str
    user_id: str
    device_id: str
    status: ActivityStatus
    created_at: int
    updated_at: int
    expires_at: int
    team_id: str = NEUTRAL
    alerts: AlertChoice = AlertChoice.ALL
    update_token: str | None = None
    channel_id: str | None = None
    end_reason: EndReason | None = None
    starts: int = 0
    started_at: int | None = None
    shown: str = ""


class PushTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an active Live Activity that a push needs.

    With a channel, it receives its updates as broadcasts. A struct, because a fan-out creates
    hundreds of thousands of them.
    """

    match_id: str
    user_id: str
    device_id: str
    team_id: str
    alerts: AlertChoice = AlertChoice.ALL
    update_token: str | None = None
    channel_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveMatch:
    """The pipeline state of a match; `version` counts writes and serves as an optimistic lock."""

    match_id: str
    last_updated_at: int
    previous_scores: Mapping[str, Any] = field(default_factory=dict)
    cooldowns: Mapping[str, int] = field(default_factory=dict)
    last_balls: tuple[Mapping[str, Any], ...] = ()
    poller_state: PollerState = PollerState.POLLING
    owner: str = ""
    channel_id: str | None = None
    version: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    expires_at: int | None = None


def view_key(match_id: str, team_id: str) -> str:
    """Return the key of a state hash."""
    return f"{match_id}#{team_id}"


def display_key(match_id: str, team_id: str) -> str:
    """Return the key of a cached display state."""
    return f"DISPLAY#{match_id}#{team_id}"


def display_view(key: str) -> tuple[str, str]:
    """Return the match and the view of a cached display state's key."""
    _, match_id, view = key.split("#", 2)
    return match_id, view


def activity_key(user_id: str, device_id: str) -> str:
    """Return the sort key of a Live Activity."""
    return f"{user_id}#{device_id}"


def notification_key(user_id: str, kind: NotificationKind) -> str:
    """Return the sort key of a notification: the user id, with a suffix except for PREMATCH."""
    return user_id if kind is NotificationKind.PREMATCH else f"{user_id}#{kind.value}"


def match_lock_key(match_id: str) -> str:
    """Return the key of the lock that assigns a match to an instance."""
    return f"match:{match_id}"


def epoch_ms(start_time: str) -> int:
    """Convert a start time to epoch milliseconds."""
    return round(datetime.fromisoformat(start_time).timestamp() * 1000)


def format_start_time(time_ms: int) -> str:
    """Convert epoch milliseconds to a start time."""
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def has_expired(expires_at: int, now: int) -> bool:
    """Whether an item has expired at `now` seconds, even if the store has not deleted it yet."""
    return expires_at <= now


def device_expiry(now: int) -> int:
    """Return the expiry of a registration: 90 days after `now`, in seconds."""
    return now + DEVICE_TTL_SECONDS


def follow_expiry(
    start_time: str, match_type: str = "", status: MatchStatus = MatchStatus.NOT_STARTED
) -> int:
    """Return the expiry of a follow: two days after the last day of the match starts.

    The follows of a postponed match wait for its new date.
    """
    start = datetime.fromisoformat(start_time) + timedelta(days=EXTRA_MATCH_DAYS.get(match_type, 0))
    extra = POSTPONED_TTL_SECONDS if status is MatchStatus.POSTPONED else FOLLOW_TTL_SECONDS
    return round(start.timestamp()) + extra


def fixture_follow_expiry(fixture: Fixture, now: int) -> int:
    """Return the expiry of a follow that exists at `now` milliseconds: in an hour or later."""
    expiry = follow_expiry(fixture.start_time, fixture.match_type, fixture.status)
    return max(expiry, now // 1000 + MIN_FOLLOW_SECONDS)


def is_enrichment_time(starting_at: str, now: int, margin: int = 0) -> bool:
    """Whether `now`, in milliseconds, is in the window in which enrichment is written."""
    start = epoch_ms(starting_at)
    return start - ENRICHMENT_LEAD_MS - margin <= now <= start + ENRICHMENT_TAIL_MS + margin


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """The requests of a SportMonks resource that no instance has reserved.

    `resets_at` is the end of the window in milliseconds.
    """

    remaining: int
    resets_at: int


@dataclass(frozen=True, slots=True)
class MatchTimeline:
    """The key events of a finished match as JSON, until `expires_at` (seconds)."""

    match_id: str
    content: str
    expires_at: int
