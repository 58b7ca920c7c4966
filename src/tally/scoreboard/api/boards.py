"""Handlers of named boards: their standings, their seasons, and creating them."""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from tally.errors import Invalid
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.http import NO_STORE, Json
from tally.scoreboard.api.auth import ScoreboardAuth
from tally.scoreboard.api.rate_limits import RequestLimits
from tally.scoreboard.api.schemas import boards as schemas
from tally.scoreboard.api.schemas import requests
from tally.scoreboard.model.boards import BoardRules, ResetSchedule
from tally.scoreboard.service.boards import Boards

_MAX_SEASON_DIGITS: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardHandlers:
    """The request handlers of boards."""

    boards: Boards
    auth: ScoreboardAuth
    limits: RequestLimits
    cursors: Cursors

    async def create_board(self, request: Request) -> ASGIApp:
        body = await read_json(request, requests.CreateBoardRequest)
        reset = None if body.reset is None else ResetSchedule(body.reset.cron, body.reset.time_zone)
        rules = BoardRules(body.name, body.order, body.operator, reset)
        board, _ = await self.boards.create(body.id, rules)
        return Json(schemas.BoardResponse.from_board(board), 201, NO_STORE)

    async def list_boards(self, request: Request) -> ASGIApp:
        await self.limits.count_leaderboard(request)
        query = read_query(request, requests.BoardListQuery)
        purpose = query_fingerprint("scoreboard.boards")
        after = ""
        if query.cursor is not None:
            after = str(self.cursors.decode(purpose, query.cursor)["id"])
        found = await self.boards.find_page(query.limit + 1, after)
        items = [schemas.BoardResponse.from_board(board) for board in found[: query.limit]]
        cursor = None
        if len(found) > query.limit:
            cursor = self.cursors.encode(purpose, {"id": items[-1].id})
        return Json(schemas.BoardsResponse(items, cursor), 200, NO_STORE)

    async def get_board(self, request: Request) -> ASGIApp:
        await self.limits.count_leaderboard(request)
        query, board_id = read_query(request, requests.LeaderboardQuery), _board_id(request)
        if query.around is None:
            board, page = await self.boards.top(board_id, query.limit, query.offset)
        else:
            player = await self.auth.player(request)
            board, page = await self.boards.around(board_id, player.user_id, query.limit)
        return Json(schemas.BoardLeaderboardResponse.from_page(board, page), 200, NO_STORE)

    async def get_own_standing(self, request: Request) -> ASGIApp:
        player = await self.auth.player(request)
        await self.limits.count_own_data(request, player.user_id)
        board, standing, players = await self.boards.standing(_board_id(request), player.user_id)
        return Json(
            schemas.BoardStandingResponse.from_standing(board, standing, players), 200, NO_STORE
        )

    async def list_seasons(self, request: Request) -> ASGIApp:
        await self.limits.count_leaderboard(request)
        query, board_id = read_query(request, requests.BoardListQuery), _board_id(request)
        purpose = query_fingerprint("scoreboard.seasons", board=board_id)
        before = None
        if query.cursor is not None:
            before = int(self.cursors.decode(purpose, query.cursor)["season"])
        found = await self.boards.find_seasons(board_id, query.limit + 1, before)
        items = [schemas.SeasonResponse.from_season(season) for season in found[: query.limit]]
        cursor = None
        if len(found) > query.limit:
            cursor = self.cursors.encode(purpose, {"season": items[-1].season})
        return Json(schemas.SeasonsResponse(items, cursor), 200, NO_STORE)

    async def get_season(self, request: Request) -> ASGIApp:
        await self.limits.count_leaderboard(request)
        query, board_id = read_query(request, requests.LeaderboardQuery), _board_id(request)
        number = _season_number(request)
        if query.around is None:
            season, page = await self.boards.season_top(board_id, number, query.limit, query.offset)
        else:
            player = await self.auth.player(request)
            season, page = await self.boards.season_around(
                board_id, number, player.user_id, query.limit
            )
        return Json(
            schemas.SeasonLeaderboardResponse.from_page(board_id, season, page), 200, NO_STORE
        )


def _board_id(request: Request) -> str:
    return str(request.path_params["board_id"])


def _season_number(request: Request) -> int:
    text = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_SEASON_DIGITS):
        raise Invalid("number must be that of a season", code="invalid_field", field="number")
    return int(text)
