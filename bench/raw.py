"""The same SQL statements on the same file, without the engine: the lower limit of its cost."""

import time
from itertools import count as counter
from pathlib import Path
from random import Random
from typing import Any

from tally.store.schema import S, Table
from tally.store.sqlite.checkpoint import Checkpoint
from tally.store.sqlite.codec import pack, unpack
from tally.store.sqlite.files import connect
from tally.store.sqlite.layout import compile_layout
from tally.store.sqlite.shapes import Shapes

READINGS = Table("bench-readings", S("board"), S("at"))
READINGS_PER_BOARD = 10
_ITEM_BYTES = 260
_sequence = counter()


def make_item(board: str, at: str) -> dict[str, Any]:
    """Create an item like a board's reading.

    Each differs, because SQLite writes nothing for an unchanged row.
    """
    return {
        "board": board,
        "at": at,
        "boot": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
        "sequence": next(_sequence),
        "received": time.time_ns(),
        "firmware": "1.0.16",
        "sensors": {"humidity": 45, "moisture": 62, "pressure": 1013},
        "ok": True,
        "note": "n" * 60,
    }


def board_name(number: int) -> str:
    """Return the partition key of a board."""
    return f"board-{number:07}"


class Raw:
    """Executes the engine's statements directly, with its settings, on its tables.

    Rows are whole items as maps.
    """

    def __init__(self, path: Path, boards: int, seed: int = 1) -> None:
        self._connection = connect(path)
        self._checkpoint = Checkpoint(path)
        self._connection.set_wal_hook(self._checkpoint.on_commit)
        self._layout = compile_layout(READINGS, Shapes())
        self._upsert = self._layout.upsert_rows(1)
        self._boards = boards
        self._random = Random(seed)

    def close(self) -> None:
        self._connection.close()
        self._checkpoint.close()

    def key(self) -> tuple[str, str]:
        """Return a random existing key."""
        return board_name(
            self._random.randrange(self._boards)
        ), f"{self._random.randrange(READINGS_PER_BOARD):03}"

    def fill(self) -> None:
        """Insert all boards with their readings in large transactions."""
        for first in range(0, self._boards, 5_000):
            last = min(first + 5_000, self._boards)
            keys = (
                (board_name(board), f"{at:03}")
                for board in range(first, last)
                for at in range(READINGS_PER_BOARD)
            )
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(self._upsert, (self._row(*key) for key in keys))
            self._connection.execute("COMMIT")
            self._checkpoint.restart_if_long(self._connection)

    async def puts(self, groups: int, size: int) -> int:
        """Run durable upserts, `size` per transaction."""
        for _ in range(groups):
            self._connection.execute("BEGIN IMMEDIATE")
            for _ in range(size):
                self._connection.execute(self._upsert, self._row(*self.key()))
            self._connection.execute("COMMIT")
            self._checkpoint.restart_if_long(self._connection)
        return groups * size

    async def gets(self, count: int) -> int:
        """Run point reads and decode the items."""
        for _ in range(count):
            board, at = self.key()
            rows: list[Any] = self._connection.execute(
                self._layout.select, (board.encode(), at.encode())
            ).fetchall()
            unpack(rows[0][0])
        return count

    async def queries(self, count: int) -> int:
        """Run range reads of ten items and decode them."""
        statement = f"SELECT item FROM {self._layout.rows} WHERE pk = ? ORDER BY sk LIMIT ?"
        for _ in range(count):
            rows: list[Any] = self._connection.execute(
                statement, (self.key()[0].encode(), READINGS_PER_BOARD)
            ).fetchall()
            for (packed,) in rows:
                unpack(packed)
        return count

    async def updates(self, groups: int, size: int) -> int:
        """Read, change and write back items, `size` per transaction."""
        for _ in range(groups):
            self._connection.execute("BEGIN IMMEDIATE")
            for _ in range(size):
                board, at = self.key()
                row = (board.encode(), at.encode())
                found: list[Any] = self._connection.execute(self._layout.select, row).fetchall()
                item = unpack(found[0][0])
                item["sequence"] += 1
                self._connection.execute(self._upsert, (*row, pack(item), _ITEM_BYTES))
            self._connection.execute("COMMIT")
            self._checkpoint.restart_if_long(self._connection)
        return groups * size

    def _row(self, board: str, at: str) -> tuple[bytes, bytes, bytes, int]:
        return board.encode(), at.encode(), pack(make_item(board, at)), _ITEM_BYTES
