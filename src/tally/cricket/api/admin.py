"""What the routes of operators do: change reference data, sync, look into the pipeline, and play a match again."""

from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tally.cricket.api import render, schemas
from tally.cricket.api.auth import Callers
from tally.cricket.api.handlers import path_id
from tally.cricket.service.live.replays import ReplayService
from tally.cricket.service.queries.admin import AdminService, Remembered
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.queries.matches import MatchService
from tally.cricket.service.queries.teams import TeamService
from tally.cricket.service.sync.sync import SyncService
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.http import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorHandlers:
    """The handlers of operators, with all they need."""

    callers: Callers
    matches: MatchService
    teams: TeamService
    leagues: LeagueService
    sync: SyncService
    admin: AdminService
    replays: ReplayService
    cursors: Cursors

    async def change_team(self, request: Request) -> ASGIApp:
        await self.callers.require_admin(request)
        body = await read_json(request, schemas.TeamChange)
        return Json(
            render.team_body(await self.teams.change(path_id(request, "team_id"), _given(body)))
        )

    async def change_league(self, request: Request) -> ASGIApp:
        await self.callers.require_admin(request)
        body = await read_json(request, schemas.LeagueChange)
        return Json(
            render.league_body(
                await self.leagues.change(path_id(request, "league_id"), _given(body))
            )
        )

    async def delete_league(self, request: Request) -> ASGIApp:
        await self.callers.require_admin(request)
        await self.leagues.delete(path_id(request, "league_id"))
        return Response(status_code=204)

    async def fixtures(self, request: Request) -> ASGIApp:
        await self.callers.require_admin(request)
        query = read_query(request, schemas.AdminFixtureQuery)
        purpose = query_fingerprint("cricket.admin.fixtures", league=query.league_id)
        start = None if query.cursor is None else self.cursors.decode(purpose, query.cursor)
        found, following = await self.admin.of_league(query.league_id, query.limit, start)
        bodies = [render.match_body(view) for view in await self.matches.views(found)]
        return Json(
            schemas.MatchPage(
                bodies, None if following is None else self.cursors.encode(purpose, following)
            )
        )

    async def sync_now(self, request: Request) -> ASGIApp:
        await self.callers.require_admin(request)
        body = await read_json(request, schemas.SyncOrder)
        runs = {
            "leagues": self.sync.sync_leagues,
            "teams": self.sync.sync_teams,
            "fixtures": self.sync.sync_fixtures,
        }
        wanted = [name for name in runs if body.what in {"all", name}]
        return Json(schemas.SyncReport({name: asdict(await runs[name]()) for name in wanted}))

    async def state(self, request: Request) -> ASGIApp:
        await self.callers.require_admin(request)
        return Json(_state_body(await self.admin.state(path_id(request, "match_id"))))

    async def replay(self, request: Request) -> ASGIApp:
        await self.callers.require_admin(request)
        body = await read_json(request, schemas.ReplayOrder)
        fixture = await self.replays.start(
            path_id(request, "match_id"), body.speed, body.keep_minutes
        )
        (view,) = await self.matches.views([fixture])
        return Json(render.match_body(view), 201)


def _given(body: msgspec.Struct) -> dict[str, Any]:
    return {
        name: value
        for name, value in msgspec.structs.asdict(body).items()
        if value is not msgspec.UNSET
    }


def _state_body(found: Remembered) -> schemas.MatchState:
    active, processing = found.active, found.processing
    return schemas.MatchState(
        match_id=found.fixture.match_id,
        poller_state=None if active is None else active.poller_state.value,
        owner="" if active is None else active.owner,
        last_updated_at=None if active is None else active.last_updated_at,
        version=0 if active is None else active.version,
        cooldowns={} if active is None else dict(active.cooldowns),
        last_ball_id=None if processing is None else processing.last_ball_id,
        hashes=found.hashes,
        activities=found.activities,
        followers=found.followers,
        channel_id=None if active is None else active.channel_id,
    )
