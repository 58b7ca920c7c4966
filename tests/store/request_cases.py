"""Requests at and just past DynamoDB's limits, each with the verdict of the service.

`test_operations_verdicts.py` sends them to SQLite and, without our validation, to the emulators.
"""

from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

from tally.store.api import (
    BatchGet,
    BatchWrite,
    Check,
    Delete,
    Get,
    Operation,
    Put,
    Query,
    Scan,
    ScanSegment,
    Transaction,
    TransactionGet,
    Update,
)
from tally.store.expressions import (
    BeginsWith,
    Between,
    Compare,
    Condition,
    Contains,
    F,
    IfAbsent,
    In,
    Joined,
    Literal,
    Path,
    Set,
    Size,
    Sum,
    TypeIs,
    exists,
    list_append,
    make_path,
)
from tally.store.values import MAX_ITEM_BYTES, measure_item
from tests.store.tables import BINARIES, NUMBERED, NUMBERS, PLAIN, PLAYERS, STRINGS, fresh

Build: TypeAlias = Callable[[str], Operation]

A = make_path("a")
SURROGATE = "\ud800"
LONG_SORT, TOO_LONG_SORT = "s" * 1024, "s" * 1025


def padded(item: dict[str, Any], size: int) -> dict[str, Any]:
    """The item with an attribute that fills it to this size."""
    return {**item, "pad": "x" * (size - measure_item({**item, "pad": ""}))}


def nested(levels: int) -> Any:
    """A value of this many levels."""
    value: Any = "leaf"
    for _ in range(levels - 1):
        value = [value]
    return value


def put(**attributes: Any) -> Build:
    """A put into PLAIN."""
    return lambda own: Put(PLAIN, {"id": own, **attributes})


def put_if(condition: Condition) -> Build:
    """A conditional put into PLAIN."""
    return lambda own: Put(PLAIN, {"id": own}, condition)


def update(*actions: Any) -> Build:
    """An update of a new item in PLAIN."""
    return lambda own: Update(PLAIN, {"id": own}, actions)


def query(where: Callable[[str], Condition], **options: Any) -> Build:
    """A query of STRINGS."""
    return lambda own: Query(STRINGS, where(own), **options)


def sorted_by(test: Condition, **options: Any) -> Build:
    """A query of one partition of STRINGS."""
    return query(lambda own: (F("id") == own) & test, **options)


def scan(**options: Any) -> Build:
    """A scan of a page of one item."""
    return lambda _own: Scan(STRINGS, limit=1, **options)


def paged(table: Any, where: Callable[[str], Condition], start: Callable[[str], Any]) -> Build:
    """A query with a page key."""
    return lambda own: Query(table, where(own), start=start(own))


def one_of(tests: Iterable[Condition]) -> Condition:
    """The tests, joined by OR."""
    return reduce(lambda left, right: left | right, tests)


def any_of(count: int) -> Condition:
    """A condition of this many operators."""
    return one_of(F(f"a{number % 9}") > number for number in range((count + 1) // 2))


def partition(own: str) -> Condition:
    """The key condition on a partition."""
    return F("id") == own


ACCEPTED: dict[str, Build] = {
    # Keys.
    "partition key of 2048 bytes": lambda own: Put(PLAIN, {"id": own.ljust(2048, "x")}),
    "sort key of 1024 bytes": lambda own: Put(STRINGS, {"id": own, "at": LONG_SORT}),
    "number key of 38 digits": lambda own: Put(NUMBERS, {"id": own, "at": int("9" * 38)}),
    "number key of 10^125": lambda own: Put(NUMBERS, {"id": own, "at": 10**125}),
    "number key of 1E-130": lambda own: Put(NUMBERS, {"id": own, "at": Decimal("1E-130")}),
    "index sort key of 1024 bytes": lambda own: Put(
        PLAYERS, {"club": own, "name": "n", "city": LONG_SORT}
    ),
    "item of 200 KB and its entry in a local index": lambda own: Put(
        PLAYERS, padded({"club": own, "name": "n", "age": 1}, MAX_ITEM_BYTES // 2)
    ),
    # Values.
    "empty string": put(a=""),
    "empty binary": put(a=b""),
    "empty string in a list": put(a=[""]),
    "empty string in a set": put(a={"", "x"}),
    "empty binary in a set": put(a={b"", b"x"}),
    "empty list and map": put(a=[], b={}),
    "32 levels": put(a=nested(32)),
    "item of 400 KB": lambda own: Put(PLAIN, padded({"id": own}, MAX_ITEM_BYTES)),
    "attribute name of 65535 bytes": lambda own: Put(PLAIN, {"id": own, "n" * 65_535: 1}),
    # Key conditions.
    "sort key = 1024 bytes": sorted_by(F("at") == LONG_SORT),
    "sort key begins with 1024 bytes": sorted_by(F("at").begins_with(LONG_SORT)),
    "sort key between equal bounds": sorted_by(F("at").between("b", "b")),
    "key condition with the sort key first": query(lambda own: (F("at") > "a") & (F("id") == own)),
    "index query with a filter on the table's key": lambda own: Query(
        PLAYERS, F("team") == own, index="by-team", filter=F("club") == own
    ),
    "partition of a number equals a decimal": lambda _own: Query(
        NUMBERED, F("id") == Decimal("1.0")
    ),
    # Expressions.
    "300 operators": put_if(~any_of(299)),
    "IN of 100 options": put_if(~F("a").is_in(*range(100))),
    "comparison of two paths": put_if(F("a") != F("b")),
    "BETWEEN of equal bounds": put_if(~F("a").between(1, 1)),
    "begins_with an empty prefix": put_if(~F("a").begins_with("")),
    "size compared with a string": put_if(~(F("a").size() == "x")),
    "update without actions": update(),
    "update of two list positions": update(F("a").set([1, 2]), F("b").set(1)),
    "if_not_exists of the same path": update(F("a").set(F("a").if_not_exists(1))),
    "if_not_exists plus a number": update(F("a").set(F("a").if_not_exists(1) + 1)),
    "list_append of if_not_exists": update(F("a").set(list_append(F("a").if_not_exists([]), [1]))),
    "number of 38 digits": put(a=int("9" * 38)),
    "comparison of two values": put_if(~Compare("=", Literal(1), Literal(2))),
    "BETWEEN on a size": put_if(~Between(Size(A), Literal(1), Literal(2))),
    "if_not_exists of if_not_exists": update(
        Set(A, IfAbsent(make_path("b"), IfAbsent(make_path("c"), Literal(1))))
    ),
    "sum of two values": update(Set(A, Sum("+", Literal(1), Literal(2)))),
    "path of 32 parts": lambda own: Get(PLAIN, {"id": own}, (Path(("a",) * 32),)),
    "list position of 2^31 - 1": lambda own: Get(PLAIN, {"id": own}, (Path(("a", 2**31 - 1)),)),
    # Pages.
    "limit of 2^31 - 1": query(partition, limit=2**31 - 1),
    "limit of 1": sorted_by(F("at") > "a", limit=1),
    "page key of a missing item": paged(
        STRINGS, partition, lambda own: {"id": own, "at": "missing"}
    ),
    "count": query(partition, count_only=True),
    "count with a filter": query(partition, filter=F("a") == 1, count_only=True),
    "last of 1000000 segments": scan(segment=ScanSegment(999_999, 1_000_000)),
    "one segment": scan(segment=ScanSegment(0, 1)),
    # Batches and transactions.
    "batch write of 25": lambda own: BatchWrite(
        PLAIN, tuple({"id": f"{own}{number}"} for number in range(25))
    ),
    "batch get of 100": lambda own: BatchGet(
        PLAIN, tuple({"id": f"{own}{number}"} for number in range(100))
    ),
    "transaction of 100": lambda own: Transaction(
        tuple(Put(PLAIN, {"id": f"{own}{number}"}) for number in range(100))
    ),
    "transaction get of 100": lambda own: TransactionGet(
        tuple(Get(PLAIN, {"id": f"{own}{number}"}) for number in range(100))
    ),
    "token of 36 characters": lambda own: Transaction((Put(PLAIN, {"id": own}),), own.ljust(36)),
}

REJECTED: dict[str, Build] = {
    # Keys.
    "partition key of 2049 bytes": lambda own: Put(PLAIN, {"id": own.ljust(2049, "x")}),
    "get of a key of 2049 bytes": lambda own: Get(PLAIN, {"id": own.ljust(2049, "x")}),
    "delete of a key of 2049 bytes": lambda own: Delete(PLAIN, {"id": own.ljust(2049, "x")}),
    "sort key of 1025 bytes": lambda own: Put(STRINGS, {"id": own, "at": TOO_LONG_SORT}),
    "get of a sort key of 1025 bytes": lambda own: Get(STRINGS, {"id": own, "at": TOO_LONG_SORT}),
    "empty string key": lambda _own: Put(PLAIN, {"id": ""}),
    "empty binary key": lambda own: Put(BINARIES, {"id": own, "at": b""}),
    "get of an empty key": lambda _own: Get(PLAIN, {"id": ""}),
    "key of another type": lambda _own: Put(PLAIN, {"id": 1}),
    "missing sort key": lambda own: Put(STRINGS, {"id": own}),
    "get without the sort key": lambda own: Get(STRINGS, {"id": own}),
    "get with another attribute": lambda own: Get(PLAIN, {"id": own, "a": 1}),
    "number key of 39 digits": lambda own: Put(NUMBERS, {"id": own, "at": int("9" * 39)}),
    "number key of 10^126": lambda own: Put(NUMBERS, {"id": own, "at": 10**126}),
    "index sort key of 1025 bytes": lambda own: Put(
        PLAYERS, {"club": own, "name": "n", "city": TOO_LONG_SORT}
    ),
    "index key of another type": lambda own: Put(PLAYERS, {"club": own, "name": "n", "team": 1}),
    "empty index key": lambda own: Put(PLAYERS, {"club": own, "name": "n", "team": ""}),
    # Not a put: DynamoDB Local would store it, and scans of other tests would find it.
    "lone surrogate in a key": lambda own: Delete(PLAIN, {"id": own + SURROGATE}),
    "get of a key with a lone surrogate": lambda own: Get(PLAIN, {"id": own + SURROGATE}),
    "lone surrogate in a value": put(a=SURROGATE),
    "lone surrogate in a name": put(a={SURROGATE: 1}),
    "lone surrogate in a condition": put_if(F("a") != SURROGATE),
    "lone surrogate in a key condition": sorted_by(F("at") > SURROGATE),
    # Values.
    "33 levels": put(a=nested(33)),
    "number of 39 digits": put(a=int("9" * 39)),
    "number of 10^126": put(a=10**126),
    "number in a set of 39 digits": put(a={int("9" * 39)}),
    "item of 400 KB and a byte": lambda own: Put(PLAIN, padded({"id": own}, MAX_ITEM_BYTES + 1)),
    "attribute name of 65536 bytes": lambda own: Put(PLAIN, {"id": own, "n" * 65_536: 1}),
    "item above 200 KB and its entry in a local index": lambda own: Put(
        PLAYERS, padded({"club": own, "name": "n", "age": 1}, MAX_ITEM_BYTES // 2 + 1)
    ),
    # Key conditions.
    "partition key = 2049 bytes": query(lambda own: F("id") == own.ljust(2049, "x")),
    "sort key = 1025 bytes": sorted_by(F("at") == TOO_LONG_SORT),
    "sort key > 1025 bytes": sorted_by(F("at") > TOO_LONG_SORT),
    "sort key between with a bound of 1025 bytes": sorted_by(F("at").between("a", TOO_LONG_SORT)),
    "sort key begins with 1025 bytes": sorted_by(F("at").begins_with(TOO_LONG_SORT)),
    "binary sort key = 1025 bytes": lambda own: Query(
        BINARIES, (F("id") == own) & (F("at") == b"s" * 1025)
    ),
    "index key = 2049 bytes": lambda own: Query(
        PLAYERS, F("team") == own.ljust(2049, "x"), index="by-team"
    ),
    "partition key = empty": query(lambda _own: F("id") == ""),
    "sort key > empty": sorted_by(F("at") > ""),
    "sort key begins with empty": sorted_by(F("at").begins_with("")),
    "sort key begins with a number": lambda own: Query(
        NUMBERS, (F("id") == own) & F("at").begins_with(1)
    ),
    "sort key of another type": sorted_by(F("at") > 1),
    "sort key between with the higher bound first": sorted_by(F("at").between("b", "a")),
    "partition key > value": query(lambda own: F("id") > own),
    "sort key <> value": sorted_by(F("at") != "a"),
    "sort key IN": sorted_by(F("at").is_in("a", "b")),
    "key condition without the partition key": query(lambda _own: F("at") > "a"),
    "key condition on another attribute": sorted_by(F("a") == 1),
    "two conditions on the sort key": query(
        lambda own: (F("id") == own) & (F("at") > "a") & (F("at") < "b")
    ),
    "key condition with OR": query(lambda own: (F("id") == own) | (F("at") > "a")),
    "key condition with NOT": query(lambda own: ~(F("id") == own)),
    "filter on a key attribute": query(partition, filter=F("at") > "a"),
    "filter on an index key": lambda own: Query(
        PLAYERS, F("team") == own, index="by-team", filter=F("points") > 1
    ),
    "index query with a filter on an attribute outside of the index": lambda own: Query(
        PLAYERS, F("status") == own, index="by-status", filter=F("note") == "x"
    ),
    # Expressions.
    "BETWEEN of a path and itself": put_if(~Between(A, A, Literal(1))),
    "IN with the path itself": put_if(~In(A, (A,))),
    "begins_with the path itself": put_if(~BeginsWith(A, A)),
    "contains the path itself": put_if(~Contains(A, A)),
    "unknown attribute type": put_if(~TypeIs(A, "X")),  # type: ignore[arg-type]
    "order of a truth value": put_if(~Compare("<", A, Literal(True))),
    "size ordered with a list": put_if(~Compare(">", Size(A), Literal([1]))),
    "number of 39 digits in a condition": put_if(F("a") != int("9" * 39)),
    "values of 3 MB": put_if(F("a") != "x" * 3_000_000),
    "sum of a sum": update(Set(A, Sum("+", Sum("+", Literal(1), Literal(1)), Literal(1)))),
    "if_not_exists of a sum": update(
        Set(A, IfAbsent(make_path("b"), Sum("+", Literal(1), Literal(1))))
    ),
    "if_not_exists of list_append": update(
        Set(A, IfAbsent(make_path("b"), Joined(Literal([]), Literal([]))))
    ),
    "list_append of list_append": update(
        Set(A, Joined(Joined(Literal([]), Literal([])), Literal([])))
    ),
    "301 operators": put_if(any_of(301)),
    "IN of 101 options": put_if(~F("a").is_in(*range(101))),
    "comparison of a path with itself": put_if(F("a") != F("a")),
    "BETWEEN with the higher bound first": put_if(~F("a").between(2, 1)),
    "BETWEEN of two types": put_if(~F("a").between(1, "b")),
    "comparison with a list": put_if(~(F("a") > [1])),
    "begins_with a number": put_if(~F("a").begins_with(1)),
    "expression of more than 4096 bytes": put_if(
        one_of(F(f"name{number}", "x", "y") == number for number in range(200))
    ),
    "update of the key": update(F("id").set("other")),
    "update of one path twice": update(F("a").set(1), F("a").remove()),
    "update of overlapping paths": update(F("a").set({}), F("a", "b").set(1)),
    "update of a path as a map and as a list": update(F("a", "b").set(1), F("a", 0).set(1)),
    "add of a string": update(F("a").add("x")),
    "add of a list": update(F("a").add([1])),
    "discard of a number": update(F("a").discard(1)),
    "plus a string": update(F("a").set(F("a").if_not_exists(1) + "x")),
    "list_append of a string": update(F("a").set(list_append(F("a").if_not_exists([]), "x"))),
    "update through a missing map": update(F("a", "b").set(1)),
    "update with a missing path": update(F("a").set(F("b"))),
    "projection of one path twice": lambda own: Get(
        PLAIN, {"id": own}, (make_path("a"), make_path("a"))
    ),
    "projection of overlapping paths": lambda own: Get(
        PLAIN, {"id": own}, (make_path("a"), make_path("a", "b"))
    ),
    "projection of a path as a map and as a list": lambda own: Get(
        PLAIN, {"id": own}, (Path(("a", "b")), Path(("a", 0)))
    ),
    # Pages.
    "limit of 2^31": query(partition, limit=2**31),
    "limit of 0": query(partition, limit=0),
    "page key of another partition": paged(STRINGS, partition, lambda _: {"id": "x", "at": "a"}),
    "page key without the sort key": paged(STRINGS, partition, lambda own: {"id": own}),
    "page key with another attribute": paged(
        STRINGS, partition, lambda own: {"id": own, "at": "a", "b": 1}
    ),
    "page key of another type": paged(STRINGS, partition, lambda own: {"id": own, "at": 1}),
    "page key outside the key condition": paged(
        STRINGS, lambda own: (F("id") == own) & (F("at") > "m"), lambda own: {"id": own, "at": "a"}
    ),
    "page key with a lone surrogate": paged(
        STRINGS, partition, lambda own: {"id": own, "at": SURROGATE}
    ),
    "page key of 1025 bytes": paged(
        STRINGS, partition, lambda own: {"id": own, "at": TOO_LONG_SORT}
    ),
    "index page key without the index key": lambda own: Query(
        PLAYERS, F("team") == own, index="by-team", start={"club": own, "name": "n"}
    ),
    "scan page key without the sort key": lambda own: Scan(STRINGS, start={"id": own}),
    "unknown index": lambda own: Query(STRINGS, F("id") == own, index="by-nothing"),
    "consistent read of a global index": lambda own: Query(
        PLAYERS, F("team") == own, index="by-team", consistent=True
    ),
    "projection that a global index lacks": lambda own: Query(
        PLAYERS, F("status") == own, index="by-status", projection=(make_path("note"),)
    ),
    "count with a projection": query(partition, projection=(make_path("a"),), count_only=True),
    "scan count with a projection": scan(projection=(make_path("a"),), count_only=True),
    "segment equal to the number of segments": scan(segment=ScanSegment(4, 4)),
    "negative segment": scan(segment=ScanSegment(-1, 4)),
    "no segments": scan(segment=ScanSegment(0, 0)),
    "1000001 segments": scan(segment=ScanSegment(0, 1_000_001)),
    # Results.
    "put that returns ALL_NEW": lambda own: Put(PLAIN, {"id": own}, returns="ALL_NEW"),
    "delete that returns UPDATED_OLD": lambda own: Delete(
        PLAIN, {"id": own}, returns="UPDATED_OLD"
    ),
    # Batches and transactions.
    "update without actions in a transaction": lambda own: Transaction(
        (Update(PLAIN, {"id": own}, ()),)
    ),
    "empty batch write": lambda _own: BatchWrite(PLAIN),
    "batch write of 26": lambda own: BatchWrite(
        PLAIN, tuple({"id": f"{own}{number}"} for number in range(26))
    ),
    "batch write of one item twice": lambda own: BatchWrite(PLAIN, ({"id": own}, {"id": own})),
    "put and delete of one item in a batch": lambda own: BatchWrite(
        PLAIN, ({"id": own},), ({"id": own},)
    ),
    "empty batch get": lambda _own: BatchGet(PLAIN, ()),
    "batch get of 101": lambda own: BatchGet(
        PLAIN, tuple({"id": f"{own}{number}"} for number in range(101))
    ),
    "batch get of one key twice": lambda own: BatchGet(PLAIN, ({"id": own}, {"id": own})),
    "empty transaction": lambda _own: Transaction(()),
    "transaction of 101": lambda own: Transaction(
        tuple(Put(PLAIN, {"id": f"{own}{number}"}) for number in range(101))
    ),
    "transaction of one item twice": lambda own: Transaction(
        (Put(PLAIN, {"id": own}), Check(PLAIN, {"id": own}, exists("id")))
    ),
    "transaction of more than 4 MB": lambda own: Transaction(
        tuple(Put(PLAIN, padded({"id": f"{own}{number}"}, 390_000)) for number in range(11))
    ),
    "empty transaction get": lambda _own: TransactionGet(()),
    "transaction get of 101": lambda own: TransactionGet(
        tuple(Get(PLAIN, {"id": f"{own}{number}"}) for number in range(101))
    ),
    "transaction get of one item twice": lambda own: TransactionGet(
        (Get(PLAIN, {"id": own}), Get(PLAIN, {"id": own}))
    ),
    "token of 37 characters": lambda own: Transaction((Put(PLAIN, {"id": own}),), own.ljust(37)),
}

CASES: dict[str, tuple[Build, str]] = {
    **{name: (build, "accepted") for name, build in ACCEPTED.items()},
    **{name: (build, "rejected") for name, build in REJECTED.items()},
}


def make_request(case: str) -> Operation:
    """Build the request of a case with its own keys."""
    return CASES[case][0](fresh())
