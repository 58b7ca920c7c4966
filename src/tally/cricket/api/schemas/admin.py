"""Schemas of the admin endpoints."""

from typing import Annotated, Literal

import msgspec

from tally.cricket.api.schemas.fields import CamelCaseBody, Id, PageLimit
from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.results import CorrectedResult, corrected_result
from tally.cricket.service.queries.admin import MatchDiagnostics
from tally.kit.body import StrictStruct


class AdminFixtureQuery(StrictStruct, frozen=True, rename="camel"):
    league_id: Id
    limit: PageLimit = 50
    cursor: str | None = None


class SyncRequest(StrictStruct, frozen=True):
    what: Literal["leagues", "teams", "fixtures", "all"] = "all"


class SyncReport(CamelCaseBody, frozen=True):
    """The number of created, updated and unchanged records per sync."""

    synced: dict[str, dict[str, int]]


class MatchStateBody(CamelCaseBody, frozen=True):
    """The pipeline state of a match, for diagnosing why a push was or was not sent."""

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
    held_at: int | None = None
    corrected_result: CorrectedResult | None = None


class CorrectionRequest(StrictStruct, frozen=True, rename="camel"):
    """The result of a match: its status, the text that followers read, and the winner, if any."""

    note: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    status: Literal["finished", "abandoned", "cancelled"] = "finished"
    winner_team_id: Id | None = None

    def result(self) -> CorrectedResult:
        return CorrectedResult(MatchStatus(self.status), self.note, self.winner_team_id)


class RestoredFollows(CamelCaseBody, frozen=True):
    """The number of restored follows."""

    restored: int


class StartRequest(StrictStruct, frozen=True, rename="camel"):
    """The user and the device whose Live Activity is started again."""

    user_id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    device_id: Id


class ReplayRequest(StrictStruct, frozen=True, rename="camel"):
    """The speed factor of the replay, and how long its data is kept after it ends."""

    speed: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 60
    keep_minutes: Annotated[int, msgspec.Meta(ge=1, le=1440)] = 60


def match_state_body(diagnostics: MatchDiagnostics) -> MatchStateBody:
    active, processing = diagnostics.active, diagnostics.processing
    return MatchStateBody(
        match_id=diagnostics.fixture.match_id,
        poller_state=None if active is None else active.poller_state.value,
        owner="" if active is None else active.owner,
        last_updated_at=None if active is None else active.last_updated_at,
        version=0 if active is None else active.version,
        cooldowns={} if active is None else dict(active.cooldowns),
        last_ball_id=None if processing is None else processing.last_ball_id,
        hashes=diagnostics.hashes,
        activities=diagnostics.activities,
        followers=diagnostics.followers,
        channel_id=None if active is None else active.channel_id,
        held_at=diagnostics.fixture.held_at,
        corrected_result=corrected_result(diagnostics.fixture),
    )
