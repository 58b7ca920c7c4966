"""The table `board_scores`: the standings of one season of a named board.

Scores are those that rank, which are negative on ascending boards.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tally.scoreboard.model.accounts import is_canonical_user_id
from tally.scoreboard.model.boards import DELETED_PLAYER
from tally.scoreboard.model.scores import LeaderboardPage, Score, Standing
from tally.scoreboard.repository import board_statements as statements
from tally.scoreboard.repository.database import Database, Row


@dataclass(frozen=True, slots=True)
class BoardScoreRepository:
    """The scores of a season, open or closed; implements `RankedScores`."""

    database: Database
    board_id: str
    season: int

    async def top(self, limit: int, offset: int = 0) -> LeaderboardPage:
        """Return `limit` standings from rank `offset` + 1."""
        rows = await self.database.rows(
            "board_top", statements.TOP, offset, limit, self.board_id, self.season
        )
        return _page(rows)

    async def around(self, user_id: str, limit: int) -> LeaderboardPage | None:
        """Return `limit` standings centred on the player; None if the player has none."""
        rows = await self.database.rows(
            "board_around", statements.AROUND, user_id, limit, self.board_id, self.season
        )
        return _page(rows) if rows else None

    async def standing(self, user_id: str) -> tuple[Standing, int] | None:
        """Return the player's standing and the number of players."""
        row = await self.database.row(
            "board_standing", statements.STANDING, user_id, self.board_id, self.season
        )
        return None if row is None else (_standing(row, row["ahead"] + 1), row["players"])

    async def find_many(self, user_ids: Sequence[str]) -> dict[str, Score]:
        """Return the scores of the players that have one; invalid ids are ignored."""
        valid_ids = [user_id for user_id in user_ids if is_canonical_user_id(user_id)]
        rows = await self.database.rows(
            "find_board_scores", statements.FIND_MANY, valid_ids, self.board_id, self.season
        )
        return {
            str(row["user_id"]): Score(
                str(row["user_id"]),
                row["username"],
                row["total_score"],
                row["score_first_reached_at"],
                row["revision"],
                row["avatar_url"],
            )
            for row in rows
        }

    async def is_banned(self, user_id: str) -> bool:
        """Return whether the player is banned."""
        return bool(
            await self.database.value(
                "is_banned", "SELECT EXISTS (SELECT FROM banned_scores WHERE user_id = $1)", user_id
            )
        )

    async def entries(self, size: int) -> AsyncIterator[list[Row]]:
        """Iterate over one snapshot of all scores as text for Redis, `size` at a time."""
        async for rows in self.database.stream(
            "board_entries", statements.ENTRIES, size, self.board_id, self.season
        ):
            yield rows

    async def comparable(self, size: int) -> AsyncIterator[Sequence[tuple[Any, ...]]]:
        """Iterate over one snapshot of all scores in the form of Redis' replies."""
        async for rows in self.database.stream(
            "board_entries", statements.COMPARABLE, size, self.board_id, self.season
        ):
            yield tuple(zip(*rows, strict=True))

    async def last_change(self) -> datetime | None:
        """Return the time of the last score change."""
        changed_at: datetime | None = await self.database.value(
            "board_last_change", statements.LAST_CHANGE, self.board_id, self.season
        )
        return changed_at


def _standing(row: Row, rank: int) -> Standing:
    return Standing(
        rank,
        str(row["user_id"]) if row["username"] is not None else "",
        row["username"] or DELETED_PLAYER,
        row["total_score"],
        row["score_first_reached_at"],
        row["avatar_url"],
    )


def _page(rows: Sequence[Row]) -> LeaderboardPage:
    first = rows[0]
    players = [row for row in rows if row["user_id"] is not None]
    standings = tuple(
        _standing(row, first["start"] + index) for index, row in enumerate(players, start=1)
    )
    return LeaderboardPage(standings, first["players"], first["changed_at"])
