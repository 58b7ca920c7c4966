"""The writes of the child `crash_writers`, and the states that `test_crash` may find after a crash.

A key with one writer goes through numbered steps; `single_state` and `batch_state` return its item
after the n-th. After a crash only two states are correct: that of the last acknowledged step, or
that of the next step, which was tried and not acknowledged. Accounts and counters have many
writers; a ledger that is written in the same transactions records what was applied.
"""

from typing import TypeAlias

from tally.store.api import BatchPut, Delete, Put, Transaction, TransactionBatch, Update
from tally.store.expressions import F, not_exists
from tally.store.schema import KEYS_ONLY, GlobalIndex, LocalIndex, N, S, Table, include
from tally.store.values import Item

SINGLES, BATCHES, TRANSFERS, TOKENS, PAIRS = 16, 3, 6, 3, 2
BATCH_KEYS, PAIRS_PER_REQUEST = 5, 4
BULK_WRITERS, BULK_TRANSACTIONS = ("bulk-0", "bulk-1"), 12
ACCOUNTS_COUNT, START_BALANCE = 8, 1_000
LATER = 1_800_000_000
HOUR = 3_600
SWEEP_LIMIT = 7

READINGS = Table(
    "readings",
    partition=S("group"),
    sort=S("id"),
    indexes=(
        GlobalIndex("by-team", partition=S("team"), sort=N("points")),
        GlobalIndex("by-mark", partition=S("mark"), projection=KEYS_ONLY),
        LocalIndex("by-points", sort=N("points"), projection=include("team")),
    ),
    ttl="expires",
    stream="NEW_AND_OLD_IMAGES",
)
# The table as a newer program declares it: one index added, one removed, one with another
# projection, and another TTL attribute.
READINGS_LATER = Table(
    "readings",
    partition=S("group"),
    sort=S("id"),
    indexes=(
        GlobalIndex("by-team", partition=S("team"), sort=N("points")),
        GlobalIndex("by-sequence", partition=S("team"), sort=N("sequence"), projection=KEYS_ONLY),
        LocalIndex("by-points", sort=N("points"), projection=KEYS_ONLY),
    ),
    ttl="retired",
    stream="NEW_AND_OLD_IMAGES",
)
ACCOUNTS = Table(
    "accounts",
    partition=S("id"),
    indexes=(GlobalIndex("by-balance", partition=S("kind"), sort=N("balance")),),
    stream="NEW_AND_OLD_IMAGES",
)
LEDGER = Table(
    "ledger",
    partition=S("id"),
    indexes=(GlobalIndex("by-worker", partition=S("worker"), sort=N("number")),),
)
EVENTS = Table(
    "events",
    partition=S("id"),
    indexes=(GlobalIndex("by-parity", partition=N("parity"), sort=N("expires")),),
    ttl="expires",
    stream="NEW_AND_OLD_IMAGES",
)
LEFT = Table("left", partition=S("id"), stream="NEW_AND_OLD_IMAGES")
RIGHT = Table("right", partition=S("id"))
MEASUREMENTS = Table(
    "measurements",
    partition=S("board"),
    sort=N("number"),
    indexes=(GlobalIndex("by-unit", partition=S("unit"), sort=N("number")),),
    ttl="expires",
    stream="NEW_AND_OLD_IMAGES",
)
RECEIPTS = Table("receipts", partition=S("id"), ttl="expires", stream="NEW_AND_OLD_IMAGES")
TABLES = (READINGS, ACCOUNTS, LEDGER, EVENTS, LEFT, RIGHT, MEASUREMENTS, RECEIPTS)
NEW = not_exists("id")

Step: TypeAlias = Put | Update | Delete


def single_key(name: str) -> Item:
    """The key of a writer of one item."""
    return {"group": f"group-{int(name.split('-')[1]) % 4}", "id": name}


def single_state(name: str, number: int) -> Item | None:
    """The item after the n-th step; six kinds of steps rotate, the last is a delete."""
    phase = number % 6
    if phase == 0:
        return None
    item: Item = {
        **single_key(name),
        "sequence": number,
        "points": number % 11,
        "text": "x" * (number % 5 * 90),
    }
    if phase != 3:
        item |= {"team": f"team-{number % 4}", "expires": LATER + number}
    if phase in (2, 4):
        item |= {
            "mark": "marked",
            "retired": LATER * 2 + number,
            "tags": frozenset({f"tag-{number}", "all"}),
        }
    return item


def single_step(name: str, number: int) -> Step:
    """The write that leads to the next state.

    A put, a conditional update or a conditional delete.
    """
    key, before, after = (
        single_key(name),
        single_state(name, number - 1),
        single_state(name, number),
    )
    unchanged = F("sequence") == number - 1
    if after is None:
        return Delete(READINGS, key, unchanged)
    if before is None:
        return Put(READINGS, after, not_exists("id"))
    if number % 6 == 5:
        return Put(READINGS, after)
    changed = [F(name).set(value) for name, value in after.items() if name not in key]
    removed = [F(name).remove() for name in before.keys() - after.keys()]
    return Update(READINGS, key, (*changed, *removed), unchanged)


def batch_key(name: str, position: int) -> Item:
    """The key of one item of a batch writer."""
    return {"group": name, "id": f"item-{position}"}


def batch_state(name: str, position: int, number: int) -> Item | None:
    """The item after the writer's n-th batch, which puts some items and deletes the others."""
    if number == 0 or (number + position) % 3 == 0:
        return None
    return {
        **batch_key(name, position),
        "sequence": number,
        "points": number % 7,
        "team": f"team-{number % 3}",
    }


def account(number: int) -> Item:
    """The key of an account."""
    return {"id": f"account-{number}"}


def transfer(name: str, number: int) -> tuple[int, int, int]:
    """Source, target and amount; a different pair each time."""
    seed = number * 7 + int(name.split("-")[1]) * 3
    source = seed % ACCOUNTS_COUNT
    return source, (source + 1 + seed % (ACCOUNTS_COUNT - 1)) % ACCOUNTS_COUNT, 1 + seed % 40


def transfer_transaction(name: str, number: int) -> Transaction:
    """Transfer money and record it in the ledger, atomically."""
    source, target, amount = transfer(name, number)
    entry = {"id": f"{name}/{number}", "worker": name, "number": number}
    return Transaction(
        (
            Update(ACCOUNTS, account(source), (F("balance").add(-amount),), F("balance") >= amount),
            Update(ACCOUNTS, account(target), (F("balance").add(amount),)),
            Put(LEDGER, entry, not_exists("id")),
        )
    )


def token_transaction(name: str, number: int) -> Transaction:
    """An increment that counts once because of its token, however often it is sent."""
    token = f"{name}/{number}"
    entry = {"id": token, "worker": name, "number": number}
    return Transaction(
        (Update(ACCOUNTS, {"id": name}, (F("count").add(1),)), Put(LEDGER, entry)), token
    )


def pair_transactions(name: str, number: int) -> list[Transaction]:
    """Transactions that each put a pair, and one that is rejected because half of it exists."""
    pairs = [{"id": f"{name}/{number}/{position}"} for position in range(PAIRS_PER_REQUEST)]
    good = [Transaction((Put(LEFT, pair, NEW), Put(RIGHT, pair, NEW))) for pair in pairs]
    return [
        *good[:2],
        Transaction(
            (
                Put(LEFT, {"id": f"{name}/{number}/never"}, NEW),
                Put(RIGHT, {"id": f"{name}/taken"}, NEW),
            )
        ),
        *good[2:],
    ]


def bulk_items(name: str, number: int) -> tuple[list[Item], list[Item]]:
    """Measurements with adjacent keys, and a receipt for each."""
    numbers = range(number * BULK_TRANSACTIONS, (number + 1) * BULK_TRANSACTIONS)
    measurements: list[Item] = [
        {"board": name, "number": at, "unit": f"unit-{at % 3}", "expires": LATER + at}
        for at in numbers
    ]
    return measurements, [{"id": f"{name}/{at}", "expires": LATER + at} for at in numbers]


def bulk_transactions(name: str, number: int) -> TransactionBatch:
    """Transactions of one shape, which the store writes table by table."""
    measurements, receipts = bulk_items(name, number)
    return TransactionBatch(
        BatchPut(MEASUREMENTS, measurements), BatchPut(RECEIPTS, receipts, condition=NEW)
    )


def event(number: int) -> Item:
    """An item with its own expiry."""
    return {"id": f"event-{number}", "expires": LATER + number * HOUR, "parity": number % 2}
