"""Compares the stored items after a crash with the output of `crash_writers` before it."""

from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from tally.store.values import Item
from tests.faults import crash_steps
from tests.faults.child_process import Child


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


async def follow(child: Child, progress: Progress, acknowledgements: int) -> None:
    """Process the child's output up to this many acknowledgements."""
    while acknowledgements:
        acknowledgements -= progress.add_line(await child.line())


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
    check_bulk(found["measurements"], found["receipts"], progress)


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


def check_bulk(measurements: list[Item], receipts: list[Item], progress: Progress) -> None:
    """Each transaction of a batch wrote its items into both tables, or none; all acknowledged."""
    found = {item["id"] for item in receipts}
    assert found == {f"{item['board']}/{item['number']}" for item in measurements}
    wanted = {name: progress.did[name] - {0} for name in crash_steps.BULK_WRITERS}
    assert {
        item["id"]
        for name, numbers in wanted.items()
        for number in numbers
        for item in crash_steps.bulk_items(name, number)[1]
    } <= found
