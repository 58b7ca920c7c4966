"""After `kill -9` at any moment, no acknowledged write is lost and no transaction is partial.

Indexes match their tables.

The child (`crash_writers`) is killed after a number of acknowledgements, and the next one continues
in the same directory, so recovery itself is interrupted too.
"""

import asyncio
import random
import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from tally.store.api import Put
from tally.store.sqlite import open_sqlite
from tally.store.sqlite.files import FILE_NAME
from tally.store.values import Item
from tests.faults import crash_steps
from tests.faults.audit import audit
from tests.faults.child_process import Child, started
from tests.faults.crash_steps import ACCOUNTS, READINGS, READINGS_LATER, RIGHT, TABLES

ROUNDS = 8


@dataclass(slots=True)
class Progress:
    """The children's output over all restarts."""

    did: dict[str, set[int]] = field(default_factory=lambda: defaultdict(lambda: {0}))
    tried: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    rejected: set[str] = field(default_factory=set)

    def add_line(self, line: str) -> bool:
        """Process a line; return whether it is an acknowledgement."""
        kind, *about = line.split()
        assert kind != "wrong", line
        if kind not in ("try", "did", "rejected"):
            return False
        name, number = about
        if kind == "try":
            self.tried[name] = int(number)
        elif kind == "did":
            self.did[name].add(int(number))
        else:
            self.rejected.add(f"{name}/{number}")
        return kind != "try"

    def last(self, name: str) -> int:
        """The last acknowledged step of a writer."""
        return max(self.did[name])

    def possible(self, name: str) -> range:
        """The steps that may be found: from the last acknowledged to the last attempted."""
        return range(self.last(name), max(self.tried[name], self.last(name)) + 1)

    def as_json(self) -> str:
        """The state that the next child needs to continue."""
        return msgspec.json.encode(
            {name: (self.last(name), self.tried[name]) for name in {*self.did, *self.tried}}
        ).decode()


async def create_tables(directory: Path) -> None:
    async with open_sqlite(directory) as engine:
        for table in TABLES:
            await engine.create_table(table)
        for number in range(crash_steps.PAIRS):
            await engine.put(Put(RIGHT, {"id": f"pair-{number}/taken"}))
        for number in range(crash_steps.ACCOUNTS_COUNT):
            await engine.put(
                Put(
                    ACCOUNTS,
                    {
                        **crash_steps.account(number),
                        "kind": "account",
                        "balance": crash_steps.START_BALANCE,
                    },
                )
            )


async def follow(child: Child, progress: Progress, acknowledgements: int) -> None:
    """Process the child's output up to this many acknowledgements."""
    while acknowledgements:
        acknowledgements -= progress.add_line(await child.line())


async def kill(child: Child, progress: Progress) -> None:
    """Kill the child and process its remaining output."""
    child.kill()
    for line in await child.rest():
        progress.add_line(line)


def check(found: dict[str, list[Item]], progress: Progress) -> None:
    """Compare the stored items with the output."""
    readings = {(item["group"], item["id"]): item for item in found["readings"]}
    for name in (f"single-{number}" for number in range(crash_steps.SINGLES)):
        state = readings.pop(tuple(crash_steps.single_key(name).values()), None)
        assert state in [
            crash_steps.single_state(name, number) for number in progress.possible(name)
        ], name
    for name in (f"batch-{number}" for number in range(crash_steps.BATCHES)):
        for position in range(crash_steps.BATCH_KEYS):
            state = readings.pop(tuple(crash_steps.batch_key(name, position).values()), None)
            assert state in [
                crash_steps.batch_state(name, position, number)
                for number in progress.possible(name)
            ], name
    assert readings == {}, "items that no writer wrote"
    check_ledger(found, progress)
    check_pairs(
        {item["id"] for item in found["left"]}, {item["id"] for item in found["right"]}, progress
    )
    check_events({item["id"] for item in found["events"]}, progress)


def check_ledger(found: dict[str, list[Item]], progress: Progress) -> None:
    """Accounts and counters match the ledger: all acknowledged and only attempted entries."""
    entries = {item["id"]: item for item in found["ledger"]}
    assert not entries.keys() & progress.rejected
    balances = dict.fromkeys(range(crash_steps.ACCOUNTS_COUNT), crash_steps.START_BALANCE)
    counts: dict[str, int] = defaultdict(int)
    for item in entries.values():
        name, number = item["worker"], item["number"]
        assert number <= progress.tried[name]
        if name.startswith("token"):
            counts[name] += 1
            continue
        source, target, amount = crash_steps.transfer(name, number)
        balances[source] -= amount
        balances[target] += amount
    for name, numbers in progress.did.items():
        if name.startswith(("token", "transfer")):
            assert {f"{name}/{number}" for number in numbers - {0}} <= entries.keys(), (
                "an acknowledged transaction is lost"
            )
    accounts = {item["id"]: item for item in found["accounts"]}
    assert {f"account-{number}": balance for number, balance in balances.items()} == {
        key: item["balance"] for key, item in accounts.items() if key.startswith("account")
    }
    assert sum(balances.values()) == crash_steps.ACCOUNTS_COUNT * crash_steps.START_BALANCE
    assert counts == {
        key: item["count"] for key, item in accounts.items() if key.startswith("token")
    }


def check_pairs(left: set[str], right: set[str], progress: Progress) -> None:
    """Pairs are complete or absent; all acknowledged exist, no rejected does."""
    assert left | {f"pair-{number}/taken" for number in range(crash_steps.PAIRS)} == right
    for name in (f"pair-{number}" for number in range(crash_steps.PAIRS)):
        acknowledged = {
            f"{name}/{number}/{position}"
            for number in progress.did[name] - {0}
            for position in range(crash_steps.PAIRS_PER_REQUEST)
        }
        assert acknowledged <= left
        assert not any(pair.endswith("never") for pair in left)


def check_events(found: set[str], progress: Progress) -> None:
    """Swept items are deleted, and items that are not due exist."""
    removed = {f"event-{number}" for number in range(1, progress.last("sweep") + 1)}
    due = range(
        max(progress.last("sweep"), progress.tried["sweep"]) + 1, progress.last("event") + 1
    )
    remaining = {f"event-{number}" for number in progress.did["event"] & set(due)}
    assert not found & removed
    assert remaining <= found
    assert found <= {f"event-{number}" for number in range(1, progress.tried["event"] + 1)}


async def crash_while_writing(
    child: Child, progress: Progress, rng: random.Random, _directory: Path
) -> None:
    await follow(child, progress, rng.randrange(1, 700))


async def crash_while_declaring(
    child: Child, progress: Progress, rng: random.Random, _directory: Path
) -> None:
    """Kill during or shortly after the transaction that drops and fills indexes."""
    await follow(child, progress, rng.randrange(1, 300))
    command = rng.choice(("ensure later", "ensure first"))
    await child.send(command)
    while (line := await child.line()) != f"begin {command}":
        progress.add_line(line)
    for _ in range(rng.choice((0, 0, 1, 30))):
        progress.add_line(await child.line())


async def crash_while_closing(
    child: Child, progress: Progress, rng: random.Random, directory: Path
) -> None:
    """Kill between the last commits and the end of the last checkpoint."""
    await follow(child, progress, rng.randrange(1, 700))
    database = directory / FILE_NAME
    await child.send("close")
    while (line := await child.line()) != "begin close":
        progress.add_line(line)
    if rng.random() < 0.7:
        before = database.stat().st_mtime_ns
        while database.stat().st_mtime_ns == before and child.running:
            pass


CRASHES = (crash_while_writing, crash_while_writing, crash_while_declaring, crash_while_closing)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
async def test_a_killed_process_loses_no_acknowledged_write(tmp_path: Path, part: int) -> None:
    """Eight crashes of all kinds on one directory."""
    rng = random.Random()
    directory = tmp_path / f"{rng.getrandbits(64):x}"
    progress = Progress()
    await create_tables(directory)
    for round_number in range(ROUNDS):
        async with started("crash_writers", str(directory)) as child:
            await child.send(progress.as_json())
            await child.expect("open")
            await rng.choice(CRASHES)(child, progress, rng, directory)
            await kill(child, progress)
        if rng.random() < 0.7 or round_number == ROUNDS - 1:
            check(await audit(directory), progress)
    shutil.rmtree(directory)  # a soak run creates many of these


BACKFILLED = 4_000


@pytest.mark.soak
async def test_a_process_killed_during_a_backfill_leaves_the_old_or_the_new_table(
    tmp_path: Path,
) -> None:
    """Killed at the start, or when the commit appears in the log."""
    rng = random.Random()
    directory = tmp_path / f"{rng.getrandbits(64):x}"
    items = [
        dict(crash_steps.batch_state("batch-0", 1, 1) or {}, id=f"item-{number}", retired=number)
        for number in range(BACKFILLED)
    ]
    await create_tables(directory)
    async with open_sqlite(directory) as engine:
        await asyncio.gather(*(engine.put(Put(READINGS, item)) for item in items))
    for wait in (False, True, True, True):
        command = (
            "ensure first"
            if await declared(directory) == set(READINGS_LATER.by_name)
            else "ensure later"
        )
        async with started("crash_writers", str(directory), "idle") as child:
            await child.expect("open")
            before = log_size(directory)
            await child.send(command)
            await child.expect(f"begin {command}")
            while wait and log_size(directory) == before and child.running:
                pass
            child.kill()
        found = await audit(directory)
        assert {item["id"] for item in found["readings"]} == {item["id"] for item in items}
        assert await declared(directory) in (set(READINGS.by_name), set(READINGS_LATER.by_name))


async def declared(directory: Path) -> set[str]:
    """The names of the table's indexes."""
    async with open_sqlite(directory) as engine:
        return set((await engine.describe_table(READINGS.name)).by_name)


def log_size(directory: Path) -> int:
    log = directory / f"{FILE_NAME}-wal"
    return log.stat().st_size if log.exists() else 0
