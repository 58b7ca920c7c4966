"""A string with a lone surrogate is rejected with an error of the store, wherever it occurs."""

from collections.abc import Callable

import pytest

from tally.store.api import (
    BatchGet,
    BatchWrite,
    Check,
    Delete,
    Engine,
    Get,
    Operation,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    Update,
)
from tally.store.errors import InvalidRequest, InvalidSchema
from tally.store.expressions import Condition, F, exists
from tally.store.schema import GlobalIndex, S, Table, include
from tests.store.tables import NUMBERS, PLAIN, PLAYERS, STRINGS, fresh, stored
from tests.store.unchecked import run_operation

LONE = "\ud800"

OPERATIONS: dict[str, Callable[[str], Operation]] = {
    "key of a get": lambda own: Get(PLAIN, {"id": own + LONE}),
    "sort key of a get": lambda own: Get(STRINGS, {"id": own, "at": LONE}),
    "string key beside a number": lambda own: Get(NUMBERS, {"id": own + LONE, "at": 1}),
    "name in a key": lambda own: Get(PLAIN, {"id": own, LONE: 1}),
    "key of a put": lambda own: Put(PLAIN, {"id": own + LONE}),
    "key of an update": lambda own: Update(PLAIN, {"id": own + LONE}, (F("a").set(1),)),
    "key of a delete": lambda own: Delete(PLAIN, {"id": own + LONE}),
    "index key": lambda own: Put(PLAYERS, {"club": own, "name": "n", "team": LONE}),
    "value": lambda own: Put(PLAIN, {"id": own, "a": [LONE]}),
    "element of a set": lambda own: Put(PLAIN, {"id": own, "a": {LONE}}),
    "attribute name": lambda own: Put(PLAIN, {"id": own, LONE: 1}),
    "name in a map": lambda own: Put(PLAIN, {"id": own, "a": {LONE: 1}}),
    "value of an update": lambda own: Update(PLAIN, {"id": own}, (F("a").set(LONE),)),
    "comparison": lambda own: Put(PLAIN, {"id": own}, F("a") != LONE),
    "bound of between": lambda own: Put(PLAIN, {"id": own}, ~F("a").between("a", LONE)),
    "prefix": lambda own: Put(PLAIN, {"id": own}, ~F("a").begins_with(LONE)),
    "option": lambda own: Put(PLAIN, {"id": own}, ~F("a").is_in("a", LONE)),
    "partition of a query": lambda own: Query(PLAIN, F("id") == own + LONE),
    "sort key condition": lambda own: Query(STRINGS, (F("id") == own) & (F("at") > LONE)),
    "prefix of a sort key": lambda own: Query(
        STRINGS, (F("id") == own) & F("at").begins_with(LONE)
    ),
    "index of a query": lambda own: Query(PLAYERS, F("team") == own + LONE, index="by-team"),
    "filter of a query": lambda own: Query(PLAIN, F("id") == own, filter=F("a") == LONE),
    "filter of a scan": lambda _own: Scan(PLAIN, filter=F("a") == LONE, limit=1),
    "page key of a query": lambda own: Query(
        STRINGS, F("id") == own, start={"id": own, "at": LONE}
    ),
    "page key of a scan": lambda own: Scan(PLAIN, start={"id": own + LONE}, limit=1),
    "key of a batch get": lambda own: BatchGet(PLAIN, ({"id": own + LONE},)),
    "item of a batch write": lambda own: BatchWrite(PLAIN, ({"id": own, "a": LONE},)),
    "key of a batch write": lambda own: BatchWrite(PLAIN, (), ({"id": own + LONE},)),
    "put of a transaction": lambda own: Transaction((Put(PLAIN, {"id": own + LONE}),)),
    "check of a transaction": lambda own: Transaction(
        (Check(PLAIN, {"id": own + LONE}, exists("id")),)
    ),
    "token": lambda own: Transaction((Put(PLAIN, {"id": own}),), LONE),
    "get of a transaction": lambda own: TransactionGet((Get(PLAIN, {"id": own + LONE}),)),
}


@pytest.mark.parametrize("place", OPERATIONS)
async def test_a_lone_surrogate_is_rejected_everywhere(engine: Engine, place: str) -> None:
    own = fresh()
    with pytest.raises(InvalidRequest) as error:
        await run_operation(engine, OPERATIONS[place](own))
    assert str(error.value).encode()  # so that a log or a response can contain it
    assert await stored(engine, PLAIN, {"id": own}) is None


async def test_a_lone_surrogate_is_rejected_in_many_transactions(engine: Engine) -> None:
    own = fresh()
    puts = [Transaction((Put(PLAIN, {"id": f"{own}{number}"}),)) for number in range(8)]
    with pytest.raises(InvalidRequest, match="Unicode"):
        await engine.transact_each([*puts, Transaction((Put(PLAIN, {"id": own + LONE}),))])
    assert await stored(engine, PLAIN, {"id": f"{own}0"}) is None


@pytest.mark.parametrize("build", [lambda: exists(LONE), lambda: F("a", LONE) == 1])
def test_a_path_with_a_lone_surrogate_cannot_be_built(build: Callable[[], Condition]) -> None:
    with pytest.raises(InvalidRequest, match="Unicode"):
        build()


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Table("things", partition=S(LONE)),
        lambda: Table("things", partition=S("id"), ttl=LONE),
        lambda: Table(
            "things",
            partition=S("id"),
            indexes=(GlobalIndex("by-a", S("a"), projection=include(LONE)),),
        ),
    ],
)
def test_a_declaration_with_a_lone_surrogate_is_invalid(declare: Callable[[], Table]) -> None:
    with pytest.raises(InvalidSchema, match="Unicode"):
        declare()
