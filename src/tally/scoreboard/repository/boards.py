"""The tables `boards` and `seasons`.

Closing a season locks its board, so that every score change is either in the closed season or in
the next one, and changes one row, whatever the number of players.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.scoreboard.model.boards import (
    Board,
    BoardOperator,
    BoardOrder,
    BoardPlace,
    BoardRules,
    ResetSchedule,
    Season,
)
from tally.scoreboard.repository import board_statements as statements
from tally.scoreboard.repository.database import Database, Row

# More than any season has, for the first page of a list.
_LAST_SEASON: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BoardRepository:
    """Boards by id, and their closed seasons by number."""

    database: Database

    async def create(
        self, board_id: str, rules: BoardRules, now: datetime, ends_at: datetime | None
    ) -> Board | None:
        """Create a board with its first season; None if the id is taken."""
        reset = rules.reset
        async with self.database.use("create_board") as connection, connection.transaction():
            row = await connection.fetchrow(
                statements.CREATE_BOARD,
                board_id,
                rules.name,
                rules.order is BoardOrder.ASC,
                rules.operator.value,
                None if reset is None else reset.expression,
                None if reset is None else reset.time_zone,
                now,
                ends_at,
            )
            if row is not None:
                await connection.execute(statements.ADD_FIRST_BAND, board_id, 1)
        return None if row is None else _board(row)

    async def find(self, board_id: str) -> Board | None:
        row = await self.database.row("find_board", statements.FIND_BOARD, board_id)
        return None if row is None else _board(row)

    async def find_page(self, limit: int, after: str = "") -> list[Board]:
        """Return boards by id, beginning after an id."""
        rows = await self.database.rows("list_boards", statements.LIST_BOARDS, after, limit)
        return [_board(row) for row in rows]

    async def find_due(self, now: datetime, limit: int) -> list[Board]:
        """Return boards whose season has to be closed, those that are most overdue first."""
        rows = await self.database.rows("find_due_boards", statements.FIND_DUE, now, limit)
        return [_board(row) for row in rows]

    async def find_existing(self, board_ids: Sequence[str]) -> set[str]:
        """Return those of the ids that boards have."""
        rows = await self.database.rows(
            "find_existing_boards", statements.EXISTING_BOARDS, list(board_ids)
        )
        return {row["id"] for row in rows}

    async def close_seasons(
        self, board: Board, resets: Sequence[datetime], ends_at: datetime | None
    ) -> Board | None:
        """Close the open season at the first reset, and an empty one at each later reset.

        Return the board with its next season, which ends at `ends_at`; None if another process has
        closed the season.
        """
        async with self.database.use("close_season") as connection, connection.transaction():
            await connection.execute(statements.LOCK_BOARD, board.board_id)
            row = await connection.fetchrow(
                statements.CLOSE_SEASON,
                board.board_id,
                board.season,
                len(resets),
                resets[-1],
                ends_at,
            )
            if row is None:
                return None
            players = await connection.fetchval(statements.PLAYERS, board.board_id, board.season)
            await connection.execute(
                statements.ADD_SEASONS,
                board.board_id,
                board.season,
                board.started_at,
                list(resets),
                players,
            )
            await connection.execute(statements.ADD_FIRST_BAND, board.board_id, row["season"])
        return _board(row)

    async def find_places(self, user_id: str) -> list[BoardPlace]:
        """Return the places of a player in open seasons."""
        rows = await self.database.rows("find_places", statements.FIND_PLACES, user_id)
        return [BoardPlace(row["board"], row["season"], row["revision"]) for row in rows]

    async def find_seasons(
        self, board_id: str, limit: int, before: int | None = None
    ) -> list[Season]:
        """Return closed seasons, newest first, beginning before a number."""
        rows = await self.database.rows(
            "list_seasons",
            statements.LIST_SEASONS,
            board_id,
            _LAST_SEASON if before is None else before,
            limit,
        )
        return [_season(row) for row in rows]

    async def find_season(self, board_id: str, number: int) -> Season | None:
        row = await self.database.row("find_season", statements.FIND_SEASON, board_id, number)
        return None if row is None else _season(row)


def _board(row: Row) -> Board:
    reset = None
    if row["schedule"] is not None:
        reset = ResetSchedule(row["schedule"], row["time_zone"])
    order = BoardOrder.ASC if row["is_ascending"] else BoardOrder.DESC
    rules = BoardRules(row["name"], order, BoardOperator(row["operator"]), reset)
    return Board(
        row["id"],
        rules,
        row["created_at"],
        row["season"],
        row["season_started_at"],
        row["season_ends_at"],
    )


def _season(row: Row) -> Season:
    return Season(row["number"], row["started_at"], row["ended_at"], row["players"])
