"""After `kill -9` at any moment: every acknowledged write is there, no half transaction, indexes equal to tables.

The child (`writers`) is killed after a number of acknowledgements, never after a time, and the next
one goes on in the same directory: so the recovery of what an earlier crash left is killed too.
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
from tests.faults import steps
from tests.faults.audit import audit
from tests.faults.children import Child, started
from tests.faults.steps import ACCOUNTS, READINGS, READINGS_LATER, RIGHT, TABLES

ROUNDS = 8


@dataclass(slots=True)
class Progress:
    """What the children said, over all of their lives."""

    did: dict[str, set[int]] = field(default_factory=lambda: defaultdict(lambda: {0}))
    tried: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    refused: set[str] = field(default_factory=set)

    def note(self, line: str) -> bool:
        """Take in a line; whether it is an acknowledgement."""
        kind, *about = line.split()
        assert kind != "wrong", line
        if kind not in ("try", "did", "refused"):
            return False
        name, number = about
        if kind == "try":
            self.tried[name] = int(number)
        elif kind == "did":
            self.did[name].add(int(number))
        else:
            self.refused.add(f"{name}/{number}")
        return kind != "try"

    def last(self, name: str) -> int:
        """The last acknowledged step of a writer."""
        return max(self.did[name])

    def possible(self, name: str) -> range:
        """The steps of which one must be what is found: from the last acknowledged to the last tried."""
        return range(self.last(name), max(self.tried[name], self.last(name)) + 1)

    def as_json(self) -> str:
        """What the next child needs to go on."""
        return msgspec.json.encode(
            {name: (self.last(name), self.tried[name]) for name in {*self.did, *self.tried}}
        ).decode()


async def lay_ground(directory: Path) -> None:
    async with open_sqlite(directory) as engine:
        for table in TABLES:
            await engine.create_table(table)
        for number in range(steps.PAIRS):
            await engine.put(Put(RIGHT, {"id": f"pair-{number}/taken"}))
        for number in range(steps.ACCOUNTS_COUNT):
            await engine.put(
                Put(
                    ACCOUNTS,
                    {**steps.account(number), "kind": "account", "balance": steps.START_BALANCE},
                )
            )


async def follow(child: Child, progress: Progress, acknowledgements: int) -> None:
    """Take in what the child says, up to so many acknowledgements."""
    while acknowledgements:
        acknowledgements -= progress.note(await child.line())


async def kill(child: Child, progress: Progress) -> None:
    """Kill the child, and take in what it had said until then."""
    child.kill()
    for line in await child.rest():
        progress.note(line)


def check(found: dict[str, list[Item]], progress: Progress) -> None:
    """Hold what was found against what was said."""
    readings = {(item["group"], item["id"]): item for item in found["readings"]}
    for name in (f"single-{number}" for number in range(steps.SINGLES)):
        state = readings.pop(tuple(steps.single_key(name).values()), None)
        assert state in [steps.single_state(name, number) for number in progress.possible(name)], (
            name
        )
    for name in (f"batch-{number}" for number in range(steps.BATCHES)):
        for position in range(steps.BATCH_KEYS):
            state = readings.pop(tuple(steps.batch_key(name, position).values()), None)
            assert state in [
                steps.batch_state(name, position, number) for number in progress.possible(name)
            ], name
    assert readings == {}, "items that nobody wrote"
    check_ledger(found, progress)
    check_pairs(
        {item["id"] for item in found["left"]}, {item["id"] for item in found["right"]}, progress
    )
    check_events({item["id"] for item in found["events"]}, progress)


def check_ledger(found: dict[str, list[Item]], progress: Progress) -> None:
    """Accounts and counters stand where the ledger says; it holds all that was acknowledged, and nothing that was not tried."""
    entries = {item["id"]: item for item in found["ledger"]}
    assert not entries.keys() & progress.refused
    balances = dict.fromkeys(range(steps.ACCOUNTS_COUNT), steps.START_BALANCE)
    counts: dict[str, int] = defaultdict(int)
    for item in entries.values():
        name, number = item["worker"], item["number"]
        assert number <= progress.tried[name]
        if name.startswith("token"):
            counts[name] += 1
            continue
        source, target, amount = steps.transfer(name, number)
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
    assert sum(balances.values()) == steps.ACCOUNTS_COUNT * steps.START_BALANCE
    assert counts == {
        key: item["count"] for key, item in accounts.items() if key.startswith("token")
    }


def check_pairs(left: set[str], right: set[str], progress: Progress) -> None:
    """Both halves of a pair or neither: all that was acknowledged, nothing that was refused."""
    assert left | {f"pair-{number}/taken" for number in range(steps.PAIRS)} == right
    for name in (f"pair-{number}" for number in range(steps.PAIRS)):
        said = {
            f"{name}/{number}/{position}"
            for number in progress.did[name] - {0}
            for position in range(steps.PAIRS_AT_ONCE)
        }
        assert said <= left
        assert not any(each.endswith("never") for each in left)


def check_events(found: set[str], progress: Progress) -> None:
    """What was swept is gone, what was not yet to be swept is there."""
    gone = {f"event-{number}" for number in range(1, progress.last("sweep") + 1)}
    due = range(
        max(progress.last("sweep"), progress.tried["sweep"]) + 1, progress.last("event") + 1
    )
    kept = {f"event-{number}" for number in progress.did["event"] & set(due)}
    assert not found & gone
    assert kept <= found
    assert found <= {f"event-{number}" for number in range(1, progress.tried["event"] + 1)}


async def crash_while_writing(
    child: Child, progress: Progress, chance: random.Random, _directory: Path
) -> None:
    await follow(child, progress, chance.randrange(1, 700))


async def crash_while_declaring(
    child: Child, progress: Progress, chance: random.Random, _directory: Path
) -> None:
    """Killed in or shortly after the transaction that drops and fills indexes."""
    await follow(child, progress, chance.randrange(1, 300))
    command = chance.choice(("ensure later", "ensure first"))
    await child.tell(command)
    while (line := await child.line()) != f"begin {command}":
        progress.note(line)
    for _ in range(chance.choice((0, 0, 1, 30))):
        progress.note(await child.line())


async def crash_while_closing(
    child: Child, progress: Progress, chance: random.Random, directory: Path
) -> None:
    """Killed between the last commits and the end of the last checkpoint, which writes to the database file."""
    await follow(child, progress, chance.randrange(1, 700))
    database = directory / FILE_NAME
    await child.tell("close")
    while (line := await child.line()) != "begin close":
        progress.note(line)
    if chance.random() < 0.7:
        before = database.stat().st_mtime_ns
        while database.stat().st_mtime_ns == before and child.running:
            pass


CRASHES = (crash_while_writing, crash_while_writing, crash_while_declaring, crash_while_closing)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
async def test_a_killed_process_loses_nothing_that_it_acknowledged(
    tmp_path: Path, part: int
) -> None:
    """Eight crashes of one directory in a row, of all kinds, each found to have lost nothing and left nothing half done."""
    chance = random.Random()
    directory = tmp_path / f"{chance.getrandbits(64):x}"
    progress = Progress()
    await lay_ground(directory)
    for round_number in range(ROUNDS):
        async with started("writers", str(directory)) as child:
            await child.tell(progress.as_json())
            await child.expect("open")
            await chance.choice(CRASHES)(child, progress, chance, directory)
            await kill(child, progress)
        if chance.random() < 0.7 or round_number == ROUNDS - 1:
            check(await audit(directory), progress)
    shutil.rmtree(directory)  # a soak makes many of these


BACKFILLED = 4_000


@pytest.mark.soak
async def test_a_process_killed_while_it_fills_an_index_leaves_the_old_table_or_the_new_one(
    tmp_path: Path,
) -> None:
    """Killed at the start of the work, or when its commit appears in the log: it is all there afterwards, or nothing of it."""
    chance = random.Random()
    directory = tmp_path / f"{chance.getrandbits(64):x}"
    items = [
        dict(steps.batch_state("batch-0", 1, 1) or {}, id=f"item-{number}", retired=number)
        for number in range(BACKFILLED)
    ]
    await lay_ground(directory)
    async with open_sqlite(directory) as engine:
        await asyncio.gather(*(engine.put(Put(READINGS, item)) for item in items))
    for wait in (False, True, True, True):
        command = (
            "ensure first"
            if await declared(directory) == set(READINGS_LATER.by_name)
            else "ensure later"
        )
        async with started("writers", str(directory), "idle") as child:
            await child.expect("open")
            before = log_size(directory)
            await child.tell(command)
            await child.expect(f"begin {command}")
            while wait and log_size(directory) == before and child.running:
                pass
            child.kill()
        found = await audit(directory)
        assert {item["id"] for item in found["readings"]} == {item["id"] for item in items}
        assert await declared(directory) in (set(READINGS.by_name), set(READINGS_LATER.by_name))


async def declared(directory: Path) -> set[str]:
    """The names of the indexes that the table has now."""
    async with open_sqlite(directory) as engine:
        return set((await engine.describe_table(READINGS.name)).by_name)


def log_size(directory: Path) -> int:
    log = directory / f"{FILE_NAME}-wal"
    return log.stat().st_size if log.exists() else 0
