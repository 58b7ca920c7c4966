"""Two processes share a data directory.

Each sees acknowledged writes of the other and never blocks it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tally.store.api import Get, Put, Query, Scan, TransactionGet, Update
from tally.store.errors import InvalidKey, TableNotFound, UnknownIndex
from tally.store.expressions import F
from tally.store.schema import S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tests.faults.audit import audit, audit_table
from tests.faults.child_process import Child, started
from tests.faults.peer import PLAYERS, PLAYERS_LATER, player, put_many
from tests.store.tables import all_items


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path) as opened:
        await opened.create_table(PLAYERS)
        yield opened


@pytest.fixture
async def peer(engine: SqliteEngine) -> AsyncIterator[Child]:
    """The other process on the same directory."""
    async with started("peer", str(engine.path.parent)) as child:
        await child.expect("open")
        yield child


async def request(peer: Child, command: str, argument: Any = "") -> Any:
    """Send a command to the other process and return its response."""
    encoded = argument if isinstance(argument, str) else msgspec.json.encode(argument).decode()
    return msgspec.json.decode(await peer.request(f"{command} {encoded}"))


async def test_each_process_sees_acknowledged_writes_of_the_other(
    engine: SqliteEngine, peer: Child
) -> None:
    """A hundred items alternately, each read by the other process after its acknowledgement."""
    for number in range(50):
        mine, theirs = player("mine", number), player("theirs", number)
        await engine.put(Put(PLAYERS, mine))
        assert await request(peer, "get", {"id": mine["id"]}) == mine
        assert await request(peer, "put", theirs) == "done"
        assert (await engine.get(Get(PLAYERS, {"id": theirs["id"]}))).item == theirs
        assert (await engine.scan(Scan(PLAYERS))).scanned == 2 * (number + 1)


async def test_a_condition_sees_writes_of_the_other_process(
    engine: SqliteEngine, peer: Child
) -> None:
    """A version that both increment alternately never fails its condition."""
    await engine.put(Put(PLAYERS, {"id": "shared", "version": 0}))
    for version in range(0, 20, 2):
        await engine.update(
            Update(PLAYERS, {"id": "shared"}, (F("version").add(1),), F("version") == version)
        )
        assert await request(peer, "get", {"id": "shared"}) == {
            "id": "shared",
            "version": version + 1,
        }
        assert await request(peer, "put", {"id": "shared", "version": version + 2}) == "done"


async def put_until(
    stopped: asyncio.Event, engine: SqliteEngine, name: str, concurrency: int
) -> int:
    """Put players concurrently until the event is set; return their number."""
    numbers = count()

    async def write() -> None:
        while not stopped.is_set():
            await engine.put(Put(PLAYERS, player(name, next(numbers))))

    await asyncio.gather(*(write() for _ in range(concurrency)))
    return next(numbers)


async def test_an_index_created_by_one_process_is_maintained_by_both(
    engine: SqliteEngine, peer: Child, tmp_path: Path
) -> None:
    """The other process writes during the backfill, with a declaration without the index."""
    await put_many(engine, "before", 300, 30)
    stopped = asyncio.Event()
    writing = asyncio.ensure_future(put_until(stopped, engine, "during", 30))
    await asyncio.sleep(0)
    assert await request(peer, "ensure", "later") == "done"
    stopped.set()
    written = await writing
    assert written > 30
    await put_many(engine, "mine", 50, 10)
    assert await request(peer, "many", "theirs 50 10") == "done"
    assert len(await all_items(engine, Scan(PLAYERS))) == 300 + written + 50 + 50
    await audit_table(engine, PLAYERS_LATER)
    for team in ("team-0", "team-1", "team-2"):
        through_mine = await all_items(
            engine, Query(PLAYERS_LATER, F("team") == team, index="by-team")
        )
        assert sorted(
            await request(peer, "team", team), key=lambda item: str(item["id"])
        ) == sorted(through_mine, key=lambda item: str(item["id"]))
    await engine.close()
    await audit(tmp_path)


async def test_an_index_of_another_process_is_enforced(engine: SqliteEngine, peer: Child) -> None:
    """A value of the wrong type for the new index key is rejected."""
    await engine.put(Put(PLAYERS, {"id": "older", "team": 5, "number": "five"}))
    assert await request(peer, "ensure", "later") == "done"
    with pytest.raises(InvalidKey, match="team is of type S, not N"):
        await engine.put(Put(PLAYERS, {"id": "newer", "team": 5, "number": 5}))
    assert (
        await engine.query(Query(PLAYERS_LATER, F("team") == "red", index="by-team"))
    ).items == []
    assert (await engine.get(Get(PLAYERS, {"id": "older"}))).item == {
        "id": "older",
        "team": 5,
        "number": "five",
    }
    await engine.put(Put(PLAYERS, {"id": "older", "team": "red", "number": 5}))
    assert [item["id"] for item in await request(peer, "team", "red")] == ["older"]


async def test_an_index_dropped_by_the_other_is_unknown_here(
    engine: SqliteEngine, peer: Child
) -> None:
    await engine.ensure_table(PLAYERS_LATER)
    await engine.put(Put(PLAYERS, player("mine", 1)))
    assert await request(peer, "ensure", "first") == "done"
    with pytest.raises(UnknownIndex, match="by-team"):
        await engine.query(Query(PLAYERS_LATER, F("team") == "team-1", index="by-team"))
    await engine.put(Put(PLAYERS_LATER, player("mine", 2)))
    await audit_table(engine, PLAYERS)


async def test_a_table_recreated_by_another_store_is_used_as_stored(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    """First it is missing; then it has another key, and the old one is rejected."""
    await engine.put(Put(PLAYERS, player("mine", 1)))
    other_players = Table("players", partition=S("name"))
    async with open_sqlite(tmp_path) as other:
        await other.drop_table("players")
        for call in (
            engine.get(Get(PLAYERS, {"id": "mine-1"})),
            engine.scan(Scan(PLAYERS)),
            engine.transact_get(TransactionGet((Get(PLAYERS, {"id": "mine-1"}),))),
            engine.put(Put(PLAYERS, player("mine", 2))),
        ):
            with pytest.raises(TableNotFound, match="players"):
                await call
        await other.create_table(other_players)
        with pytest.raises(InvalidKey, match="name is missing"):
            await engine.put(Put(PLAYERS, player("mine", 3)))
        await engine.put(Put(other_players, {"name": "ann"}))
        assert (await other.scan(Scan(other_players))).items == [{"name": "ann"}]
    await engine.close()
    await audit(tmp_path)


def is_locked(engine: SqliteEngine) -> bool:
    """Whether another connection holds the write lock."""
    connection = apsw.Connection(str(engine.path))
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except apsw.BusyError:
        return True
    finally:
        connection.close()
    return False


async def test_a_killed_process_does_not_keep_the_lock(engine: SqliteEngine, peer: Child) -> None:
    """Waiting writes continue, and its unfinished transaction is rolled back."""
    assert await request(peer, "lock") == "done"
    assert is_locked(engine)
    waiting = [
        asyncio.ensure_future(engine.put(Put(PLAYERS, player("mine", number))))
        for number in range(20)
    ]
    await asyncio.sleep(0)
    peer.kill()
    await asyncio.gather(*waiting)
    assert (await engine.scan(Scan(PLAYERS))).scanned == 20
    assert engine._connection.execute("SELECT * FROM tokens").fetchall() == []


async def test_readers_never_wait_for_a_writer(engine: SqliteEngine, peer: Child) -> None:
    """Reads succeed while another process is suspended inside a write transaction."""
    first = player("mine", 1)
    await engine.ensure_table(PLAYERS_LATER)
    await engine.put(Put(PLAYERS, first))
    assert await request(peer, "lock") == "done"
    peer.suspend()
    assert is_locked(engine)
    waiting = asyncio.ensure_future(engine.put(Put(PLAYERS, player("mine", 2))))
    await asyncio.sleep(0)
    assert (await engine.get(Get(PLAYERS, {"id": first["id"]}))).item == first
    assert (await engine.scan(Scan(PLAYERS))).items == [first]
    assert (
        await engine.query(Query(PLAYERS_LATER, F("team") == "team-1", index="by-team"))
    ).items == [first]
    assert (
        await engine.transact_get(TransactionGet((Get(PLAYERS, {"id": first["id"]}),)))
    ).items == [first]
    assert (await engine.describe_table("players")).name == "players"
    async with open_sqlite(engine.path.parent) as third:
        assert (await third.scan(Scan(PLAYERS))).items == [first]
    assert not waiting.done()
    assert is_locked(engine)
    peer.kill()
    await waiting


@pytest.mark.soak
async def test_two_busy_writers_both_finish(engine: SqliteEngine, peer: Child) -> None:
    """Neither starves: a writer that waits ten seconds for the lock would fail."""
    theirs = asyncio.ensure_future(request(peer, "many", "theirs 2000 20"))
    await put_many(engine, "mine", 2_000, 20)
    assert await theirs == "done"
    assert len(await all_items(engine, Scan(PLAYERS))) == 4_000


async def test_many_processes_may_open_a_new_directory_concurrently(tmp_path: Path) -> None:
    """Eight processes open a directory that does not exist yet, and share one store."""
    directory = tmp_path / "new"
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(started("peer", str(directory))) for _ in range(8)]
        for peer in peers:
            await peer.expect("open")
        for peer in peers:
            assert await request(peer, "ensure", "first") == "done"
        for number, peer in enumerate(peers):
            assert await request(peer, "put", player("theirs", number)) == "done"
            assert len(await request(peer, "page")) == number + 1
    await audit(directory)
