"""Handlers for operators: rebuild the leaderboard in Redis and report its drift."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp

from tally.scoreboard.api.auth import ScoreboardAuth
from tally.scoreboard.api.schemas import responses
from tally.scoreboard.service.cache_sync import CacheSync


@dataclass(frozen=True, slots=True)
class AdminHandlers:
    """Handlers that require the operator key."""

    auth: ScoreboardAuth
    cache_sync: CacheSync

    async def rebuild(self, request: Request) -> ASGIApp:
        self.auth.require_operator(request)
        return responses.success(responses.RebuildResponse(await self.cache_sync.rebuild()))

    async def show_drift(self, request: Request) -> ASGIApp:
        self.auth.require_operator(request)
        report = await self.cache_sync.check_drift(repair=False)
        return responses.success(responses.DriftResponse.from_report(report))
