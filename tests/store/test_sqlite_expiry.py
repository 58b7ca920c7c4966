"""Expiry records.

Neighbouring rows that expire in the same hour share one record, and the sweeper deletes every item
within an hour of its expiry.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.store.api import Delete, Put, Scan, Transaction, TransactionResult
from tally.store.errors import TransactionCancelled
from tally.store.schema import B, GlobalIndex, S, Table
from tally.store.sqlite import SqliteEngine
from tally.store.values import Item
from tests.faults.audit import audit, audit_file
from tests.store.tables import NEW, all_items, embedded

LINES = Table("lines", partition=S("of"), sort=S("at"), ttl="until")
ONCE = Table("once", partition=S("id"), ttl="until")
HOUR = 3_600
DAY = 86_400
NOW = 20_000 * DAY


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with embedded(tmp_path, LINES, ONCE) as opened:
        yield opened


def line(at: int, until: int, of: str = "a") -> Item:
    return {"of": of, "at": f"{at:09}", "until": until}


async def put_together(engine: SqliteEngine, table: Table, items: Iterable[Item]) -> None:
    outcomes = await engine.transact_each([Transaction((Put(table, item),)) for item in items])
    assert all(isinstance(outcome, TransactionResult) for outcome in outcomes)


async def sweep_all(engine: SqliteEngine, table: Table, now: float, bite: int = 1000) -> int:
    swept = 0
    while more := await engine.sweep(table, now, bite):
        assert more <= bite
        swept += more
    return swept


def count_records(engine: SqliteEngine, table: Table) -> int:
    connection = apsw.Connection(str(engine.path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return len(
            connection.execute("SELECT * FROM expiry WHERE name = ?", (table.name,)).fetchall()
        )
    finally:
        connection.close()


async def test_items_of_the_current_hour_expire_as_far_as_they_are_read(
    engine: SqliteEngine,
) -> None:
    for table, items in (
        (LINES, [line(number, NOW + number) for number in range(100)]),
        (ONCE, [{"id": f"{number:03}", "until": NOW + number} for number in range(100)]),
    ):
        await put_together(engine, table, items)
        await engine.sweep_current_hour(table, NOW + 49.5, 20)
        assert len(await all_items(engine, Scan(table))) == 80
        await engine.sweep_current_hour(table, NOW + 49.5, 1000)
        left = sorted(item["until"] - NOW for item in await all_items(engine, Scan(table)))
        assert left == [*range(50, 100)]
        await engine.sweep_current_hour(table, NOW + HOUR, 1000)
        assert len(await all_items(engine, Scan(table))) == 50  # of an hour that has ended
        assert await sweep_all(engine, table, NOW + HOUR) == 50


@pytest.mark.parametrize("is_together", [True, False])
async def test_neighbouring_rows_share_one_record_per_hour(
    engine: SqliteEngine, is_together: bool
) -> None:
    lines = [line(number, NOW + number) for number in range(100)]
    once = [{"id": f"board-1-boot-7-{number:03}", "until": NOW} for number in range(100)]
    for table, items in ((LINES, lines), (ONCE, once)):
        if is_together:
            await put_together(engine, table, items)
        else:
            await asyncio.gather(*(engine.put(Put(table, item)) for item in items))
    assert (count_records(engine, LINES), count_records(engine, ONCE)) == (1, 1)
    audit_file(engine.path.parent, [LINES, ONCE])
    for table in (LINES, ONCE):
        assert await sweep_all(engine, table, NOW + HOUR - 1) == 0
        assert await sweep_all(engine, table, NOW + HOUR) == 100
        assert await all_items(engine, Scan(table)) == []
        assert count_records(engine, table) == 0


@pytest.mark.parametrize(
    ("items", "records"),
    [
        pytest.param(
            [{"id": f"{uuid.UUID(int=number << 100)}", "until": NOW} for number in range(100)],
            100,
            id="far apart",
        ),
        pytest.param(
            [{"id": f"board-1-{number * 7919 % 100:03}", "until": NOW} for number in range(100)],
            1,
            id="in no order",
        ),
        pytest.param(
            [{"id": f"board-{number:02}", "until": NOW + number * HOUR} for number in range(20)],
            20,
            id="an hour apart",
        ),
        pytest.param(
            [
                {"id": f"board-{number:02}", "until": NOW if number else "never"}
                for number in range(20)
            ],
            1,
            id="one does not",
        ),
        pytest.param(
            [{"id": "é" * number, "until": NOW} for number in range(1, 30)], 29, id="other lengths"
        ),
    ],
)
async def test_rows_are_swept_in_any_order_and_at_any_distance(
    engine: SqliteEngine, items: list[Item], records: int
) -> None:
    await put_together(engine, ONCE, items)
    expiring = [item for item in items if item["until"] != "never"]
    assert count_records(engine, ONCE) == records
    audit_file(engine.path.parent, [ONCE])
    assert await sweep_all(engine, ONCE, NOW + 20 * DAY) == len(expiring)
    assert len(await all_items(engine, Scan(ONCE))) == len(items) - len(expiring)


async def test_keys_of_any_bytes_are_covered(engine: SqliteEngine) -> None:
    """Long bounds are shortened, but not where a shortened one would exclude a key."""
    table = Table("bytes", partition=S("of"), sort=B("at"), ttl="until")
    await engine.create_table(table)
    keys = [b"\xff" * 40, b"\xff" * 16 + b"a" * 24, b"a" * 40, b"b" * 17, b"b", b"\x00" * 20]
    for at in keys:
        await engine.put(Put(table, {"of": "a", "at": at, "until": NOW}))
    audit_file(engine.path.parent, [table])
    assert await sweep_all(engine, table, NOW + HOUR) == len(keys)


async def test_each_item_is_deleted_within_an_hour_of_its_expiry(engine: SqliteEngine) -> None:
    await put_together(engine, LINES, [line(number, NOW + number * 600) for number in range(100)])
    for minute in range(0, 1_200, 70):
        now = NOW + minute * 60
        await sweep_all(engine, LINES, now)
        untils = [item["until"] for item in await all_items(engine, Scan(LINES))]
        assert all(until > now - HOUR for until in untils)
        assert len(untils) >= sum(NOW + number * 600 > now for number in range(100))
        audit_file(engine.path.parent, [LINES])
    assert count_records(engine, LINES) == 0


@pytest.mark.parametrize("bite", [1, 7, 25, 1000])
@pytest.mark.parametrize("table", [LINES, ONCE])
async def test_a_sweep_resumes_after_its_limit(
    engine: SqliteEngine, table: Table, bite: int
) -> None:
    def item(number: int, until: int) -> Item:
        return line(number, until) if table is LINES else {"id": f"{number:09}", "until": until}

    await put_together(engine, table, [item(number, NOW) for number in range(50)])
    await engine.put(Put(table, item(25, NOW + DAY)))
    assert await sweep_all(engine, table, NOW + HOUR, bite) == 49
    audit_file(engine.path.parent, [table])
    assert await all_items(engine, Scan(table)) == [item(25, NOW + DAY)]


async def test_a_rewritten_item_uses_its_new_expiry(engine: SqliteEngine) -> None:
    await put_together(engine, LINES, [line(number, NOW) for number in range(10)])
    await engine.put(Put(LINES, line(3, NOW + 2 * HOUR)))
    await engine.put(Put(LINES, line(4, NOW - HOUR)))
    await engine.put(Put(LINES, {"of": "a", "at": f"{5:09}"}))
    await engine.delete(Delete(LINES, {"of": "a", "at": f"{6:09}"}))
    assert await sweep_all(engine, LINES, NOW) == 1
    assert await sweep_all(engine, LINES, NOW + HOUR) == 6
    assert await sweep_all(engine, LINES, NOW + 3 * HOUR) == 1
    assert await all_items(engine, Scan(LINES)) == [{"of": "a", "at": f"{5:09}"}]


async def test_an_expiry_over_five_years_ago_is_ignored(engine: SqliteEngine) -> None:
    await put_together(engine, LINES, [line(number, NOW // 1000) for number in range(10)])
    assert await sweep_all(engine, LINES, NOW + HOUR) == 0
    assert len(await all_items(engine, Scan(LINES))) == 10


async def test_dropping_a_table_deletes_its_expiry_records(engine: SqliteEngine) -> None:
    await put_together(engine, LINES, [line(number, NOW) for number in range(10)])
    await engine.drop_table("lines")
    await engine.create_table(LINES)
    assert count_records(engine, LINES) == 0
    await engine.put(Put(LINES, line(1, NOW + DAY)))
    assert await sweep_all(engine, LINES, NOW + HOUR) == 0


async def test_a_changed_table_is_swept_completely(
    engine: SqliteEngine,
) -> None:
    await put_together(
        engine,
        LINES,
        [{**line(number, NOW), "later": NOW + DAY, "by": "bob"} for number in range(10)],
    )
    grown = Table(
        "lines",
        partition=S("of"),
        sort=S("at"),
        ttl="until",
        indexes=(GlobalIndex("by-by", partition=S("by")),),
    )
    await engine.ensure_table(grown)
    await engine.ensure_table(Table("lines", partition=S("of"), sort=S("at"), ttl="later"))
    assert await sweep_all(engine, LINES, NOW + HOUR) == 0
    assert await sweep_all(engine, LINES, NOW + DAY + HOUR) == 10


async def test_an_index_created_after_the_record_is_swept(tmp_path: Path) -> None:
    grown = Table(
        "lines",
        partition=S("of"),
        sort=S("at"),
        ttl="until",
        indexes=(GlobalIndex("by-of", partition=S("of")),),
    )
    async with embedded(tmp_path, LINES) as engine:
        await put_together(engine, LINES, [line(number, NOW) for number in range(10)])
        await engine.ensure_table(grown)
        assert await sweep_all(engine, grown, NOW + HOUR) == 10
        assert await all_items(engine, Scan(grown, index="by-of")) == []
    assert await audit(tmp_path) == {"lines": []}


async def test_a_rejected_put_among_them_keeps_the_existing_item(engine: SqliteEngine) -> None:
    there = {"id": "board-1-0003", "until": NOW + DAY}
    await engine.put(Put(ONCE, there))
    items = [{"id": f"board-1-{number:04}", "until": NOW} for number in range(10)]
    outcomes = await engine.transact_each(
        [Transaction((Put(ONCE, item, condition=NEW),)) for item in items]
    )
    assert [isinstance(outcome, TransactionCancelled) for outcome in outcomes] == [
        number == 3 for number in range(10)
    ]
    assert count_records(engine, ONCE) == 2
    assert await sweep_all(engine, ONCE, NOW + HOUR) == 9
    assert await all_items(engine, Scan(ONCE)) == [there]


# Half of what is written together is in order, in both directions.
ORDERED = st.builds(
    lambda ats, untils, is_falling: dict(
        sorted(zip(sorted(ats), sorted(untils), strict=True), reverse=is_falling)
    ),
    st.lists(st.integers(0, 40), min_size=12, max_size=12, unique=True),
    st.lists(st.integers(-2, 9), min_size=12, max_size=12),
    st.booleans(),
)
STEPS: st.SearchStrategy[tuple[str, dict[int, int]]] = st.one_of(
    st.tuples(
        st.just("together"),
        st.dictionaries(st.integers(0, 40), st.integers(-2, 9), min_size=4, max_size=20),
    ),
    st.tuples(st.just("together"), ORDERED),
    st.tuples(
        st.just("alone"),
        st.dictionaries(st.integers(0, 40), st.integers(-2, 9), min_size=1, max_size=1),
    ),
    st.tuples(st.just("sweep"), st.just({})),
)


@given(steps=st.lists(STEPS, max_size=8), bite=st.integers(1, 9))
async def test_no_item_is_deleted_early_or_too_late(
    steps: list[tuple[str, Mapping[int, int]]], bite: int
) -> None:
    """Each step takes a twelfth of a day; expiry is given in twelfths."""
    twelfth, present = DAY // 12, dict[int, int]()
    with TemporaryDirectory() as directory:
        async with embedded(Path(directory), LINES) as engine:
            for moment, (kind, untils) in enumerate(steps):
                items = [line(at, NOW + until * twelfth) for at, until in untils.items()]
                if kind == "sweep":
                    await sweep_all(engine, LINES, NOW + moment * twelfth, bite)
                    left = {int(item["at"]) for item in await all_items(engine, Scan(LINES))}
                    assert (
                        {at for at, until in present.items() if until > moment}
                        <= left
                        <= set(present)
                    )
                    present = {at: present[at] for at in left}
                elif kind == "alone":
                    await engine.put(Put(LINES, items[0]))
                else:
                    await put_together(engine, LINES, items)
                present |= untils
                audit_file(engine.path.parent, [LINES])
            assert await sweep_all(engine, LINES, NOW + 2 * DAY, bite) == len(present)
            assert await all_items(engine, Scan(LINES)) == []
            assert count_records(engine, LINES) == 0
