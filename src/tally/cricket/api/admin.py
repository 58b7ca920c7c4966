"""Handlers of the admin endpoints: reference data, syncs, diagnostics and replays."""

from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tally.cricket.api.handlers import path_id
from tally.cricket.api.schemas.admin import (
    AdminFixtureQuery,
    CorrectionRequest,
    ReplayRequest,
    RestoredFollows,
    StartRequest,
    SyncReport,
    SyncRequest,
    match_state_body,
)
from tally.cricket.api.schemas.matches import MatchPage, match_body
from tally.cricket.api.schemas.reference import LeagueChange, TeamChange, league_body, team_body
from tally.cricket.api.schemas.users import activity_body
from tally.cricket.service.services import CricketServices
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.http import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminHandlers:
    """One method per admin endpoint."""

    services: CricketServices
    cursors: Cursors

    async def update_team(self, request: Request) -> ASGIApp:
        body = await read_json(request, TeamChange)
        team = await self.services.queries.teams.update(
            path_id(request, "team_id"), _set_fields(body)
        )
        return Json(team_body(team))

    async def update_league(self, request: Request) -> ASGIApp:
        body = await read_json(request, LeagueChange)
        league = await self.services.queries.leagues.update(
            path_id(request, "league_id"), _set_fields(body)
        )
        return Json(league_body(league))

    async def delete_league(self, request: Request) -> ASGIApp:
        await self.services.queries.leagues.delete(path_id(request, "league_id"))
        return Response(status_code=204)

    async def list_fixtures(self, request: Request) -> ASGIApp:
        query = read_query(request, AdminFixtureQuery)
        purpose = query_fingerprint("cricket.admin.fixtures", league=query.league_id)
        start = None if query.cursor is None else self.cursors.decode(purpose, query.cursor)
        fixtures, next_key = await self.services.queries.admin.league_fixtures(
            query.league_id, query.limit, start
        )
        views = await self.services.queries.matches.views(fixtures)
        cursor = None if next_key is None else self.cursors.encode(purpose, next_key)
        return Json(MatchPage([match_body(view) for view in views], cursor))

    async def run_sync(self, request: Request) -> ASGIApp:
        body = await read_json(request, SyncRequest)
        sync = self.services.sync
        syncs = {
            "leagues": sync.sync_leagues,
            "teams": sync.sync_teams,
            "fixtures": sync.sync_fixtures,
        }
        selected = [name for name in syncs if body.what in {"all", name}]
        return Json(SyncReport({name: asdict(await syncs[name]()) for name in selected}))

    async def get_match_state(self, request: Request) -> ASGIApp:
        diagnostics = await self.services.queries.admin.match_diagnostics(
            path_id(request, "match_id")
        )
        return Json(match_state_body(diagnostics))

    async def hold_match(self, request: Request) -> ASGIApp:
        await self.services.operator_actions.hold(path_id(request, "match_id"))
        return await self.get_match_state(request)

    async def release_match(self, request: Request) -> ASGIApp:
        await self.services.operator_actions.release(path_id(request, "match_id"))
        return await self.get_match_state(request)

    async def correct_result(self, request: Request) -> ASGIApp:
        body = await read_json(request, CorrectionRequest)
        match_id = path_id(request, "match_id")
        await self.services.operator_actions.correct_result(match_id, body.result())
        return await self.get_match_state(request)

    async def remove_correction(self, request: Request) -> ASGIApp:
        await self.services.operator_actions.remove_correction(path_id(request, "match_id"))
        return await self.get_match_state(request)

    async def restore_follows(self, request: Request) -> ASGIApp:
        match_id = path_id(request, "match_id")
        return Json(RestoredFollows(await self.services.operator_actions.restore_follows(match_id)))

    async def resend_start(self, request: Request) -> ASGIApp:
        body = await read_json(request, StartRequest)
        fixture = await self.services.queries.matches.fixture(path_id(request, "match_id"))
        activity = await self.services.activities.resend_start(
            fixture, body.user_id, body.device_id
        )
        return Json(activity_body(activity))

    async def start_replay(self, request: Request) -> ASGIApp:
        body = await read_json(request, ReplayRequest)
        fixture = await self.services.replays.start(
            path_id(request, "match_id"), body.speed, body.keep_minutes
        )
        (view,) = await self.services.queries.matches.views([fixture])
        return Json(match_body(view), 201)


def _set_fields(body: msgspec.Struct) -> dict[str, Any]:
    return {
        name: value
        for name, value in msgspec.structs.asdict(body).items()
        if value is not msgspec.UNSET
    }
