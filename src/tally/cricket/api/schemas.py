"""What goes over the wire: the bodies that apps, pages and operators send and get.

`render.py` makes those that are sent.

Names are in camel case, as in the tables. Moments are epoch milliseconds, as in the tables; the
start of a match is text.
"""

from typing import Annotated, Any, Literal

import msgspec

from tally.cricket.model.feed import MatchStatus
from tally.kit.body import StrictStruct

Limit = Annotated[int, msgspec.Meta(ge=1, le=100)]
# SportMonks' ids are digits, those of replays and of tests are not; none of them has a character
# that our keys are joined with.
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:-]+$")]
Token = Annotated[str, msgspec.Meta(min_length=8, max_length=512, pattern=r"^[A-Za-z0-9_.:+/=-]+$")]
Short = Annotated[str, msgspec.Meta(max_length=64)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=120)]
Link = Annotated[str, msgspec.Meta(max_length=500, pattern=r"^(https?://\S+)?$")]
Colour = Annotated[str, msgspec.Meta(pattern=r"^(#[0-9a-fA-F]{6})?$")]
Moment = Annotated[str, msgspec.Meta(min_length=4, max_length=40)]
Sync = Literal["leagues", "teams", "fixtures", "all"]


class Camel(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """A body that is sent."""


class Health(Camel, frozen=True):
    status: str


class MatchQuery(StrictStruct, frozen=True):
    """`from` and `to` are moments or days, such as 2026-11-15; without a league, all active ones are looked at."""

    league: Id | None = None
    start: Moment | None = msgspec.field(name="from", default=None)
    end: Moment | None = msgspec.field(name="to", default=None)
    status: MatchStatus | None = None
    limit: Limit = 50
    cursor: str | None = None


class ViewQuery(StrictStruct, frozen=True, rename="camel"):
    """Whose view of the match; without a team, nobody's."""

    team_id: Id | None = None


class PageQuery(StrictStruct, frozen=True):
    limit: Limit = 50
    cursor: str | None = None


class AdminFixtureQuery(StrictStruct, frozen=True, rename="camel"):
    league_id: Id
    limit: Limit = 50
    cursor: str | None = None


class TeamBody(Camel, frozen=True):
    team_id: str
    name: str
    code: str
    image_url: str
    country_id: str
    is_national: bool
    color: str
    updated_at: int


class TeamList(Camel, frozen=True):
    teams: list[TeamBody]


class LeagueBody(Camel, frozen=True):
    league_id: str
    name: str
    code: str
    season_id: str | None
    country_id: str
    image_url: str
    type: str
    active: bool
    updated_at: int


class LeagueList(Camel, frozen=True):
    leagues: list[LeagueBody]


class SeasonTeamBody(Camel, frozen=True):
    season_id: str
    team_id: str
    league_id: str
    name: str
    code: str
    stats: dict[str, Any]
    updated_at: int


class SeasonTeams(Camel, frozen=True):
    teams: list[SeasonTeamBody]


class Playing(Camel, frozen=True):
    """One of the two teams of a match; the score is what was last known, in order of play."""

    team_id: str
    name: str
    code: str
    image_url: str
    scores: list[str]


class LeagueOfMatch(Camel, frozen=True):
    league_id: str
    code: str
    name: str
    image_url: str


class TossBody(Camel, frozen=True):
    team_id: str
    elected: str


class MatchBody(Camel, frozen=True):
    """`isStale` says that the scores are the last known ones, and that newer ones cannot be had now."""

    match_id: str
    league: LeagueOfMatch
    season_id: str
    teams: list[Playing]
    match_type: str
    start_time: str
    status: str
    is_live: bool
    is_stale: bool
    is_over: bool
    round: str
    venue_id: str | None
    note: str
    toss: TossBody | None
    winner_team_id: str | None
    replay_of: str | None
    updated_at: int


class MatchPage(Camel, frozen=True):
    matches: list[MatchBody]
    next_cursor: str | None


class DisplayBody(Camel, frozen=True):
    """`display` is what a Lock Screen shows: the same state that is pushed to Live Activities."""

    match_id: str
    team_id: str
    display: dict[str, Any]
    computed_at: int
    is_stale: bool


class NewDevice(StrictStruct, frozen=True, rename="camel"):
    device_token: Token
    device_id: Id
    platform: Literal["ios", "ipados", "iOS", "iPadOS"]
    os_version: Short = ""
    app_version: Short = ""


class NewStartToken(StrictStruct, frozen=True, rename="camel"):
    """Of the device with this token, or with this id."""

    push_to_start_token: Token
    device_token: Token | None = None
    device_id: Id | None = None


class DeviceQuery(StrictStruct, frozen=True, rename="camel"):
    """Exactly one of both."""

    device_token: Token | None = None
    device_id: Id | None = None


class DeviceBody(Camel, frozen=True):
    device_token: str
    device_id: str
    platform: str
    os_version: str
    app_version: str
    has_push_to_start_token: bool
    created_at: int
    updated_at: int
    expires_at: int


class DeviceList(Camel, frozen=True):
    """The one that called last comes first."""

    devices: list[DeviceBody]


class NewFollow(StrictStruct, frozen=True, rename="camel"):
    team_id: Id | None = None


class NewFollowOfMatch(StrictStruct, frozen=True, rename="camel"):
    match_id: Id
    team_id: Id | None = None


class FollowedMatchQuery(StrictStruct, frozen=True, rename="camel"):
    match_id: Id


class ChangedFollow(StrictStruct, frozen=True, rename="camel"):
    """`null` takes no side."""

    team_id: Id | None


class FollowBody(Camel, frozen=True):
    """`display` is there while the match is live, so that the app has something to show at once."""

    match_id: str
    team_id: str | None
    created_at: int
    expires_at: int
    display: dict[str, Any] | None = None


class FollowPage(Camel, frozen=True):
    follows: list[FollowBody]
    next_cursor: str | None


class NewSubscription(StrictStruct, frozen=True, rename="camel"):
    push_token: Token
    team_id: Id | None = None


class SubscriptionQuery(StrictStruct, frozen=True, rename="camel"):
    push_token: Token


class SubscriptionBody(Camel, frozen=True):
    match_id: str
    team_id: str | None
    created_at: int
    expires_at: int


class ActivityToken(StrictStruct, frozen=True, rename="camel"):
    device_id: Id
    update_token: Token
    team_id: Id | None = None


class ActivityOfDevice(StrictStruct, frozen=True, rename="camel"):
    device_id: Id


class ActivityBody(Camel, frozen=True):
    match_id: str
    device_id: str
    status: str
    end_reason: str | None
    team_id: str | None
    created_at: int
    updated_at: int


class TeamChange(StrictStruct, frozen=True, rename="camel"):
    """Only what is given changes."""

    name: Name | msgspec.UnsetType = msgspec.UNSET
    code: Annotated[str, msgspec.Meta(min_length=1, max_length=12)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    image_url: Link | msgspec.UnsetType = msgspec.UNSET
    color: Colour | msgspec.UnsetType = msgspec.UNSET


class LeagueChange(StrictStruct, frozen=True, rename="camel"):
    """Only what is given changes.

    Matches of a league that is not active are neither synced nor announced.
    """

    name: Name | msgspec.UnsetType = msgspec.UNSET
    image_url: Link | msgspec.UnsetType = msgspec.UNSET
    active: bool | msgspec.UnsetType = msgspec.UNSET


class SyncOrder(StrictStruct, frozen=True):
    what: Sync = "all"


class SyncReport(Camel, frozen=True):
    """What each sync did: how many were written, skipped as malformed, and left as they were."""

    synced: dict[str, dict[str, int]]


class MatchState(Camel, frozen=True):
    """What the live pipeline remembers of a match, for whoever has to find out why something was or was not pushed."""

    match_id: str
    poller_state: str | None
    owner: str
    last_updated_at: int | None
    version: int
    cooldowns: dict[str, int]
    last_ball_id: int | None
    hashes: dict[str, str]
    activities: dict[str, int]
    followers: int
    channel_id: str | None


class ReplayOrder(StrictStruct, frozen=True, rename="camel"):
    """How fast the recorded match is played again, and how long what it left is kept after its end."""

    speed: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 60
    keep_minutes: Annotated[int, msgspec.Meta(ge=1, le=1440)] = 60
