"""Streams: every change is recorded with its images, in order, and can be read from a position."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tally.store.access import GetRecords, access, access_patterns
from tally.store.api import (
    BatchPut,
    BatchWrite,
    Check,
    Delete,
    Engine,
    Put,
    Transaction,
    TransactionBatch,
    Update,
)
from tally.store.changes import START, Change
from tally.store.errors import (
    AccessViolation,
    ConditionFailed,
    PositionExpired,
    PositionUnknown,
    StoreError,
    StreamNotFound,
    TransactionCancelled,
)
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import StreamView, Table
from tally.store.store import Store
from tests.store.emulators import engines, open_engine
from tests.store.streams import (
    BOTH,
    NUMBERED_STREAM,
    VIEWS,
    changes_until,
    next_changes,
    replay,
    streamed,
)
from tests.store.tables import PLAIN, fresh

NEW = not_exists("id")
VIEW_TABLES = {view: streamed(view, f"streamed-{view.lower()}") for view in VIEWS}
NUMBERED_VIEWS = {
    view: replace(NUMBERED_STREAM, name=f"numbered-{view.lower()}", stream=view) for view in VIEWS
}
TABLES = (BOTH, NUMBERED_STREAM, PLAIN, *VIEW_TABLES.values(), *NUMBERED_VIEWS.values())


# ministack has no operations on streams.
@pytest.fixture(scope="session", params=engines("local", "dynoxide", "served"))
async def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    folder = tmp_path_factory.mktemp("streams")
    async with open_engine(request.param, folder, TABLES) as engine:
        yield engine


class Recorder:
    """Records the changes of a table from now on."""

    def __init__(self, engine: Engine, table: Table, position: str) -> None:
        self._engine = engine
        self._table = table
        self.position = position

    async def changes(self) -> list[Change]:
        """The changes since the last call: up to an item that is written for this purpose."""
        end = {"id": fresh("end-"), "at": "end" if self._table.sort == BOTH.sort else 0}
        await self._engine.put(Put(self._table, end))
        *found, last = await changes_until(self._engine, self._table, end, self.position)
        self.position = last.position
        return found


async def recorder(engine: Engine, table: Table = BOTH) -> Recorder:
    return Recorder(engine, table, await engine.stream_position(table))


def kinds(changes: list[Change]) -> list[str]:
    return [change.kind for change in changes]


def images(change: Change) -> tuple[str, Any, Any]:
    return change.kind, change.old, change.new


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("tables", [VIEW_TABLES, NUMBERED_VIEWS], ids=["strings", "numbers"])
async def test_a_record_has_the_key_and_the_images_of_the_view(
    engine: Engine, view: StreamView, tables: dict[StreamView, Table]
) -> None:
    table = tables[view]
    key: dict[str, Any] = {"id": fresh(), "at": "1" if tables is VIEW_TABLES else 1}
    first, second = {**key, "n": 1}, {**key, "n": 2, "tags": frozenset({"a", "b"})}
    watched = await recorder(engine, table)
    await engine.put(Put(table, first))
    await engine.put(Put(table, second))
    await engine.delete(Delete(table, key))
    changes = await watched.changes()
    assert [change.key for change in changes] == [key] * 3
    has_old, has_new = "OLD" in view, "NEW" in view
    assert [images(change) for change in changes] == [
        ("INSERT", None, first if has_new else None),
        ("MODIFY", first if has_old else None, second if has_new else None),
        ("REMOVE", second if has_old else None, None),
    ]
    assert not any(change.is_expiry for change in changes)


Writing = Callable[[Engine, dict[str, Any]], Awaitable[object]]
IDENTICAL: dict[str, Writing] = {
    "identical put": lambda engine, item: engine.put(Put(BOTH, item)),
    "identical put in another order": lambda engine, item: engine.put(
        Put(BOTH, dict(reversed(item.items())))
    ),
    "identical conditional put": lambda engine, item: engine.put(
        Put(BOTH, item, condition=exists("id"))
    ),
    "update to the same value": lambda engine, item: engine.update(
        Update(BOTH, BOTH.primary_key(item), (F("n").set(1),))
    ),
    "delete of nothing": lambda engine, item: engine.delete(
        Delete(BOTH, {"id": item["id"], "at": "nothing"})
    ),
    "removal from nothing": lambda engine, item: engine.update(
        Update(BOTH, {"id": item["id"], "at": "nothing"}, (F("n").remove(),))
    ),
    "identical batch write": lambda engine, item: engine.batch_write(BatchWrite(BOTH, (item,))),
    "identical transaction": lambda engine, item: engine.transact(Transaction((Put(BOTH, item),))),
    "identical bulk put": lambda engine, item: engine.transact_each(
        [Transaction((Put(BOTH, item),))]
    ),
}


@pytest.mark.parametrize("write", IDENTICAL.values(), ids=[*IDENTICAL])
async def test_a_write_that_changes_nothing_is_not_recorded(engine: Engine, write: Writing) -> None:
    item = {"id": fresh(), "at": "1", "n": 1, "map": {"x": 1, "y": [True, None]}}
    await engine.put(Put(BOTH, item))
    watched = await recorder(engine)
    await write(engine, item)
    assert await watched.changes() == []


async def test_a_value_of_another_type_is_a_change(engine: Engine) -> None:
    """True equals 1 in Python, but not in the store."""
    key = {"id": fresh(), "at": "1"}
    await engine.put(Put(BOTH, {**key, "n": 1}))
    watched = await recorder(engine)
    await engine.put(Put(BOTH, {**key, "n": True}))
    [change] = await watched.changes()
    assert change.old is not None
    assert change.new is not None
    assert (type(change.old["n"]), type(change.new["n"])) == (int, bool)


async def test_updates_are_recorded_with_the_whole_item(engine: Engine) -> None:
    key = {"id": fresh(), "at": "1"}
    watched = await recorder(engine)
    await engine.update(Update(BOTH, key, (F("n").set(1),)))
    await engine.update(Update(BOTH, key, (F("n").add(2), F("m").set("x"))))
    assert [images(change) for change in await watched.changes()] == [
        ("INSERT", None, {**key, "n": 1}),
        ("MODIFY", {**key, "n": 1}, {**key, "n": 3, "m": "x"}),
    ]


async def test_a_rejected_write_is_not_recorded(engine: Engine) -> None:
    item = {"id": fresh(), "at": "1", "n": 1}
    await engine.put(Put(BOTH, item))
    watched = await recorder(engine)
    with pytest.raises(ConditionFailed):
        await engine.put(Put(BOTH, {**item, "n": 2}, condition=NEW))
    with pytest.raises(TransactionCancelled):
        await engine.transact(
            Transaction(
                (
                    Put(BOTH, {"id": fresh(), "at": "1"}),
                    Check(BOTH, BOTH.primary_key(item), NEW),
                )
            )
        )
    assert await watched.changes() == []


async def test_a_batch_and_a_transaction_are_recorded_per_item(engine: Engine) -> None:
    items = [{"id": fresh(), "at": str(number), "n": number} for number in range(4)]
    watched = await recorder(engine)
    await engine.batch_write(BatchWrite(BOTH, tuple(items)))
    deletes = tuple(BOTH.primary_key(item) for item in items[:2])
    await engine.batch_write(BatchWrite(BOTH, deletes=deletes))
    await engine.transact(
        Transaction(
            (
                Update(BOTH, BOTH.primary_key(items[2]), (F("n").set(20),)),
                Delete(BOTH, BOTH.primary_key(items[3])),
                Put(PLAIN, {"id": fresh()}),
            ),
            token=fresh()[:36],
        )
    )
    changes = await watched.changes()
    assert sorted(kinds(changes)) == ["INSERT"] * 4 + ["MODIFY"] + ["REMOVE"] * 3
    assert [*replay(BOTH, changes).values()] == [{**items[2], "n": 20}]


async def test_a_repeated_transaction_is_recorded_once(engine: Engine) -> None:
    transaction = Transaction((Put(BOTH, {"id": fresh(), "at": "1"}),), token=fresh()[:36])
    watched = await recorder(engine)
    await engine.transact(transaction)
    await engine.transact(transaction)
    assert kinds(await watched.changes()) == ["INSERT"]


@pytest.mark.parametrize("condition", [None, NEW], ids=["put", "put new"])
async def test_a_bulk_batch_records_what_it_wrote(engine: Engine, condition: Any) -> None:
    """Items that exist are replaced, or reject their transaction, which then records nothing."""
    owner, receipts = fresh(), [{"id": fresh()} for _ in range(20)]
    items = [{"id": owner, "at": f"{number:03}", "n": number} for number in range(20)]
    existing = {**items[3], "n": -3}
    await engine.put(Put(BOTH, existing))
    await engine.put(Put(PLAIN, receipts[5]))
    watched = await recorder(engine)
    batch = TransactionBatch(
        BatchPut(PLAIN, receipts, condition=NEW), BatchPut(BOTH, items, {"kind": "x"}, condition)
    )
    outcomes = await engine.transact_each(batch)
    rejected = {
        number for number, outcome in enumerate(outcomes) if isinstance(outcome, StoreError)
    }
    assert rejected == ({5} if condition is None else {3, 5})
    changes = await watched.changes()
    expected = [
        (
            "MODIFY" if number == 3 else "INSERT",
            existing if number == 3 else None,
            {**item, "kind": "x"},
        )
        for number, item in enumerate(items)
        if number not in rejected
    ]
    assert sorted(map(images, changes), key=lambda image: image[2]["at"]) == expected


async def test_changes_of_a_key_come_in_order(engine: Engine) -> None:
    keys = [{"id": fresh(), "at": "1"} for _ in range(4)]
    watched = await recorder(engine)
    for number in range(5):
        await asyncio.gather(
            *(engine.update(Update(BOTH, key, (F("n").set(number),))) for key in keys)
        )
    changes = await watched.changes()
    for key in keys:
        found = [change.new["n"] for change in changes if change.key == key and change.new]
        assert found == [0, 1, 2, 3, 4]


async def test_reading_continues_after_every_position(engine: Engine) -> None:
    owner = fresh()
    position = await engine.stream_position(BOTH)
    await engine.put(Put(BOTH, {"id": owner, "at": "0"}))
    items = [{"id": owner, "at": f"1{number}", "n": number} for number in range(5)]
    await engine.transact_each(TransactionBatch(BatchPut(BOTH, items)))
    await engine.delete(Delete(BOTH, {"id": owner, "at": "0"}))
    changes = await next_changes(engine, BOTH, 7, position)
    assert len({change.position for change in changes}) == 7
    for number, change in enumerate(changes[:-1]):
        rest = await next_changes(engine, BOTH, 6 - number, change.position)
        assert [(one.kind, one.key) for one in rest] == [
            (one.kind, one.key) for one in changes[number + 1 :]
        ]


async def test_start_is_the_oldest_change(engine: Engine) -> None:
    await engine.put(Put(BOTH, {"id": fresh(), "at": "1"}))
    [first] = await next_changes(engine, BOTH, 1, START)
    assert first.kind == "INSERT"


async def test_a_table_without_a_stream_has_no_changes(engine: Engine) -> None:
    with pytest.raises(StreamNotFound, match="plain has no stream"):
        await next_changes(engine, PLAIN, 1)
    with pytest.raises(StreamNotFound, match="plain has no stream"):
        await engine.stream_position(PLAIN)


@pytest.mark.parametrize("position", ["", "x", "0123456789ab.1.1.0", "é", "a" * 5_000])
async def test_a_foreign_position_is_unknown(engine: Engine, position: str) -> None:
    with pytest.raises(PositionUnknown, match="streamed: the position is unknown"):
        await next_changes(engine, BOTH, 1, position)


async def test_a_position_that_was_changed_has_no_other_effect(engine: Engine) -> None:
    """Clients send positions back as `Last-Event-ID`, as they like."""
    partition = fresh()
    await engine.put(Put(BOTH, {"id": partition, "at": "1"}))
    await engine.put(Put(BOTH, {"id": fresh(), "at": "1"}))
    [*_, change] = (await engine.read_changes(BOTH, partition, after=START, limit=10)).changes
    cut = [change.position[:length] for length in range(len(change.position))]
    longer = [change.position + end for end in ("A", "0", "~", "A" * 40, "9" * 40)]
    for position in (*cut, *longer, change.position.replace("a", "b"), change.position.upper()):
        try:
            page = await engine.read_changes(BOTH, partition, after=position, limit=10)
        except (PositionUnknown, PositionExpired):
            continue
        assert {found.key["id"] for found in page.changes} <= {partition}


async def test_a_position_of_another_table_is_unknown(engine: Engine) -> None:
    position = await engine.stream_position(NUMBERED_STREAM)
    with pytest.raises(PositionUnknown):
        await next_changes(engine, BOTH, 1, position)


async def test_a_stream_can_be_turned_on_and_off(engine: Engine) -> None:
    """Another view is another stream: its changes start anew, and old positions are unknown."""
    table = streamed("KEYS_ONLY", fresh("switched-")[:30])
    await engine.ensure_table(replace(table, stream=None))
    assert (await engine.describe_table(table.name)).stream is None
    await engine.ensure_table(table)
    assert (await engine.describe_table(table.name)).stream == "KEYS_ONLY"
    await engine.put(Put(table, {"id": "a", "at": "1", "n": 1}))
    [old] = await next_changes(engine, table, 1)
    other: Table = replace(table, stream="NEW_IMAGE")
    await engine.ensure_table(other)
    await engine.put(Put(table, {"id": "b", "at": "1", "n": 2}))
    [change] = await next_changes(engine, other, 1)
    assert images(change) == ("INSERT", None, {"id": "b", "at": "1", "n": 2})
    with pytest.raises((PositionUnknown, PositionExpired)):
        await next_changes(engine, other, 1, old.position)
    await engine.ensure_table(replace(table, stream=None))
    with pytest.raises(StreamNotFound):
        await next_changes(engine, other, 1)


def test_the_stream_is_one_of_dynamodbs_views() -> None:
    with pytest.raises(StoreError, match="stream must be None or one of KEYS_ONLY, NEW_IMAGE"):
        streamed("ALL")  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Recordings:
    """A repository that follows a table."""

    store: Store

    @access("Follow items", GetRecords(), table=BOTH)
    async def changes(self, after: str | None) -> AsyncGenerator[Change, None]:
        async for change in self.store.changes(BOTH, after=after):
            yield change

    @access("Find the end", GetRecords(), table=BOTH)
    async def end(self) -> str:
        return await self.store.stream_position(BOTH)

    @access("Follow another table", GetRecords(), table=BOTH)
    async def other(self) -> AsyncGenerator[Change, None]:
        async for change in self.store.changes(NUMBERED_STREAM):
            yield change


async def test_a_repository_follows_the_stream_that_it_declares(engine: Engine) -> None:
    store = Store(engine)
    recordings = Recordings(store)
    position = await recordings.end()
    await engine.put(Put(BOTH, {"id": fresh(), "at": "1"}))
    async with aclosing(recordings.changes(position)) as changes:
        assert (await anext(changes)).kind == "INSERT"
    pattern = access_patterns(Recordings)["changes"]
    meter = store.meters.of(pattern).operations["GetRecords", None]
    assert (meter.calls, meter.items) == (1, 1)
    with pytest.raises(AccessViolation, match="declares table streamed, not numbered-stream"):
        await anext(recordings.other())


async def test_a_stream_is_read_within_an_access_pattern_only(engine: Engine) -> None:
    with pytest.raises(AccessViolation, match="GetRecords outside of an access pattern"):
        await anext(Store(engine).changes(BOTH))


def test_a_pattern_cannot_follow_a_table_without_a_stream() -> None:
    with pytest.raises(AccessViolation, match="table plain has no stream"):
        access("Follow", GetRecords(), table=PLAIN)
