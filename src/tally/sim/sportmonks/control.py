"""The control API of the SportMonks simulator, for whoever drives it from another process.

GET    /_sim/state                     the matches, where they stand, requests, what is due
POST /_sim/matches {"content": {…a Cricsheet file…}, "name": "1304076", "speed": 60, "starts_in": 0}
DELETE /_sim/matches/{id} takes a match off the programme POST /_sim/matches/{id}/step {"steps": 1}
or {"deliveries": 6} or {"to": "result"} POST /_sim/matches/{id} speed, per_poll, status, garble,
lags, mistakes POST /_sim/schedule {"count": 10000, "league": "Demo League"}: matches that nobody
plays POST /_sim/limits {"hourly": 2000}; the counts start again POST /_sim/faults a fault; DELETE
clears all
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
    content: msgspec.Raw
    name: str = ""
    speed: Speed | None = None
    starts_in: Annotated[float, msgspec.Meta(ge=-(10**8), le=10**8)] | None = None
    per_poll: Count = 0


class PlaybackStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    steps: Count = 0
    deliveries: Count = 0
    to: Literal["result"] | None = None


class PlaybackChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is; an empty status and no garble are as usual again."""

    speed: Speed | msgspec.UnsetType | None = msgspec.UNSET
    per_poll: Count | msgspec.UnsetType = msgspec.UNSET
    status: str | msgspec.UnsetType | None = msgspec.UNSET
    garble: Garble | msgspec.UnsetType | None = msgspec.UNSET
    lags: list[Count] | msgspec.UnsetType = msgspec.UNSET
    mistakes: Mistakes | msgspec.UnsetType = msgspec.UNSET


class NewSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    league: str = "Demo League"
    apart: Annotated[float, msgspec.Meta(ge=0, le=10**6)] = 3600
    status: str = "NS"


class NewLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hourly: Count


@dataclass(frozen=True, slots=True)
class SportMonksControl:
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
                "matches": [match_summary(broadcast) for broadcast in core.broadcasts.values()],
                "scheduled": len(core.scheduled),
                "hourly_limit": core.limits.hourly,
                "faults": core.faults.pending,
                "requests": len(core.faults.requests),
            }
        )

    async def add_match(self, request: Request) -> Response:
        wanted = await read_json_body(request, NewMatch)
        try:
            match = read_match(bytes(wanted.content), wanted.name)
        except InvalidMatchFile as error:
            raise Invalid(f"The content is no match: {error}", field="content") from error
        start = (
            None
            if wanted.starts_in is None
            else self.core.clock.now() + timedelta(seconds=wanted.starts_in)
        )
        return Json(
            match_summary(
                self.core.add(
                    match, starting_at=start, speed=wanted.speed, per_poll=wanted.per_poll
                )
            ),
            201,
        )

    async def remove(self, request: Request) -> Response:
        self._broadcast(request)
        self.core.remove(request.path_params["match_id"])
        return NO_CONTENT

    async def step(self, request: Request) -> Response:
        wanted = await read_json_body(request, PlaybackStep)
        broadcast = self._broadcast(request)
        broadcast.step(wanted.steps)
        broadcast.deliver(wanted.deliveries)
        if wanted.to == "result":
            broadcast.play_out()
        return Json(match_summary(broadcast))

    async def change(self, request: Request) -> Response:
        wanted = await read_json_body(request, PlaybackChanges)
        broadcast = self._broadcast(request)
        if wanted.speed is not msgspec.UNSET:
            broadcast.run_at(wanted.speed)
        if wanted.lags is not msgspec.UNSET:
            broadcast.lags.extend(wanted.lags)
        for name in ("per_poll", "status", "garble", "mistakes"):
            value = getattr(wanted, name)
            if value is not msgspec.UNSET:
                setattr(broadcast, name, value)
        return Json(match_summary(broadcast))

    async def schedule(self, request: Request) -> Response:
        wanted = await read_json_body(request, NewSchedule)
        made = self.core.schedule(
            wanted.count, league_name=wanted.league, apart=wanted.apart, status=wanted.status
        )
        return Json({"ids": made}, 201)

    async def set_limit(self, request: Request) -> Response:
        self.core.limits.hourly = (await read_json_body(request, NewLimit)).hourly
        self.core.limits.forget()
        return NO_CONTENT

    def _broadcast(self, request: Request) -> MatchPlayback:
        try:
            return self.core.broadcast(request.path_params["match_id"])
        except UnknownMatch as error:
            raise NotFound(str(error)) from error


def match_summary(broadcast: MatchPlayback) -> dict[str, Any]:
    """A match in a few words."""
    fixture = broadcast.fixture()
    return {
        "id": broadcast.match.id,
        "league_id": broadcast.match.league_id,
        "teams": broadcast.match.teams,
        "status": fixture["status"],
        "score": [f"{row['score']}/{row['wickets']} ({row['overs']})" for row in fixture["runs"]],
        "position": broadcast.position,
        "steps": len(broadcast.steps),
        "is_listed": broadcast.is_listed,
    }
