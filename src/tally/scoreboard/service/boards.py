"""Named boards: reading standings, seasons, and applying what PostgreSQL has committed.

Scores of ascending boards are negative in PostgreSQL and Redis, so that the greatest ranks first
everywhere; this module converts them.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec

from tally.errors import NotFound
from tally.scoreboard.model.boards import (
    GLOBAL_BOARD,
    Board,
    BoardChange,
    BoardOrder,
    BoardPlace,
    BoardRules,
    Season,
    check_board_id,
)
from tally.scoreboard.model.errors import BoardExists, BoardNotFound, PlayerBanned, SeasonDue
from tally.scoreboard.model.scores import MAX_SCORE, LeaderboardPage, Score, Standing
from tally.scoreboard.repository.board_scores import BoardScoreRepository
from tally.scoreboard.repository.boards import BoardRepository
from tally.scoreboard.repository.database import Database
from tally.scoreboard.service.board_seasons import BoardSeasons, OpenSeason

T = TypeVar("T")

# A player may have scores on many boards, each with a season to close.
MAX_CLOSED_SEASONS: Final = 100


class BoardResult(msgspec.Struct, frozen=True):
    """A player's score on a board after an update; without a rank if the season has closed."""

    board: str
    season: int
    score: int
    rank: int | None


@dataclass(frozen=True, slots=True)
class Boards:
    """Reads boards and their seasons, and follows changes of scores and players."""

    repository: BoardRepository
    database: Database
    seasons: BoardSeasons

    async def create(self, board_id: str, rules: BoardRules) -> tuple[Board, bool]:
        """Create a board; return it, and whether it is new. Raises BoardExists or Invalid."""
        check_board_id(board_id)
        if board_id == GLOBAL_BOARD:
            raise BoardExists("The global leaderboard always exists", field="id")
        return await self.seasons.create(board_id, rules)

    async def find(self, board_id: str) -> Board:
        """Return a board with its open season; raises BoardNotFound."""
        return (await self.seasons.current(board_id)).board

    async def after_due_seasons(self, change: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a change, after closing the seasons that ended before it."""
        for _ in range(MAX_CLOSED_SEASONS):
            try:
                return await change()
            except SeasonDue as error:
                await self.seasons.refresh(error.board_id)
        return await change()

    async def find_page(self, limit: int, after: str = "") -> list[Board]:
        """Return boards by id with their open seasons, beginning after an id."""
        page = await self.repository.find_page(limit, after)
        return [await self._find_listed(board) for board in page]

    async def _find_listed(self, board: Board) -> Board:
        """Return a board as it is now, or as it was read if too many of its resets were missed."""
        try:
            return await self.find(board.board_id)
        except SeasonDue:
            return board

    async def require(self, board_ids: Sequence[str]) -> None:
        """Raise BoardNotFound unless all boards exist."""
        named = [board_id for board_id in board_ids if board_id != GLOBAL_BOARD]
        missing = sorted(set(named) - await self.repository.find_existing(named)) if named else []
        if missing:
            raise BoardNotFound(f'There is no board "{missing[0]}"', field="boards")

    async def top(
        self, board_id: str, limit: int, offset: int = 0
    ) -> tuple[Board, LeaderboardPage]:
        """Return `limit` standings of the open season from rank `offset` + 1."""
        season = await self.seasons.current(board_id)
        return season.board, _page(season.board, await season.leaderboard.top(limit, offset))

    async def around(
        self, board_id: str, user_id: str, limit: int
    ) -> tuple[Board, LeaderboardPage]:
        """Return `limit` standings of the open season centred on the player."""
        season = await self.seasons.current(board_id)
        try:
            page = await season.leaderboard.around(user_id, limit)
        except NotFound as error:
            raise _no_score() from error
        return season.board, _page(season.board, page)

    async def standing(self, board_id: str, user_id: str) -> tuple[Board, Standing, int]:
        """Return the player's standing in the open season, and the number of players."""
        season = await self.seasons.current(board_id)
        try:
            standing, players = await season.leaderboard.standing(user_id)
        except NotFound as error:
            raise _no_score() from error
        return season.board, _standing(season.board, standing), players

    async def find_seasons(
        self, board_id: str, limit: int, before: int | None = None
    ) -> list[Season]:
        """Return closed seasons, newest first, beginning before a number."""
        await self.find(board_id)  # closes a season that is due
        return await self.repository.find_seasons(board_id, limit, before)

    async def season_top(
        self, board_id: str, number: int, limit: int, offset: int = 0
    ) -> tuple[Season, LeaderboardPage]:
        """Return final standings of a closed season from rank `offset` + 1."""
        board, season, scores = await self._closed(board_id, number)
        return season, _page(board, await scores.top(limit, offset))

    async def season_around(
        self, board_id: str, number: int, user_id: str, limit: int
    ) -> tuple[Season, LeaderboardPage]:
        """Return final standings of a closed season centred on the player."""
        board, season, scores = await self._closed(board_id, number)
        page = await scores.around(user_id, limit)
        if page is None:
            raise _no_score()
        return season, _page(board, page)

    async def _closed(
        self, board_id: str, number: int
    ) -> tuple[Board, Season, BoardScoreRepository]:
        board = await self.find(board_id)
        season = await self.repository.find_season(board_id, number)
        if season is None:
            raise NotFound(f"Season {number} has not been closed", code="season_not_found")
        return board, season, BoardScoreRepository(self.database, board_id, number)

    async def write(self, user_id: str, player: Score | None, change: BoardChange) -> BoardResult:
        """Write a score through to Redis, and return it with its rank in its season.

        `player` has the username and avatar; without it, the change is one of an earlier request.
        """
        season = await self._current(change.board_id, change.season)
        rank = None
        try:
            if season.board.season != change.season:
                rank = await self._final_rank(change.board_id, change.season, user_id)
            else:
                score = _changed_score(season.board, player, change)
                # The process of the earlier request may have died before it wrote to Redis.
                score = score or await _find_score(season, user_id)
                rank = None if score is None else await season.writer.put_score(score)
                if _changes_others(season.board, change):
                    season.writer.listener.notify_change()
        except (NotFound, PlayerBanned):
            rank = None  # deleted or banned since
        return BoardResult(change.board_id, change.season, change.after, rank)

    async def rank(self, board_id: str, number: int, user_id: str) -> int | None:
        """Return a player's rank in a season, open or closed, or None."""
        season = await self._current(board_id, number)
        if season.board.season != number:
            return await self._final_rank(board_id, number, user_id)
        with suppress(NotFound, PlayerBanned):
            return (await season.leaderboard.standing(user_id))[0].rank
        return None

    async def _final_rank(self, board_id: str, number: int, user_id: str) -> int | None:
        scores = BoardScoreRepository(self.database, board_id, number)
        found = await scores.standing(user_id)
        return None if found is None else found[0].rank

    async def refresh(self, user_id: str) -> None:
        """Write a player's scores through to Redis, after a change of the player."""
        for place in await self.repository.find_places(user_id):
            season = await self._open(place)
            if season is not None:
                score = await _find_score(season, user_id)
                if score is not None:
                    await season.writer.put_player(score)

    async def remove(
        self, user_id: str, places: Sequence[BoardPlace], *, is_deleted: bool = False
    ) -> None:
        """Remove a deleted player, or one who is banned, from the copies in Redis."""
        for place in places:
            season = await self._open(place)
            if season is not None:
                revision = MAX_SCORE if is_deleted else place.revision
                await season.writer.remove_player(user_id, revision)

    async def _open(self, place: BoardPlace) -> OpenSeason | None:
        """Return the season of a place if it is still open."""
        season = await self._current(place.board_id, place.season)
        return season if season.board.season == place.season else None

    async def _current(self, board_id: str, seen: int) -> OpenSeason:
        """Return the open season, which is not before one that PostgreSQL has had."""
        season = await self.seasons.current(board_id)
        if season.board.season < seen:  # another process, whose clock is ahead, has closed it
            season = await self.seasons.refresh(board_id)
        return season


async def _find_score(season: OpenSeason, user_id: str) -> Score | None:
    found = await season.sync.drift_checker.scores.find_many([user_id])
    return found.get(user_id)


def _changed_score(board: Board, player: Score | None, change: BoardChange) -> Score | None:
    """Return the score after a change, as it ranks; None if the change is an earlier one."""
    if player is None or change.revision is None or change.reached_at is None:
        return None
    ranked = change.after * _sign(board)
    return replace(player, score=ranked, reached_at=change.reached_at, revision=change.revision)


def _changes_others(board: Board, change: BoardChange) -> bool:
    """Return whether the player is new, or may have left the top: its own rank does not tell."""
    sign = _sign(board)
    return change.before is None or change.after * sign < change.before * sign


def _no_score() -> NotFound:
    return NotFound("You have no score on this board", code="no_board_score")


def _sign(board: Board) -> int:
    return -1 if board.rules.order is BoardOrder.ASC else 1


def _standing(board: Board, standing: Standing) -> Standing:
    return replace(standing, score=standing.score * _sign(board))


def _page(board: Board, page: LeaderboardPage) -> LeaderboardPage:
    if board.rules.order is BoardOrder.DESC:
        return page
    return replace(page, standings=tuple(_standing(board, row) for row in page.standings))
