"""Handlers for operators: rebuild and compare the leaderboard in Redis, and moderate players."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tally.errors import Invalid
from tally.kit.body import read_json
from tally.kit.http import NO_STORE, Json
from tally.kit.ids import new_uuid
from tally.scoreboard.api.schemas import requests, responses
from tally.scoreboard.model.accounts import parse_user_id
from tally.scoreboard.model.boards import GLOBAL_BOARD
from tally.scoreboard.model.scores import Adjustment
from tally.scoreboard.service.cache_sync import CacheSync
from tally.scoreboard.service.moderation import Moderation


@dataclass(frozen=True, slots=True)
class AdminHandlers:
    """Handlers of the protected endpoints."""

    cache_sync: CacheSync
    moderation: Moderation

    async def rebuild_leaderboard(self, _: Request) -> ASGIApp:
        return Json(responses.RebuildResponse(await self.cache_sync.rebuild()), 200, NO_STORE)

    async def get_drift(self, _: Request) -> ASGIApp:
        report = await self.cache_sync.check_drift(repair=False)
        return Json(responses.DriftResponse.from_report(report), 200, NO_STORE)

    async def adjust_score(self, request: Request) -> ASGIApp:
        user_id = parse_user_id(request.path_params["user_id"])
        body = await read_json(request, requests.AdjustScoreRequest)
        if body.score_delta == 0:
            message = "score_delta must not be 0"
            raise Invalid(message, code="invalid_field", field="score_delta")
        adjustment = Adjustment(
            body.adjustment_id or new_uuid(),
            user_id,
            body.score_delta,
            body.reason,
            None if body.board == GLOBAL_BOARD else body.board,
        )
        applied, rank = await self.moderation.adjust(adjustment)
        response = responses.AdjustmentResponse(
            user_id, adjustment.adjustment_id, applied.score_delta, applied.score_after, rank
        )
        return Json(response, 200, NO_STORE)

    async def ban_player(self, request: Request) -> ASGIApp:
        await self.moderation.ban(parse_user_id(request.path_params["user_id"]))
        return Response(status_code=204)

    async def unban_player(self, request: Request) -> ASGIApp:
        await self.moderation.unban(parse_user_id(request.path_params["user_id"]))
        return Response(status_code=204)
