"""A second process on a data directory.

    python -m tests.faults.peer DIRECTORY

It runs the commands on its standard input, one JSON object per line, and prints one line each:

- `put ITEM`, `get KEY`, `team NAME` (through the index by-team), `page` (of all items)
- `many PREFIX COUNT CONCURRENCY`
- `ensure first`, `ensure later`: declarations of the table
- `lock` begins a write transaction, writes, and leaves it open
- `snapshot` begins a read transaction and leaves it open
- `rollback` ends the open transaction
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tally.store.api import Get, Put, Query, Scan
from tally.store.errors import StoreError
from tally.store.expressions import F
from tally.store.schema import KEYS_ONLY, GlobalIndex, N, S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tests.faults.child_process import say

BY_TEAM = GlobalIndex("by-team", partition=S("team"), sort=N("number"))
PLAYERS = Table("players", partition=S("id"))
PLAYERS_LATER = Table(
    "players",
    partition=S("id"),
    indexes=(BY_TEAM, GlobalIndex("by-number", N("number"), projection=KEYS_ONLY)),
)


def player(name: str, number: int) -> dict[str, Any]:
    return {"id": f"{name}-{number}", "team": f"team-{number % 3}", "number": number}


class Peer:
    """A store, and a second connection to its file that holds locks."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._holder = apsw.Connection(str(engine.path))

    async def do(self, command: str, argument: str) -> Any:
        """Execute a command."""
        value: Any = msgspec.json.decode(argument) if argument.startswith("{") else argument.split()
        if command == "put":
            await self._engine.put(Put(PLAYERS, value))
        elif command == "get":
            return (await self._engine.get(Get(PLAYERS, value))).item
        elif command == "team":
            return (
                await self._engine.query(
                    Query(PLAYERS_LATER, F("team") == value[0], index="by-team")
                )
            ).items
        elif command == "page":
            return (await self._engine.scan(Scan(PLAYERS))).items
        elif command == "many":
            await put_many(self._engine, value[0], int(value[1]), int(value[2]))
        elif command == "ensure":
            await self._engine.ensure_table(PLAYERS_LATER if value[0] == "later" else PLAYERS)
        else:
            self._hold(command)
        return "done"

    def _hold(self, command: str) -> None:
        if command == "lock":
            self._holder.execute("BEGIN IMMEDIATE")
            self._holder.execute("INSERT INTO tokens VALUES ('held', x'00', 0)")
        elif command == "snapshot":
            self._holder.execute("BEGIN")
            self._holder.execute("SELECT count(*) FROM tables").fetchall()
        else:
            self._holder.execute("ROLLBACK")


async def put_many(engine: SqliteEngine, name: str, count: int, concurrency: int) -> None:
    """Put players concurrently without pauses."""
    numbers = iter(range(count))

    async def write() -> None:
        for number in numbers:
            await engine.put(Put(PLAYERS, player(name, number)))

    await asyncio.gather(*(write() for _ in range(concurrency)))


async def main(directory: Path) -> None:
    async with open_sqlite(directory) as engine:
        peer = Peer(engine)
        say("open")
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            command, _, argument = line.partition(" ")
            try:
                answer = await peer.do(command, argument)
            except StoreError as error:
                answer = f"{type(error).__name__}: {error}"
            say(msgspec.json.encode(answer).decode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
