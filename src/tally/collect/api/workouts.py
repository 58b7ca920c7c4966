"""Request handlers of workouts: the list, the import of files, deletion and separation."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tally.collect.api.auth import CollectAuth
from tally.collect.api.schemas import requests, responses
from tally.collect.model.records import PageKey
from tally.collect.service.services import CollectServices
from tally.kit.body import read_file, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.http import NO_STORE, Json
from tally.kit.rate_limits import record_rate_limit

# The content decides about the format; browsers and curl send any of these.
FILE_TYPES: Final = (
    "application/octet-stream",
    "application/gpx+xml",
    "application/vnd.garmin.tcx+xml",
    "application/vnd.ant.fit",
    "application/fit",
    "application/xml",
    "text/xml",
    "application/gzip",
    "application/x-gzip",
)


class WorkoutHandlers:
    """The request handlers of workouts, a part of `Handlers`."""

    __slots__ = ()
    services: CollectServices
    auth: CollectAuth
    cursors: Cursors

    async def list_workouts(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        query = read_query(request, requests.WorkoutsQuery)
        purpose = query_fingerprint("collect.workouts.by_start", user=session.user_id)
        workouts, next_key = await self.services.accounts.workouts(
            session.user_id, query.limit, page_key(self.cursors, purpose, query.cursor)
        )
        bodies = [responses.workout_body(workout) for workout in workouts]
        cursor = next_cursor(self.cursors, purpose, next_key)
        return Json(responses.WorkoutPage(bodies, cursor), 200, NO_STORE)

    async def import_workout(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        query = read_query(request, requests.ImportQuery)
        imports = self.services.imports
        with imports.limits.running(session.user_id):
            record_rate_limit(request.scope, imports.limits.take(session.user_id))
            content = await read_file(request, FILE_TYPES, limit=imports.max_bytes)
            imported = await imports.import_file(session.user_id, content, query.sport)
        body = responses.workout_body(imported.workout)
        return Json(body, 201 if imported.is_new else 200, NO_STORE)

    async def delete_workout(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        await self.services.imports.delete(session.user_id, request.path_params["workout_id"])
        return Response(status_code=204, headers=NO_STORE)

    async def separate_workout(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        workout = await self.services.imports.separate(
            session.user_id, request.path_params["workout_id"]
        )
        return Json(responses.workout_body(workout), 200, NO_STORE)

    async def rejoin_workout(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        workout = await self.services.imports.rejoin(
            session.user_id, request.path_params["workout_id"]
        )
        return Json(responses.workout_body(workout), 200, NO_STORE)


def page_key(cursors: Cursors, purpose: str, cursor: str | None) -> PageKey | None:
    return None if cursor is None else cursors.decode(purpose, cursor)


def next_cursor(cursors: Cursors, purpose: str, key: PageKey | None) -> str | None:
    return None if key is None else cursors.encode(purpose, key)
