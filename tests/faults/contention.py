"""Many tasks that compete for the same few items, and a record of every request and response.

    python -m tests.faults.contention DIRECTORY WORKLOAD TASKS CALLS SEED

As a child it opens the store, prints `open`, waits for a line, runs the workload, and prints its
record as one line of JSON. Times are from the machine's monotonic clock, so that the records of
several processes form one history. Each workload has a specification.
"""

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from tally.store.api import Check, Delete, Engine, Get, Put, TransactionGet, Update, Write
from tally.store.api import Transaction as Transact
from tally.store.errors import ConditionFailed, TransactionCancelled
from tally.store.expressions import F, not_exists
from tally.store.schema import GlobalIndex, N, S, Table
from tally.store.sqlite import open_sqlite
from tests.faults.child_process import say
from tests.faults.linearizability import Call
from tests.faults.serializability import Transaction

T = TypeVar("T")
ITEMS = Table(
    "items",
    partition=S("id"),
    indexes=(GlobalIndex("by-balance", partition=S("kind"), sort=N("balance")),),
)
COUNTER, LOCK = {"id": "counter"}, {"id": "lock"}
ACCOUNTS = tuple(f"account-{number}" for number in range(6))
START_BALANCE = 100
LEASE = 2_000_000  # two milliseconds: some leases expire before they are released


class Record(msgspec.Struct):
    """All calls and results."""

    calls: list[Call] = msgspec.field(default_factory=list)
    transactions: list[Transaction] = msgspec.field(default_factory=list)
    sums: list[int] = msgspec.field(default_factory=list)


async def timed(call: Awaitable[T]) -> tuple[int, T, int]:
    """Run a call and return its result with its start and end times."""
    invoked = time.monotonic_ns()
    result = await call
    return invoked, result, time.monotonic_ns()


class Client:
    """One task with an engine, a random generator and a record of its calls."""

    def __init__(self, engine: Engine, name: str, seed: str, record: Record) -> None:
        self.engine = engine
        self.name = name
        self.rng = random.Random(seed + name)
        self.record = record

    async def record_call(self, operation: tuple[Any, ...], call: Awaitable[Any]) -> Any:
        """Make a call and record it."""
        invoked, result, returned = await timed(call)
        read_only = operation[0] == "read" or (
            operation[0] != "add" and result not in ("swapped", "done")
        )
        self.record.calls.append(Call(invoked, returned, operation, result, read_only))
        return result

    async def use_counter(self) -> None:
        """Add, read, or compare and swap."""
        kind = self.rng.choice(("add", "read", "swap"))
        if kind == "add":
            amount = self.rng.randrange(1, 5)
            await self.record_call(("add", amount), self._add(amount))
            return
        seen = await self.record_call(("read",), self._read())
        while kind == "swap":
            result = await self.record_call(("swap", seen, (seen or 0) + 1), self._swap(seen))
            if result == "swapped":
                return
            seen = result

    async def _add(self, amount: int) -> Any:
        written = await self.engine.update(
            Update(ITEMS, COUNTER, (F("value").add(amount),), returns="UPDATED_NEW")
        )
        assert written.item is not None
        return written.item["value"]

    async def _read(self) -> Any:
        item = (await self.engine.get(Get(ITEMS, COUNTER, consistent=True))).item
        return None if item is None else item["value"]

    async def _swap(self, seen: Any) -> Any:
        unchanged = not_exists("id") if seen is None else F("value") == seen
        try:
            await self.engine.update(
                Update(ITEMS, COUNTER, (F("value").set((seen or 0) + 1),), unchanged)
            )
        except ConditionFailed as failed:
            return None if failed.item is None else failed.item["value"]
        return "swapped"

    async def use_lock(self) -> None:
        """Acquire, extend or release the lock, or attempt an invalid operation."""
        now = time.monotonic_ns()
        free = not_exists("id") | (F("until") < now)
        put = Put(ITEMS, {**LOCK, "owner": self.name, "until": now + LEASE}, free)
        taken = await self.record_call(
            ("acquire", self.name, now, now + LEASE), self._lock(self.engine.put(put))
        )
        if taken != "done" and self.rng.random() < 0.9:
            return
        owned = F("owner") == self.name
        if self.rng.random() < 0.5:
            now = time.monotonic_ns()
            longer = Update(
                ITEMS, LOCK, (F("until").set(now + LEASE),), owned & (F("until") >= now)
            )
            await self.record_call(
                ("extend", self.name, now, now + LEASE), self._lock(self.engine.update(longer))
            )
        if self.rng.random() < 0.5:
            await self.record_call(
                ("release", self.name), self._lock(self.engine.delete(Delete(ITEMS, LOCK, owned)))
            )

    async def _lock(self, call: Awaitable[Any]) -> Any:
        """Return `done`, or the holder of the lock."""
        try:
            await call
        except ConditionFailed as failed:
            return None if failed.item is None else (failed.item["owner"], failed.item["until"])
        return "done"

    async def use_accounts(self) -> None:
        """Read all accounts in a snapshot, then transfer money or write one based on another."""
        invoked, seen, returned = await timed(self._snapshot())
        versions = {key: item["version"] for key, item in seen.items()}
        self.record.transactions.append(Transaction(invoked, returned, versions))
        self.record.sums.append(sum(item["balance"] for item in seen.values()))
        source, target = self.rng.sample(ACCOUNTS, 2)
        amount = self.rng.randrange(1, 20)
        writes: tuple[Write, ...] = (
            _move(source, versions, -amount),
            _move(target, versions, amount),
        )
        written_versions = {key: versions[key] + 1 for key in (source, target)}
        if self.rng.random() < 0.3:
            # A write skew unless the check and the write are atomic.
            writes = (
                _move(source, versions, 0),
                Check(ITEMS, {"id": target}, F("version") == versions[target]),
            )
            written_versions = {source: versions[source] + 1}
        try:
            invoked, _, returned = await timed(self.engine.transact(Transact(writes)))
        except TransactionCancelled:
            return
        read_versions = {key: versions[key] for key in (source, target)}
        self.record.transactions.append(
            Transaction(invoked, returned, read_versions, written_versions)
        )

    async def _snapshot(self) -> dict[str, dict[str, Any]]:
        found = await self.engine.transact_get(
            TransactionGet(tuple(Get(ITEMS, {"id": key}) for key in ACCOUNTS))
        )
        return {item["id"]: item for item in found.items if item is not None}


def _move(key: str, versions: dict[str, int], amount: int) -> Update:
    change = (F("balance").add(amount), F("version").add(1))
    return Update(ITEMS, {"id": key}, change, F("version") == versions[key])


def counter_specification(state: Any, operation: Any) -> tuple[Any, Any]:
    """Return a counter's result and next state; it starts as None."""
    kind, *values = operation
    if kind == "read":
        return state, state
    if kind == "add":
        after = (state or 0) + values[0]
        return after, after
    seen, wanted = values
    return ("swapped", wanted) if seen == state else (state, state)


def lock_specification(state: Any, operation: Any) -> tuple[Any, Any]:
    """Return a lock's result and next state: None, or owner and end of the lease."""
    if operation == ("read",):
        return state, state
    kind, owner, *times = operation
    if kind == "release":
        return ("done", None) if state is not None and state[0] == owner else (state, state)
    now, until = times
    free = state is None or state[1] < now
    mine = state is not None and state[0] == owner and state[1] >= now
    return ("done", (owner, until)) if (free if kind == "acquire" else mine) else (state, state)


Workload: TypeAlias = Callable[[Client], Coroutine[Any, Any, None]]
WORKLOADS: dict[str, Workload] = {
    "counter": Client.use_counter,
    "lock": Client.use_lock,
    "accounts": Client.use_accounts,
}


async def create_accounts(engine: Engine) -> None:
    """Create the table and the accounts."""
    await engine.create_table(ITEMS)
    for key in ACCOUNTS:
        await engine.put(
            Put(ITEMS, {"id": key, "kind": "account", "balance": START_BALANCE, "version": 0})
        )


async def contend(
    engines: tuple[Engine, ...], workload: str, tasks: int, calls: int, seed: str
) -> Record:
    """Run the tasks concurrently, distributed over the engines."""
    record = Record()

    async def repeat(client: Client) -> None:
        for _ in range(calls):
            await WORKLOADS[workload](client)

    clients = [
        Client(engines[number % len(engines)], f"{seed}-{number}", seed, record)
        for number in range(tasks)
    ]
    await asyncio.gather(*map(repeat, clients))
    return record


async def main(directory: str, workload: str, tasks: str, calls: str, seed: str) -> None:
    async with open_sqlite(Path(directory)) as engine:
        say("open")
        await asyncio.to_thread(sys.stdin.readline)
        record = await contend((engine,), workload, int(tasks), int(calls), seed)
    say(msgspec.json.encode(record).decode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
