"""An invalid request raises its specific error, and nothing is written.

`tests/store` checks the errors on all engines. These tests compare the files byte by byte: the
rejection must precede the first write, not undo it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tally.store.api import (
    BatchGet,
    BatchWrite,
    Check,
    Delete,
    Get,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    Update,
)
from tally.store.errors import (
    ConditionFailed,
    DuplicateItem,
    InvalidExpression,
    InvalidKey,
    InvalidNumber,
    InvalidPageKey,
    InvalidRequest,
    InvalidValue,
    ItemTooLarge,
    RequestTooLarge,
    StoreError,
    TableDiffers,
    TableExists,
    TableNotFound,
    TokenMismatch,
    TooManyItems,
    TransactionCancelled,
    UnknownIndex,
)
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import GlobalIndex, S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tests.store.tables import NEVER_MADE, PLAIN, PLAYERS

Call = Callable[[SqliteEngine], Awaitable[Any]]
KEY = {"club": "north", "name": "ann"}
ANN = {**KEY, "team": "red", "points": 7, "status": "in"}
BIG = "x" * (400 * 1024)


def put(**attributes: Any) -> Call:
    return lambda engine: engine.put(Put(PLAYERS, {**KEY, **attributes}))


def put_item(item: Any) -> Call:
    return lambda engine: engine.put(Put(PLAYERS, item))


def update(*actions: Any, condition: Any = None) -> Call:
    return lambda engine: engine.update(Update(PLAYERS, KEY, actions, condition))


def batch(*puts: Any, deletes: tuple[Any, ...] = ()) -> Call:
    return lambda engine: engine.batch_write(BatchWrite(PLAYERS, puts, deletes))


def transact(*writes: Any, token: Any = None) -> Call:
    return lambda engine: engine.transact(Transaction(writes, token))


def query(where: Any = F("club") == "north", **options: Any) -> Call:  # noqa: B008 - a frozen tree
    return lambda engine: engine.query(Query(PLAYERS, where, **options))


def scan(**options: Any) -> Call:
    return lambda engine: engine.scan(Scan(PLAYERS, **options))


def player(number: int) -> dict[str, Any]:
    return {"club": "south", "name": f"player-{number:03}"}


def good(number: int = 1) -> Put:
    return Put(PLAYERS, player(number))


Case = tuple[Call, type[StoreError], str]
CASES: dict[str, Case] = {
    "a key of the wrong type": (put(name=5), InvalidKey, "name is of type S, not N"),
    "an index key of the wrong type": (
        put(points="seven"),
        InvalidKey,
        "points is of type N, not S",
    ),
    "a missing key attribute": (put_item({"club": "north"}), InvalidKey, "name is missing"),
    "an empty key string": (put(name=""), InvalidKey, "name is empty"),
    "an empty index key string": (put(team=""), InvalidKey, "team is empty"),
    "a key that is too long": (put(name="x" * 1025), InvalidKey, "1025 bytes"),
    "a float": (put(points=7.5), InvalidNumber, "float"),
    "a number of 39 digits": (put(points=10**38 + 1), InvalidNumber, "38 significant digits"),
    "a decimal of 39 digits": (
        put(points=Decimal("0." + "9" * 39)),
        InvalidNumber,
        "38 significant digits",
    ),
    "a number that is none": (put(points=Decimal("NaN")), InvalidNumber, "NaN"),
    "a number that is too large": (put(points=Decimal("1E126")), InvalidNumber, "magnitude"),
    "an object": (put(note=object()), InvalidValue, "object"),
    "an empty set": (put(tags=set()), InvalidValue, "must not be empty"),
    "a set of two types": (put(tags={1, "a"}), InvalidValue, "one type"),
    "half a character": (put(note="\ud800"), InvalidValue, "Unicode"),
    "an item that is no map": (put_item([1]), InvalidValue, "a map"),
    "an attribute without a name": (put_item({**KEY, "": 1}), InvalidValue, "name"),
    "an item of 401 KB": (put(note=BIG + "x" * 1024), ItemTooLarge, "409600"),
    "an update to 401 KB": (update(F("note").set(BIG)), ItemTooLarge, "409600"),
    "a get by half a key": (
        lambda engine: engine.get(Get(PLAYERS, {"club": "north"})),
        InvalidKey,
        "missing",
    ),
    "a get by more than the key": (
        lambda engine: engine.get(Get(PLAYERS, ANN)),
        InvalidKey,
        "not part of the key",
    ),
    "a delete by half a key": (
        lambda engine: engine.delete(Delete(PLAYERS, {"club": "north"})),
        InvalidKey,
        "missing",
    ),
    "an update of the key": (update(F("name").set("bob")), InvalidExpression, "part of the key"),
    "an update of one place twice": (
        update(F("x").set(1), F("x").remove()),
        InvalidExpression,
        "overlap",
    ),
    "an update that adds a string": (
        update(F("x").add("one")),
        InvalidExpression,
        "a number or a set",
    ),
    "an update that adds to a string": (update(F("team").add(1)), InvalidExpression, "not N"),
    "an update from what is not there": (
        update(F("x").set(F("gone") + 1)),
        InvalidExpression,
        "gone",
    ),
    "an update to an unfit index key": (update(F("points").set("seven")), InvalidKey, "of type N"),
    "an update that is a string": (
        update("SET x = 1"),
        InvalidExpression,
        "is not an update action",
    ),
    "a condition given as a string": (
        update(F("x").set(1), condition="x = 1"),
        InvalidExpression,
        "x = 1",
    ),
    "a condition that is a mere field": (
        update(F("x").set(1), condition=F("x")),
        InvalidExpression,
        "is not a condition",
    ),
    "26 puts in one batch": (batch(*map(player, range(26))), TooManyItems, "25"),
    "an empty batch": (batch(), InvalidRequest, "empty"),
    "a batch that names an item twice": (
        batch(player(1), deletes=(player(1),)),
        DuplicateItem,
        "twice",
    ),
    "a batch with one bad item": (
        batch(*map(player, range(24)), {"club": "south"}),
        InvalidKey,
        "missing",
    ),
    "a batch with one large item": (batch(player(1), {**KEY, "note": BIG}), ItemTooLarge, "409600"),
    "a batch get of 101 keys": (
        lambda engine: engine.batch_get(BatchGet(PLAYERS, tuple(map(player, range(101))))),
        TooManyItems,
        "100",
    ),
    "a transaction of 101 items": (transact(*map(good, range(101))), TooManyItems, "100"),
    "a transaction that names an item twice": (
        transact(good(), Check(PLAYERS, player(1), not_exists("x"))),
        DuplicateItem,
        "twice",
    ),
    "a transaction that reads an item twice": (
        lambda engine: engine.transact_get(TransactionGet((Get(PLAYERS, KEY), Get(PLAYERS, KEY)))),
        DuplicateItem,
        "twice",
    ),
    "a transaction of more than 4 MB": (
        transact(*(Put(PLAYERS, {**player(number), "note": BIG[:-100]}) for number in range(11))),
        RequestTooLarge,
        "4194304",
    ),
    "a transaction with one bad item": (
        transact(good(), Put(PLAYERS, {"club": "south"})),
        InvalidKey,
        "missing",
    ),
    "one bad transaction among several": (
        lambda engine: engine.transact_each(
            [Transaction((good(),)), Transaction((Put(PLAYERS, {"club": "south"}),))]
        ),
        InvalidKey,
        "missing",
    ),
    "a transaction with a read in it": (
        transact(good(), Get(PLAYERS, KEY)),
        InvalidRequest,
        "not Get",
    ),
    "a transaction with an endless token": (transact(good(), token="t" * 37), InvalidRequest, "36"),
    "a used token": (transact(good(), token="used"), TokenMismatch, "used"),
    "a transaction with a failed condition": (
        transact(good(), Check(PLAYERS, KEY, not_exists("club"))),
        TransactionCancelled,
        "None, ConditionalCheckFailed",
    ),
    "a transaction with an update too large": (
        transact(good(), Update(PLAYERS, KEY, (F("note").set(BIG),))),
        TransactionCancelled,
        "None, ValidationError",
    ),
    "a failed condition": (
        update(F("x").set(1), condition=not_exists("club")),
        ConditionFailed,
        "players",
    ),
    "an unknown index": (query(index="by-shoe"), UnknownIndex, "by-shoe"),
    "an unknown index of a scan": (scan(index="by-shoe"), UnknownIndex, "by-shoe"),
    "a query without the partition key": (query(F("name") == "ann"), InvalidExpression, "club"),
    "a query for more than the partition": (query(F("club") > "north"), InvalidExpression, "="),
    "a query given as a string": (query("club = north"), InvalidExpression, "str"),
    "a filter on the key": (query(filter=F("name") == "ann"), InvalidExpression, "name"),
    "a filter given as a string": (query(filter="team = red"), InvalidExpression, "team = red"),
    "a limit of nothing": (query(limit=0), InvalidRequest, "limit"),
    "a page key with other attributes": (query(start={"club": "north"}), InvalidPageKey, "name"),
    "a page key of another partition": (
        query(start={"club": "south", "name": "ann"}),
        InvalidPageKey,
        "another partition",
    ),
    "a page key outside of the range": (
        query((F("club") == "north") & (F("name") < "b"), start={"club": "north", "name": "z"}),
        InvalidPageKey,
        "outside",
    ),
    "a page key of another type": (
        query(start={"club": "north", "name": 5}),
        InvalidPageKey,
        "type S",
    ),
    "a page key that is no key": (query(start="abc"), InvalidPageKey, "exactly"),
    "a page key of another index": (scan(index="by-team", start=KEY), InvalidPageKey, "team"),
    "a table that does not exist": (
        lambda engine: engine.put(Put(NEVER_MADE, {"id": "x"})),
        TableNotFound,
        "never-made",
    ),
    "a query of such a table": (
        lambda engine: engine.query(Query(NEVER_MADE, F("id") == "x")),
        TableNotFound,
        "never-made",
    ),
    "a drop of such a table": (
        lambda engine: engine.drop_table("never-made"),
        TableNotFound,
        "never-made",
    ),
    "a table that is there": (lambda engine: engine.create_table(PLAYERS), TableExists, "players"),
    "a table with another key": (
        lambda engine: engine.ensure_table(Table("players", S("id"))),
        TableDiffers,
        "key",
    ),
    "a declared index that does not exist": (
        lambda engine: engine.query(
            Query(
                Table("plain", S("id"), indexes=(GlobalIndex("by-x", S("x")),)),
                F("x") == "1",
                "by-x",
            )
        ),
        UnknownIndex,
        "by-x",
    ),
    "a declared key that is not the table's": (
        lambda engine: engine.put(Put(Table("plain", S("other")), {"other": "x"})),
        InvalidKey,
        "id is missing",
    ),
}


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path_factory.mktemp("bad-input")) as opened:
        await opened.create_table(PLAYERS)
        await opened.create_table(PLAIN)
        await opened.put(Put(PLAYERS, ANN))
        await opened.transact(Transaction((Put(PLAIN, {"id": "first"}),), "used"))
        yield opened


def fingerprint(database: Path) -> list[str]:
    """The bytes of the database and its log."""
    return [
        sha256(path.read_bytes()).hexdigest()
        for path in (database, database.with_name(database.name + "-wal"))
    ]


@pytest.mark.parametrize("name", CASES)
async def test_invalid_input_is_rejected_before_anything_is_written(
    engine: SqliteEngine, name: str
) -> None:
    call, error, words = CASES[name]
    before = fingerprint(engine.path)
    with pytest.raises(error) as rejected:
        await call(engine)
    assert type(rejected.value) is error
    assert words in str(rejected.value)
    assert fingerprint(engine.path) == before
    assert (await engine.get(Get(PLAYERS, KEY))).item == ANN


async def test_the_fingerprint_detects_a_write(engine: SqliteEngine) -> None:
    """Proves that the test above can fail."""
    before = fingerprint(engine.path)
    await engine.put(Put(PLAIN, {"id": "seen"}))
    assert fingerprint(engine.path) != before


RESERVED = (
    "name",
    "status",
    "size",
    "year",
    "count",
    "values",
    "table",
    "select",
    "and",
    "between",
    "exists",
    "is",
    "timestamp",
)
STRANGE = (
    "a.b",
    "a[0]",
    "#a",
    ":a",
    "a b",
    "é",
    "日本",
    "'; DROP TABLE x; --",
    '"',
    "\\",
    "1",
    "_",
    "SET x = 1",
)


@pytest.mark.parametrize("word", RESERVED + STRANGE)
async def test_any_attribute_name_is_allowed_in_every_expression(
    engine: SqliteEngine, word: str
) -> None:
    """Includes reserved words and names that look like parts of an expression."""
    key = {"id": f"word-{word}"}
    await engine.put(Put(PLAIN, {**key, word: 1}, not_exists(word)))
    await engine.update(
        Update(PLAIN, key, (F(word).set(F(word) + 1),), exists(word) & (F(word) == 1))
    )
    found = await engine.query(
        Query(PLAIN, F("id") == key["id"], filter=F(word).is_in(2), projection=(F(word).path,))
    )
    assert found.items == [{word: 2}]
    with pytest.raises(ConditionFailed):
        await engine.delete(Delete(PLAIN, key, F(word) > 2))
    await engine.update(Update(PLAIN, key, (F(word).remove(),)))
    assert (await engine.get(Get(PLAIN, key))).item == key
