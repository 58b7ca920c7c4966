"""Time to live: the sweeper deletes expired items only.

Services that delete expired items themselves are skipped.
"""

from decimal import Decimal
from typing import Any

import pytest

from tally.store.api import BatchWrite, Engine, Put, Query, Update
from tally.store.expressions import F
from tests.store.tables import PLAIN, TOKENS, all_items, fresh, stored

YEAR = 365 * 86_400
HOUR = 3_600
NOW = 2_000_000_000  # the sweeper deletes what expired before this hour


def sweeps(engine: Engine) -> bool:
    return engine.name == "sqlite"


async def sweep_all(engine: Engine, now: float = NOW) -> int:
    """Sweep until nothing is left to delete."""
    total = 0
    while swept := await engine.sweep(TOKENS, now, 1000):
        total += swept
    return total


@pytest.mark.parametrize(
    ("expires", "expired"),
    [
        (NOW - HOUR, True),
        (NOW - 10 * HOUR, True),
        (Decimal(NOW - HOUR) - Decimal("0.5"), True),
        (NOW + 1, False),
        (NOW + YEAR, False),
        (str(NOW - HOUR), False),
        (None, False),
        (True, False),
        ([NOW - HOUR], False),
        ({NOW - HOUR}, False),
        ({"at": NOW - HOUR}, False),
    ],
)
async def test_a_sweep_deletes_expired_items_with_numeric_expiry_only(
    engine: Engine, expires: Any, expired: bool
) -> None:
    key = {"id": fresh()}
    item = {**key, "expires": expires}
    await engine.put(Put(TOKENS, item))
    await sweep_all(engine)
    assert await stored(engine, TOKENS, key) == (None if expired and sweeps(engine) else item)


async def test_an_item_without_expiry_is_not_deleted(engine: Engine) -> None:
    key = {"id": fresh()}
    await engine.put(Put(TOKENS, key))
    await sweep_all(engine)
    assert await stored(engine, TOKENS, key) == key


async def test_items_that_expired_over_five_years_ago_are_not_deleted(
    engine: Engine,
) -> None:
    key = {"id": fresh()}
    item = {**key, "expires": NOW - 5 * YEAR - 2 * 86_400}
    await engine.put(Put(TOKENS, item))
    await sweep_all(engine)
    assert await stored(engine, TOKENS, key) == item


async def test_an_expired_item_is_readable_until_it_is_swept(engine: Engine) -> None:
    item = {"id": fresh(), "expires": NOW - HOUR}
    await engine.put(Put(TOKENS, item))
    assert await stored(engine, TOKENS, {"id": item["id"]}) == item
    assert TOKENS.is_expired(item, NOW)


async def test_an_update_may_postpone_the_expiry(engine: Engine) -> None:
    key = {"id": fresh()}
    await engine.put(Put(TOKENS, {**key, "expires": NOW - HOUR}))
    await engine.update(Update(TOKENS, key, (F("expires").set(NOW + 10),)))
    await sweep_all(engine)
    assert await stored(engine, TOKENS, key) == {**key, "expires": NOW + 10}


async def test_a_sweep_deletes_index_entries(engine: Engine) -> None:
    owner = fresh()
    for number in range(4):
        expires = NOW - HOUR if number % 2 else NOW + 10
        await engine.put(
            Put(TOKENS, {"id": fresh(), "owner": owner, "n": number, "expires": expires})
        )
    await sweep_all(engine)
    left = await all_items(engine, Query(TOKENS, F("owner") == owner, index="by-owner"))
    assert sorted(item["n"] for item in left) == ([0, 2] if sweeps(engine) else [0, 1, 2, 3])


async def test_a_sweep_stops_at_its_limit(engine: Engine) -> None:
    await sweep_all(engine)
    items = tuple({"id": fresh(), "expires": NOW - HOUR} for _ in range(7))
    await engine.batch_write(BatchWrite(TOKENS, puts=items))
    counts = [await engine.sweep(TOKENS, NOW, 3) for _ in range(4)]
    assert counts == ([3, 3, 1, 0] if sweeps(engine) else [0, 0, 0, 0])


async def test_a_table_without_a_time_to_live_is_never_swept(engine: Engine) -> None:
    item = {"id": fresh(), "expires": NOW - HOUR}
    await engine.put(Put(PLAIN, item))
    assert await engine.sweep(PLAIN, NOW, 100) == 0
    assert await stored(engine, PLAIN, {"id": item["id"]}) == item
