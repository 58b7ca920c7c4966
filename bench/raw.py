"""The raw limit: the same statements on the same file with nothing around them but the item's encoding."""

import time
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from tally.store.schema import S, Table
from tally.store.sqlite.checkpoint import Checkpoint
from tally.store.sqlite.codec import pack, unpack
from tally.store.sqlite.files import connect
from tally.store.sqlite.layout import compile_layout

READINGS = Table("bench-readings", S("board"), S("at"))
PER_BOARD = 10
_SIZE = 260
_fresh = count()


def make_item(board: str, at: str) -> dict[str, Any]:
    """An item like a board's reading, never twice the same: SQLite writes nothing for a row that does not change."""
    return {
        "board": board,
        "at": at,
        "boot": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
        "sequence": next(_fresh),
        "received": time.time_ns(),
        "firmware": "1.0.16",
        "sensors": {"humidity": 45, "moisture": 62, "pressure": 1013},
        "ok": True,
        "note": "n" * 60,
    }


def board_name(number: int) -> str:
    """The partition key of a board."""
    return f"board-{number:07}"


class Raw:
    """A connection with the engine's settings that does by hand what the engine does, on the engine's own tables."""

    def __init__(self, path: Path, boards: int, seed: int = 1) -> None:
        self._connection = connect(path)
        self._checkpoint = Checkpoint(path)
        self._connection.set_wal_hook(self._checkpoint.committed)
        self._layout = compile_layout(READINGS)
        self._boards = boards
        self._random = Random(seed)

    def close(self) -> None:
        self._connection.close()
        self._checkpoint.close()

    def key(self) -> tuple[str, str]:
        """A key that is there."""
        return board_name(
            self._random.randrange(self._boards)
        ), f"{self._random.randrange(PER_BOARD):03}"

    def fill(self) -> None:
        """All boards with their readings, in large transactions."""
        for first in range(0, self._boards, 5_000):
            last = min(first + 5_000, self._boards)
            keys = (
                (board_name(board), f"{at:03}")
                for board in range(first, last)
                for at in range(PER_BOARD)
            )
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(self._layout.upsert, (self._row(*key) for key in keys))
            self._connection.execute("COMMIT")
            self._checkpoint.restart_if_long(self._connection)

    async def puts(self, groups: int, size: int) -> int:
        """Durable upserts, so many to a transaction."""
        for _ in range(groups):
            self._connection.execute("BEGIN IMMEDIATE")
            for _ in range(size):
                self._connection.execute(self._layout.upsert, self._row(*self.key()))
            self._connection.execute("COMMIT")
            self._checkpoint.restart_if_long(self._connection)
        return groups * size

    async def gets(self, times: int) -> int:
        """Point reads, decoded."""
        for _ in range(times):
            board, at = self.key()
            rows: list[Any] = self._connection.execute(
                self._layout.select, (board.encode(), at.encode())
            ).fetchall()
            unpack(rows[0][0])
        return times

    async def queries(self, times: int) -> int:
        """Ranges of ten, decoded."""
        statement = f"SELECT item FROM {self._layout.rows} WHERE pk = ? ORDER BY sk LIMIT ?"
        for _ in range(times):
            rows: list[Any] = self._connection.execute(
                statement, (self.key()[0].encode(), PER_BOARD)
            ).fetchall()
            for (packed,) in rows:
                unpack(packed)
        return times

    async def updates(self, groups: int, size: int) -> int:
        """Read, change, write back, so many to a transaction."""
        for _ in range(groups):
            self._connection.execute("BEGIN IMMEDIATE")
            for _ in range(size):
                board, at = self.key()
                row = (board.encode(), at.encode())
                found: list[Any] = self._connection.execute(self._layout.select, row).fetchall()
                item = unpack(found[0][0])
                item["sequence"] += 1
                self._connection.execute(self._layout.upsert, (*row, pack(item), _SIZE, None))
            self._connection.execute("COMMIT")
            self._checkpoint.restart_if_long(self._connection)
        return groups * size

    def _row(self, board: str, at: str) -> tuple[bytes, bytes, bytes, int, None]:
        return board.encode(), at.encode(), pack(make_item(board, at)), _SIZE, None
