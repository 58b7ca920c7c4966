"""What the fifteen tables hold, one frozen class for each, and the rules of ids, key texts and lifetimes.

Ids are text everywhere, those of SportMonks as decimal digits. Moments (`…_at`) are epoch
milliseconds, lifetimes (`expires_at`) epoch seconds as the store's TTL wants them, and the start of
a match is `2026-11-15T14:00:00Z`, which sorts as it passes. A person who is on no side sees the
match as `NEUTRAL` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from tally.cricket.model.feed import MatchStatus

NEUTRAL: Final = "neutral"

DEVICE_TTL_SECONDS: Final = 90 * 86_400
FOLLOW_TTL_SECONDS: Final = 48 * 3_600
NOTIFICATION_TTL_SECONDS: Final = 48 * 3_600
PROCESSING_TTL_SECONDS: Final = 7 * 86_400

# A follow outlives the match by two days, so the days of the longer forms are added to its start.
EXTRA_MATCH_DAYS: Final = MappingProxyType({"4day": 3, "Test": 4, "Test/5day": 4})
# Somebody sees to a match by renewing its record with every poll; one left alone for this long has
# lost its instance.
STALE_MATCH_MS: Final = 30_000
# Whoever writes enrichment does it around the match; who replaces whole entries keeps out of that
# time, and an hour clear of it.
ENRICHMENT_LEAD_MS: Final = 2 * 3_600_000
ENRICHMENT_TAIL_MS: Final = 7 * 86_400_000
ENRICHMENT_MARGIN_MS: Final = 3_600_000


class ActivityStatus(StrEnum):
    """Where a Live Activity is in its life."""

    PENDING = "pending"
    ACTIVE = "active"
    ENDED = "ended"


class EndReason(StrEnum):
    """Why a Live Activity ended."""

    MATCH_END = "match_end"
    USER_UNFOLLOW = "user_unfollow"
    USER_DISMISSED = "user_dismissed"
    TOKEN_INVALID = "token_invalid"  # noqa: S105  (a reason, no secret)


class NotificationKind(StrEnum):
    """What a person is told at most once about a match."""

    PREMATCH = "prematch"
    TOSS = "toss"


class PollerState(StrEnum):
    """What the poller does about a match.

    ENDED: its final state has gone to all devices, and what is left is to clean up.
    """

    POLLING = "polling"
    PAUSED = "paused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """A match that the system knows about. It is live while `live_updated_at` is there."""

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

    @property
    def is_live(self) -> bool:
        return self.live_updated_at is not None

    @property
    def team_ids(self) -> tuple[str, str]:
        return self.home_team_id, self.away_team_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A side.

    What an administrator changed is in `edited_at`; a sync leaves such a team's name and picture
    alone.
    """

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
    """A side in a season of a league, with its figures in that season."""

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

    `version` counts its changes, so that a sync does not undo what an administrator did meanwhile.

    One with `edited_at` has a name and a picture of the administrator's choice, which a sync leaves
    alone.
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
    """A phone or tablet of a person; `device_id` stays while its tokens change."""

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

    @property
    def can_broadcast(self) -> bool:
        """Whether its system knows broadcast channels, which came with iOS 18."""
        major = self.os_version.split(".", 1)[0]
        return self.platform.lower() in {"ios", "ipados"} and major.isdecimal() and int(major) >= 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """A person who wants to hear of a match."""

    match_id: str
    user_id: str
    created_at: int
    expires_at: int
    team_id: str = NEUTRAL


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivitySubscription:
    """A Live Activity that an app started by itself, known by its token alone."""

    match_id: str
    push_token: str
    user_id: str
    created_at: int
    expires_at: int
    team_id: str = NEUTRAL


@dataclass(frozen=True, slots=True, kw_only=True)
class SentNotification:
    """That a person was told that a match is about to start, or who won its toss."""

    match_id: str
    user_id: str
    kind: NotificationKind
    sent_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateHash:
    """The fingerprint of what was pushed last to one view of a match."""

    match_id: str
    team_id: str
    hash: str
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedDisplay:
    """A display state as it was computed, as JSON text."""

    match_id: str
    team_id: str
    content: str
    computed_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedFixture:
    """A fixture as SportMonks told it, as JSON text, and what was added to it to show it to people."""

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
    """How far the balls of a match have been processed; `content` is the pipeline's own JSON text."""

    match_id: str
    last_ball_id: int
    content: str
    updated_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveActivity:
    """What one device shows of one match.

    `starts` counts the pushes-to-start, `shown` is the hash of what the last one showed.

    One that has ended and has a token still owes its device the word of it.
    """

    match_id: str
    user_id: str
    device_id: str
    status: ActivityStatus
    created_at: int
    updated_at: int
    expires_at: int
    team_id: str = NEUTRAL
    update_token: str | None = None
    channel_id: str | None = None
    end_reason: EndReason | None = None
    starts: int = 0
    started_at: int | None = None
    shown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget:
    """As much of an active Live Activity as a push wants; one with a channel has its updates from there."""

    match_id: str
    user_id: str
    device_id: str
    team_id: str
    update_token: str | None = None
    channel_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveMatch:
    """What the live pipeline remembers of a match between two polls.

    `version` counts the writes.
    """

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
    """The key of a state hash: a match as one side sees it."""
    return f"{match_id}#{team_id}"


def display_key(match_id: str, team_id: str) -> str:
    """The key of a cached display state."""
    return f"DISPLAY#{match_id}#{team_id}"


def activity_key(user_id: str, device_id: str) -> str:
    """The sort key of a Live Activity: a person's device."""
    return f"{user_id}#{device_id}"


def notification_key(user_id: str, kind: NotificationKind) -> str:
    """The sort key of a notice: the person alone for the one before the match."""
    return user_id if kind is NotificationKind.PREMATCH else f"{user_id}#{kind.value}"


def match_lock_key(match_id: str) -> str:
    """The name of the lock under which one instance sees to a match."""
    return f"match:{match_id}"


def epoch_ms(moment: str) -> int:
    """Milliseconds of a start time."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def format_start_time(moment: int) -> str:
    """A start time of milliseconds."""
    return f"{datetime.fromtimestamp(moment // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def has_expired(expires_at: int, now: int) -> bool:
    """Whether a lifetime is over at `now` seconds, whatever the sweeper has done about it."""
    return expires_at <= now


def device_expiry(now: int) -> int:
    """Ninety days after the last call of the app; `now` in seconds."""
    return now + DEVICE_TTL_SECONDS


def follow_expiry(start_time: str, match_type: str = "") -> int:
    """Two days after the match starts; for a match of several days, after its last one starts."""
    start = datetime.fromisoformat(start_time) + timedelta(days=EXTRA_MATCH_DAYS.get(match_type, 0))
    return round(start.timestamp()) + FOLLOW_TTL_SECONDS


def is_enrichment_time(starting_at: str, now: int, margin: int = 0) -> bool:
    """Whether `now`, in milliseconds, lies in the time around the match in which enrichment is written."""
    start = epoch_ms(starting_at)
    return start - ENRICHMENT_LEAD_MS - margin <= now <= start + ENRICHMENT_TAIL_MS + margin
