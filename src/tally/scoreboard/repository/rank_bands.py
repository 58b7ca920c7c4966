"""The tables `rank_bands` and `rank_changes`: keeps the counts of players per band current.

Score changes append to `rank_changes` in their transaction. `maintain` moves these counts into the
bands, in one process at a time, and splits bands that have grown. Ranks are exact at any time; with
fewer changes and smaller bands they cost less.
"""

from dataclasses import dataclass
from typing import Final

from tally.scoreboard.repository.database import Connection, Database
from tally.scoreboard.repository.locks import advisory_lock_key
from tally.scoreboard.repository.rank_statements import (
    DELETE_EMPTY,
    FOLD,
    MERGE,
    RESTART_GLOBAL,
    RESTART_SEASONS,
    SPLIT_GLOBAL,
    SPLIT_SEASONS,
)

BAND_PLAYERS: Final = 1_000
LOCK: Final = advisory_lock_key("scoreboard-ranks")
VACUUM_CHANGES: Final = 500
TRUNCATE_CHANGES: Final = 100_000
# Sorting the first band of a million imported players takes longer than a request may.
TIMEOUT_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class RankBandRepository:
    """The bands of all boards; `players` is the size that a split gives a band."""

    database: Database
    players: int = BAND_PLAYERS

    async def maintain(self) -> int:
        """Add the changes to the bands and return their number; 0 if another process does it."""
        async with self.database.use("maintain_ranks") as connection:
            if not await connection.fetchval("SELECT EXISTS (SELECT FROM rank_changes)"):
                return 0
            if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
                return 0
            try:
                changes = await self._maintain(connection)
                if changes >= VACUUM_CHANGES:
                    await self._vacuum(connection, changes)
                return changes
            finally:
                if not connection.is_closed():
                    await connection.execute("SELECT pg_advisory_unlock($1)", LOCK)

    async def _vacuum(self, connection: Connection, changes: int) -> None:
        """Free the deleted changes: a rank scans what is left of them."""
        # Only an import is worth the exclusive lock that shortens the file.
        truncate = "true" if changes >= TRUNCATE_CHANGES else "false"
        await connection.execute(f"VACUUM (TRUNCATE {truncate}) rank_changes")
        await connection.execute("VACUUM (ANALYZE, TRUNCATE false) rank_bands")

    async def _maintain(self, connection: Connection) -> int:
        # One snapshot, so that the rows of a band are as many as its players.
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute(f"SET LOCAL statement_timeout = '{TIMEOUT_SECONDS}s'")
            folded = await connection.fetchrow(FOLD, timeout=TIMEOUT_SECONDS)
            if folded["departed"]:
                await self._forget(connection, folded["departed"])
            for split in (SPLIT_GLOBAL, SPLIT_SEASONS):
                await connection.execute(
                    split, 2 * self.players, self.players, timeout=TIMEOUT_SECONDS
                )
            await connection.execute(MERGE, self.players // 2, folded["seasons"])
        changes: int = folded["changes"]
        return changes

    async def _forget(self, connection: Connection, departed: list[object]) -> None:
        """Remove the ids of deleted players from the starts of bands."""
        for statement in (DELETE_EMPTY, RESTART_GLOBAL, RESTART_SEASONS):
            await connection.execute(statement, departed)
