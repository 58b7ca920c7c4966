"""The control API of the SportMonks simulator, for tests and other processes.

GET    /_sim/state                     matches with their progress, requests, pending faults
POST   /_sim/matches                   {"content": {a Cricsheet file}, "name", "speed", "starts_in"}
DELETE /_sim/matches/{id}              removes a match
POST   /_sim/matches/{id}/step         {"steps": 1}, {"deliveries": 6} or {"to": "result"}
POST   /_sim/matches/{id}              speed, per_poll, status, garble, lags, mistakes
POST   /_sim/schedule                  {"count": 10000, "league": "Demo League"}
POST   /_sim/limits                    {"hourly": 2000}; resets the counts
POST   /_sim/faults                    an InjectedFault; DELETE clears all
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tally.errors import Invalid, NotFound
from tally.kit.http import Json
from tally.sim.fault_injection import NO_CONTENT, fault_routes
from tally.sim.request_parsing import read_json_body
from tally.sim.sportmonks.core import SportMonksCore, UnknownMatch
from tally.sim.sportmonks.cricsheet import InvalidMatchFile, read_match
from tally.sim.sportmonks.mistakes import Mistakes
from tally.sim.sportmonks.playback import Garble, MatchPlayback

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Speed: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]


class NewMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A match to play back."""

    content: msgspec.Raw
    name: str = ""
    speed: Speed | None = None
    starts_in: Annotated[float, msgspec.Meta(ge=-(10**8), le=10**8)] | None = None
    per_poll: Count = 0


class PlaybackStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far to advance a playback."""

    steps: Count = 0
    deliveries: Count = 0
    to: Literal["result"] | None = None


class PlaybackChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a playback; omitted fields stay unchanged, null resets status and garble."""

    speed: Speed | msgspec.UnsetType | None = msgspec.UNSET
    per_poll: Count | msgspec.UnsetType = msgspec.UNSET
    status: str | msgspec.UnsetType | None = msgspec.UNSET
    garble: Garble | msgspec.UnsetType | None = msgspec.UNSET
    lags: list[Count] | msgspec.UnsetType = msgspec.UNSET
    mistakes: Mistakes | msgspec.UnsetType = msgspec.UNSET


class NewSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fixtures to schedule."""

    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    league: str = "Demo League"
    apart: Annotated[float, msgspec.Meta(ge=0, le=10**6)] = 3600
    status: str = "NS"


class NewLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hourly rate limit."""

    hourly: Count


@dataclass(frozen=True, slots=True)
class SportMonksControl:
    """The routes under `/_sim`."""

    core: SportMonksCore

    def routes(self) -> list[Route]:
        return [
            Route("/_sim/state", self.state),
            Route("/_sim/matches", self.add_match, methods=["POST"]),
            Route("/_sim/matches/{match_id:int}", self.change, methods=["POST"]),
            Route("/_sim/matches/{match_id:int}", self.remove, methods=["DELETE"]),
            Route("/_sim/matches/{match_id:int}/step", self.step, methods=["POST"]),
            Route("/_sim/schedule", self.schedule, methods=["POST"]),
            Route("/_sim/limits", self.set_limit, methods=["POST"]),
            *fault_routes(self.core.faults),
        ]

    async def state(self, _: Request) -> Response:
        core = self.core
        return Json(
            {
                "matches": [match_summary(playback) for playback in core.playbacks.values()],
                "scheduled": len(core.scheduled),
                "hourly_limit": core.limits.hourly,
                "faults": core.faults.pending,
                "requests": len(core.faults.requests),
            }
        )

    async def add_match(self, request: Request) -> Response:
        body = await read_json_body(request, NewMatch)
        try:
            match = read_match(bytes(body.content), body.name)
        except InvalidMatchFile as error:
            raise Invalid(f"Invalid match file: {error}", field="content") from error
        start = (
            None
            if body.starts_in is None
            else self.core.clock.now() + timedelta(seconds=body.starts_in)
        )
        return Json(
            match_summary(
                self.core.add(match, starting_at=start, speed=body.speed, per_poll=body.per_poll)
            ),
            201,
        )

    async def remove(self, request: Request) -> Response:
        self._playback(request)
        self.core.remove(request.path_params["match_id"])
        return NO_CONTENT

    async def step(self, request: Request) -> Response:
        body = await read_json_body(request, PlaybackStep)
        playback = self._playback(request)
        playback.step(body.steps)
        playback.deliver(body.deliveries)
        if body.to == "result":
            playback.finish()
        return Json(match_summary(playback))

    async def change(self, request: Request) -> Response:
        body = await read_json_body(request, PlaybackChanges)
        playback = self._playback(request)
        if body.speed is not msgspec.UNSET:
            playback.set_speed(body.speed)
        if body.lags is not msgspec.UNSET:
            playback.lags.extend(body.lags)
        for name in ("per_poll", "status", "garble", "mistakes"):
            value = getattr(body, name)
            if value is not msgspec.UNSET:
                setattr(playback, name, value)
        return Json(match_summary(playback))

    async def schedule(self, request: Request) -> Response:
        body = await read_json_body(request, NewSchedule)
        ids = self.core.schedule(
            body.count, league_name=body.league, apart=body.apart, status=body.status
        )
        return Json({"ids": ids}, 201)

    async def set_limit(self, request: Request) -> Response:
        self.core.limits.hourly = (await read_json_body(request, NewLimit)).hourly
        self.core.limits.reset()
        return NO_CONTENT

    def _playback(self, request: Request) -> MatchPlayback:
        try:
            return self.core.playback(request.path_params["match_id"])
        except UnknownMatch as error:
            raise NotFound(str(error)) from error


def match_summary(playback: MatchPlayback) -> dict[str, Any]:
    """A match for the state response."""
    fixture = playback.fixture()
    return {
        "id": playback.match.id,
        "league_id": playback.match.league_id,
        "teams": playback.match.teams,
        "status": fixture["status"],
        "score": [f"{row['score']}/{row['wickets']} ({row['overs']})" for row in fixture["runs"]],
        "position": playback.position,
        "steps": len(playback.steps),
        "is_listed": playback.is_listed,
    }
