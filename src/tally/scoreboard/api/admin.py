"""Handlers for operators: rebuild the leaderboard in Redis and report its drift."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp

from tally.kit.http import NO_STORE, Json
from tally.scoreboard.api.schemas import responses
from tally.scoreboard.service.cache_sync import CacheSync


@dataclass(frozen=True, slots=True)
class AdminHandlers:
    """Handlers of the protected endpoints."""

    cache_sync: CacheSync

    async def rebuild_leaderboard(self, _: Request) -> ASGIApp:
        return Json(responses.RebuildResponse(await self.cache_sync.rebuild()), 200, NO_STORE)

    async def get_drift(self, _: Request) -> ASGIApp:
        report = await self.cache_sync.check_drift(repair=False)
        return Json(responses.DriftResponse.from_report(report), 200, NO_STORE)
