"""Writes and transactions of a group give the results that they give one by one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tally.store.api import Check, Delete, Put, Query, Scan, Transaction, Update
from tally.store.errors import ConditionFailed, StoreError, TransactionCancelled
from tally.store.expressions import F
from tally.store.schema import Index, N, S, Table
from tally.store.sqlite import SqliteEngine
from tests.store.tables import embedded

SCORES = Table(
    "group-scores", S("id"), indexes=(Index("by-team", S("team"), N("points")),), ttl="expiresAt"
)
PLAYERS = Table("group-players", S("id"), N("number"))


def _score(number: int, points: int, team: str = "red") -> dict[str, Any]:
    return {"id": f"s{number}", "points": points, "team": team, "expiresAt": 10_000 * points}


def _send(engine: SqliteEngine, operation: Any) -> Awaitable[Any]:
    sends: dict[type, Callable[[Any], Awaitable[Any]]] = {
        Put: engine.put,
        Update: engine.update,
        Delete: engine.delete,
        Transaction: engine.transact,
    }
    return sends[type(operation)](operation)


async def _outcome(engine: SqliteEngine, operation: Any) -> Any:
    try:
        return await _send(engine, operation)
    except TransactionCancelled as error:
        return "cancelled", error.reasons
    except ConditionFailed as error:
        return "failed", str(error), error.item
    except StoreError as error:
        return type(error).__name__, str(error)


async def _contents(engine: SqliteEngine) -> list[Any]:
    scores = await engine.scan(Scan(SCORES))
    players = await engine.scan(Scan(PLAYERS))
    teams = [
        (await engine.query(Query(SCORES, F("team") == team, index="by-team"))).items
        for team in ("red", "blue")
    ]
    swept = await engine.sweep(SCORES, 10_000.0 * 5 + 3_600, 100)
    remaining = await engine.scan(Scan(SCORES))
    return [scores.items, players.items, teams, swept, remaining.items]


def _random_write(rng: Random, *, in_transaction: bool, number: int) -> Any:
    """Return a write of the item with this number; many conditions are false."""
    key, returns = {"id": f"s{number}"}, "NONE"
    condition = rng.choice([None, F("id").exists(), F("id").not_exists(), F("points") > 4])
    kind = rng.randrange(5 if in_transaction else 4)
    if not in_transaction:
        returns = rng.choice(["NONE", "ALL_OLD"])
    if kind == 0:
        item = _score(number, rng.randrange(1, 9), rng.choice(["red", "blue"]))
        return Put(SCORES, item, condition, returns)  # type: ignore[arg-type]
    if kind == 1:
        return Delete(SCORES, key, condition, returns)  # type: ignore[arg-type]
    if kind == 2:
        actions = rng.choice([(F("points").add(1),), (F("team").remove(),), (F("team").add(1),)])
        return Update(SCORES, key, actions, condition, "NONE" if in_transaction else "ALL_NEW")
    if kind == 3:
        player = {"id": "p", "number": number}
        return Update(PLAYERS, player, (F("points").set(F("points") + 1),), None)
    return Check(SCORES, key, F("id").exists())


def _random_operations(rng: Random) -> list[Any]:
    operations: list[Any] = []
    for _ in range(rng.randrange(2, 40)):
        if rng.random() < 0.3:
            numbers = rng.sample(range(12), rng.randrange(1, 4))
            writes = (_random_write(rng, in_transaction=True, number=n) for n in numbers)
            operations.append(Transaction(tuple(writes)))
        else:
            operations.append(_random_write(rng, in_transaction=False, number=rng.randrange(12)))
    return operations


async def _fill(engine: SqliteEngine) -> None:
    for number in range(0, 12, 2):
        await engine.put(Put(SCORES, _score(number, number + 1)))
        await engine.put(Put(PLAYERS, {"id": "p", "number": number, "points": number}))


async def _run(directory: Path, operations: Sequence[Any], *, is_group: bool) -> list[Any]:
    async with embedded(directory, SCORES, PLAYERS) as engine:
        await _fill(engine)
        outcomes = (
            await asyncio.gather(*(_outcome(engine, operation) for operation in operations))
            if is_group
            else [await _outcome(engine, operation) for operation in operations]
        )
        return [outcomes, await _contents(engine)]


@pytest.mark.parametrize("seed", range(25))
async def test_a_group_gives_the_results_of_its_writes_one_by_one(
    tmp_path: Path, seed: int
) -> None:
    operations = _random_operations(Random(seed))
    group = await _run(tmp_path / "group", operations, is_group=True)
    assert group == await _run(tmp_path / "single", operations, is_group=False)


async def test_a_failed_condition_affects_only_its_own_write(tmp_path: Path) -> None:
    async with embedded(tmp_path, SCORES, PLAYERS) as engine:
        await _fill(engine)
        outcomes = await asyncio.gather(
            engine.put(Put(SCORES, _score(1, 3), F("id").not_exists())),
            engine.put(Put(SCORES, _score(2, 3), F("id").not_exists())),
            engine.transact(
                Transaction(
                    (
                        Put(SCORES, _score(3, 3), F("id").not_exists()),
                        Put(SCORES, _score(4, 9), F("id").not_exists()),
                    )
                )
            ),
            return_exceptions=True,
        )
        items = {item["id"]: item["points"] for item in (await engine.scan(Scan(SCORES))).items}
    assert isinstance(outcomes[1], ConditionFailed)
    assert isinstance(outcomes[2], TransactionCancelled)
    assert items == {"s0": 1, "s1": 3, "s2": 3, "s4": 5, "s6": 7, "s8": 9, "s10": 11}


async def test_writes_of_one_item_in_a_group_keep_their_order(tmp_path: Path) -> None:
    async with embedded(tmp_path, SCORES, PLAYERS) as engine:
        key, actions = {"id": "s1"}, (F("points").add(1),)
        results = await asyncio.gather(
            *(engine.update(Update(SCORES, key, actions, returns="ALL_NEW")) for _ in range(20))
        )
    assert [result.item and result.item["points"] for result in results] == [*range(1, 21)]
