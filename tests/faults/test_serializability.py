"""Concurrent operations are linearizable or serializable in real time.

Many tasks contend for a counter, a lock and transfers between accounts: in one process, in two
stores of one process, and in two processes. Small random programs on two items are checked too.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.store.api import Delete, Engine, Get, Put, Scan, Transaction, TransactionGet, Update
from tally.store.errors import ConditionFailed, TransactionCancelled
from tally.store.expressions import F, not_exists
from tally.store.sqlite import open_sqlite
from tests.faults.audit import audit
from tests.faults.child_process import Child, started
from tests.faults.contention import (
    ACCOUNTS,
    ITEMS,
    START_BALANCE,
    Record,
    contend,
    counter_specification,
    create_accounts,
    lock_specification,
    timed,
)
from tests.faults.linearizability import Call, linearize
from tests.faults.serializability import contradiction

TASKS, CALLS = 64, 16
SPECIFICATIONS = {
    "counter": (counter_specification, ("value",)),
    "lock": (lock_specification, ("owner", "until")),
}


def check_verdict(workload: str, record: Record, items: list[dict[str, Any]]) -> None:
    """Check the history, with the final contents as its last read."""
    found = {item["id"]: item for item in items}
    if workload == "accounts":
        assert contradiction(record.transactions) is None
        assert set(record.sums) == {START_BALANCE * len(ACCOUNTS)}
        assert sum(found[key]["balance"] for key in ACCOUNTS) == START_BALANCE * len(ACCOUNTS)
        newest = {
            key: max(
                transaction.written_versions.get(key, 0) for transaction in record.transactions
            )
            for key in ACCOUNTS
        }
        assert {key: found[key]["version"] for key in ACCOUNTS} == newest
        assert sum(bool(transaction.written_versions) for transaction in record.transactions) > 20
        return
    specification, names = SPECIFICATIONS[workload]
    left = tuple(found[workload][name] for name in names) if workload in found else None
    end = max(call.returned for call in record.calls)
    last = Call(
        end + 1,
        end + 2,
        ("read",),
        left[0] if left and workload == "counter" else left,
        read_only=True,
    )
    order = linearize([*hashable(record.calls), last], None, specification)
    assert order is not None, f"no order explains these {len(record.calls)} calls"
    assert sum(not call.read_only for call in order) > 10, (
        "nothing happened that could have gone wrong"
    )


def hashable(calls: list[Call]) -> list[Call]:
    """Convert JSON's lists to tuples."""
    return [
        msgspec.structs.replace(call, operation=_tuple(call.operation), result=_tuple(call.result))
        for call in calls
    ]


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


async def contents(engine: Engine) -> list[dict[str, Any]]:
    return (await engine.scan(Scan(ITEMS))).items


@pytest.mark.soak
@pytest.mark.parametrize("stores", [1, 2], ids=["one store", "two stores"])
@pytest.mark.parametrize("workload", ["counter", "lock", "accounts"])
async def test_the_history_of_many_concurrent_tasks_is_linearizable(
    tmp_path: Path, workload: str, stores: int
) -> None:
    directory = tmp_path / uuid.uuid4().hex
    async with open_sqlite(directory) as first, open_sqlite(directory) as second:
        await create_accounts(first)
        engines: tuple[Engine, ...] = (first, second)[:stores]
        record = await contend(engines, workload, TASKS, CALLS, uuid.uuid4().hex[:6])
        check_verdict(workload, record, await contents(first))
    await audit(directory)


@pytest.mark.soak
@pytest.mark.parametrize("workload", ["counter", "lock", "accounts"])
async def test_the_history_of_two_concurrent_processes_is_linearizable(
    tmp_path: Path, workload: str
) -> None:
    directory = tmp_path / uuid.uuid4().hex
    async with open_sqlite(directory) as engine:
        await create_accounts(engine)
    arguments = (str(directory), workload, str(TASKS // 2), str(CALLS))
    async with (
        started("contention", *arguments, "one") as one,
        started("contention", *arguments, "two") as two,
    ):
        for child in (one, two):
            await child.expect("open")
        records = await asyncio.gather(run(one), run(two))
    both = Record(
        records[0].calls + records[1].calls,
        records[0].transactions + records[1].transactions,
        records[0].sums + records[1].sums,
    )
    check_verdict(workload, both, (await audit(directory))["items"])


async def run(child: Child) -> Record:
    return msgspec.json.decode(await child.request("go"), type=Record)


# Small programs: a few clients, each a few steps, on two items that hold small numbers or are not
# there.

VALUES = st.integers(0, 2)
SEEN = st.none() | VALUES
PLACE = st.integers(0, 1)
STEPS = st.one_of(
    st.tuples(st.just("put"), PLACE, VALUES),
    st.tuples(st.just("delete"), PLACE),
    st.tuples(st.just("add"), PLACE, VALUES),
    st.tuples(st.just("swap"), PLACE, SEEN, VALUES),
    st.tuples(st.just("swap both"), SEEN, VALUES, SEEN, VALUES),
    st.tuples(st.just("read"), PLACE),
    st.tuples(st.just("read both")),
)
PROGRAMS = st.lists(st.lists(STEPS, min_size=1, max_size=4), min_size=2, max_size=5)


def specification(state: Any, step: Any) -> tuple[Any, Any]:
    """Return the result and the next state of a step on two items."""
    kind, *values = step
    if kind == "read both":
        return state, state
    if kind == "swap both":
        first, one, second, two = values
        return ("done", (one, two)) if state == (first, second) else ("refused", state)
    place, *rest = values
    if kind == "read":
        return state[place], state
    if kind == "swap":
        seen, wanted = rest
        return (
            ("done", _with(state, place, wanted)) if state[place] == seen else (state[place], state)
        )
    if kind == "add":
        after = (state[place] or 0) + rest[0]
        return after, _with(state, place, after)
    return "done", _with(state, place, rest[0] if kind == "put" else None)


def _with(state: Any, place: int, value: Any) -> Any:
    return (value, state[1]) if place == 0 else (state[0], value)


class Pair:
    """Two items, accessed through one engine."""

    def __init__(self, engine: Engine, prefix: str) -> None:
        self._engine = engine
        self._keys = ({"id": f"{prefix}-0"}, {"id": f"{prefix}-1"})

    async def do(self, step: Any) -> Any:
        """Execute a step and return what the specification would."""
        kind, *values = step
        if kind in ("read both", "swap both"):
            return await (self._read_both() if kind == "read both" else self._swap_both(*values))
        key, rest = self._keys[values[0]], values[1:]
        if kind == "read":
            return _value((await self._engine.get(Get(ITEMS, key, consistent=True))).item)
        if kind == "swap":
            return await self._swap(key, *rest)
        if kind == "add":
            return _value(
                (
                    await self._engine.update(
                        Update(ITEMS, key, (F("value").add(rest[0]),), returns="ALL_NEW")
                    )
                ).item
            )
        if kind == "put":
            await self._engine.put(Put(ITEMS, {**key, "value": rest[0]}))
        else:
            await self._engine.delete(Delete(ITEMS, key))
        return "done"

    async def _read_both(self) -> Any:
        found = await self._engine.transact_get(
            TransactionGet(tuple(Get(ITEMS, key) for key in self._keys))
        )
        return tuple(map(_value, found.items))

    async def _swap(self, key: Any, seen: Any, wanted: Any) -> Any:
        try:
            await self._engine.put(Put(ITEMS, {**key, "value": wanted}, _holds(seen)))
        except ConditionFailed as failed:
            return _value(failed.item)
        return "done"

    async def _swap_both(self, first: Any, one: Any, second: Any, two: Any) -> Any:
        writes = [
            Put(ITEMS, {**key, "value": value}, _holds(seen))
            for key, seen, value in zip(self._keys, (first, second), (one, two), strict=True)
        ]
        try:
            await self._engine.transact(Transaction(tuple(writes)))
        except TransactionCancelled:
            return "refused"
        return "done"


def _holds(seen: Any) -> Any:
    return not_exists("id") if seen is None else F("value") == seen


def _value(item: Any) -> Any:
    return None if item is None else item["value"]


@pytest.fixture(scope="module")
async def stores(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Engine, Engine]]:
    directory = tmp_path_factory.mktemp("programs")
    async with open_sqlite(directory) as first, open_sqlite(directory) as second:
        await first.create_table(ITEMS)
        yield first, second


@pytest.mark.soak
@given(programs=PROGRAMS)
@settings(max_examples=100)
async def test_small_concurrent_programs_are_linearizable(
    stores: tuple[Engine, Engine], programs: list[list[Any]]
) -> None:
    """Random programs run concurrently on two stores of one directory."""
    prefix = uuid.uuid4().hex
    calls: list[Call] = []

    async def run_program(engine: Engine, program: list[Any]) -> None:
        pair = Pair(engine, prefix)
        for step in program:
            invoked, result, returned = await timed(pair.do(step))
            calls.append(Call(invoked, returned, step, result, step[0].startswith("read")))

    await asyncio.gather(
        *(run_program(stores[number % 2], program) for number, program in enumerate(programs))
    )
    assert linearize(calls, (None, None), specification) is not None
