"""What a leaderboard needs from PostgreSQL: the global one, and the season of a named board."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from tally.scoreboard.model.scores import LeaderboardPage, Score, Standing
from tally.scoreboard.repository.database import Row


class RankedScores(Protocol):
    """The scores of one leaderboard; the greatest score ranks first."""

    async def top(self, limit: int, offset: int = 0) -> LeaderboardPage:
        """Return `limit` standings from rank `offset` + 1."""

    async def around(self, user_id: str, limit: int) -> LeaderboardPage | None:
        """Return `limit` standings centred on the player; None if the player has none."""

    async def standing(self, user_id: str) -> tuple[Standing, int] | None:
        """Return the player's standing and the number of players."""

    async def find_many(self, user_ids: Sequence[str]) -> dict[str, Score]:
        """Return the scores of the players that have one; invalid ids are ignored."""

    async def is_banned(self, user_id: str) -> bool:
        """Return whether the player is banned."""

    def entries(self, size: int) -> AsyncIterator[list[Row]]:
        """Iterate over one snapshot of all scores as text for Redis, `size` at a time."""

    def comparable(self, size: int) -> AsyncIterator[Sequence[tuple[Any, ...]]]:
        """Iterate over one snapshot of all scores in the form of Redis' replies."""

    async def last_change(self) -> datetime | None:
        """Return the time of the last score change."""
