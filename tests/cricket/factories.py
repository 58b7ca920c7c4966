"""Builds records with unique ids, so that tests can share tables."""

import secrets
from dataclasses import replace
from typing import Any, TypeVar

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import (
    ActiveMatch,
    ActivityStatus,
    ActivitySubscription,
    CachedDisplay,
    CachedFixture,
    Fixture,
    Follow,
    League,
    LiveActivity,
    NotificationKind,
    ProcessingState,
    SentNotification,
    StateHash,
    Team,
    TeamSeason,
    UserDevice,
    epoch_ms,
)

# The match starts when the clock of the tests starts.
START = "2096-10-02T12:00:00Z"
MOMENT = epoch_ms(START)
NOW = MOMENT // 1000
DAY = 86_400

R = TypeVar("R")


def name(kind: str = "id") -> str:
    return f"{kind}-{secrets.token_hex(6)}"


def number() -> str:
    """Return an id in the form of SportMonks ids."""
    return str(secrets.randbits(48))


def _with(record: R, changes: dict[str, Any]) -> R:
    return replace(record, **changes)  # type: ignore[type-var]  # every record is a dataclass


def fixture(**changes: Any) -> Fixture:
    record = Fixture(
        match_id=number(),
        league_id="5",
        league_code=name("league"),
        season_id="9",
        home_team_id="1",
        away_team_id="2",
        match_type="T20",
        start_time=START,
        status=MatchStatus.NOT_STARTED,
        updated_at=MOMENT,
    )
    return _with(record, changes)


def team(**changes: Any) -> Team:
    return _with(Team(team_id=number(), name="Lions", code="LIO", updated_at=MOMENT), changes)


def team_season(season_id: str, **changes: Any) -> TeamSeason:
    record = TeamSeason(
        season_id=season_id,
        team_id=number(),
        league_id="5",
        name="Lions",
        code="LIO",
        updated_at=MOMENT,
        stats={"won": 3, "lost": 1},
    )
    return _with(record, changes)


def league(**changes: Any) -> League:
    return _with(
        League(league_id=number(), name="Cup", code=name("cup"), updated_at=MOMENT), changes
    )


def device(user_id: str, **changes: Any) -> UserDevice:
    record = UserDevice(
        user_id=user_id,
        device_token=secrets.token_hex(32),
        device_id=name("device"),
        platform="ios",
        created_at=MOMENT,
        updated_at=MOMENT,
        expires_at=NOW + 90 * DAY,
        os_version="17.4",
        app_version="1.0",
    )
    return _with(record, changes)


def follow(match_id: str, **changes: Any) -> Follow:
    record = Follow(
        match_id=match_id, user_id=name("user"), created_at=MOMENT, expires_at=NOW + 2 * DAY
    )
    return _with(record, changes)


def subscription(match_id: str, **changes: Any) -> ActivitySubscription:
    record = ActivitySubscription(
        match_id=match_id,
        push_token=secrets.token_hex(32),
        user_id=name("user"),
        created_at=MOMENT,
        expires_at=NOW + 2 * DAY,
    )
    return _with(record, changes)


def notice(match_id: str, **changes: Any) -> SentNotification:
    record = SentNotification(
        match_id=match_id,
        user_id=name("user"),
        kind=NotificationKind.PREMATCH,
        sent_at=MOMENT,
        expires_at=NOW + 2 * DAY,
    )
    return _with(record, changes)


def state_hash(**changes: Any) -> StateHash:
    return _with(
        StateHash(match_id=number(), team_id="neutral", hash="abc", updated_at=MOMENT), changes
    )


def cached_display(**changes: Any) -> CachedDisplay:
    record = CachedDisplay(
        match_id=number(),
        team_id="neutral",
        content='{"score":"1/0"}',
        computed_at=MOMENT,
        expires_at=NOW + 30,
    )
    return _with(record, changes)


def cached_fixture(**changes: Any) -> CachedFixture:
    record = CachedFixture(
        match_id=number(),
        league_id=name("league"),
        starting_at=START,
        content='{"id":1}',
        cached_at=MOMENT,
        expires_at=NOW + 600,
    )
    return _with(record, changes)


def processing(**changes: Any) -> ProcessingState:
    record = ProcessingState(
        match_id=number(),
        last_ball_id=7,
        content="[1,2]",
        updated_at=MOMENT,
        expires_at=NOW + 7 * DAY,
    )
    return _with(record, changes)


def activity(match_id: str, **changes: Any) -> LiveActivity:
    record = LiveActivity(
        match_id=match_id,
        user_id=name("user"),
        device_id=name("device"),
        status=ActivityStatus.PENDING,
        created_at=MOMENT,
        updated_at=MOMENT,
        expires_at=NOW + 2 * DAY,
    )
    return _with(record, changes)


def active_match(**changes: Any) -> ActiveMatch:
    return _with(
        ActiveMatch(match_id=number(), last_updated_at=MOMENT, owner="instance-1"), changes
    )
