"""The catalogue checks table ownership, undeclared methods and duplicate names."""

from typing import ClassVar

import pytest

from tally.store.access import (
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.catalogue import Catalogue, check_repositories, find_problems, owned_tables
from tally.store.errors import AccessViolation
from tally.store.expressions import F
from tally.store.schema import S, Table
from tests.store.example import (
    CATALOGUE,
    FIXTURES,
    FOLLOW_KEY,
    FOLLOWS,
    LOCK_KEY,
    LOCKS,
    Fixtures,
    Follows,
    Locks,
)


def test_the_example_keeps_all_rules() -> None:
    check_repositories(CATALOGUE)
    assert find_problems(CATALOGUE) == []


def test_an_empty_catalogue_keeps_all_rules() -> None:
    assert find_problems(Catalogue()) == []
    assert Catalogue().tables() == []


def test_a_catalogue_knows_its_tables_patterns_and_who_uses_an_index() -> None:
    names = [table.name for table in CATALOGUE.tables()]
    assert names == [
        "example-fixtures",
        "example-follow-counts",
        "example-follows",
        "example-locks",
    ]
    assert [entry.qualified_name for entry in CATALOGUE.entries("example")][:2] == [
        "Fixtures.get",
        "Fixtures.get_many",
    ]
    assert CATALOGUE.entries("another") == []
    assert [
        entry.qualified_name
        for entry in CATALOGUE.patterns_using_index("example-fixtures", "live-index")
    ] == ["Fixtures.live"]
    assert CATALOGUE.patterns_using_index("example-follows", "live-index") == []


class Plain:
    """A repository without `tables`: it owns those of its patterns."""

    @access("Get lock", GetItem(key=LOCK_KEY), table=LOCKS)
    async def get(self) -> None: ...

    @access(
        "Lock and follow",
        TransactWriteItems(PutItem(key=LOCK_KEY), PutItem(table=FOLLOWS, key=FOLLOW_KEY)),
        table=LOCKS,
        tables=(FOLLOWS,),
    )
    async def both(self) -> None: ...


def test_a_repository_owns_the_tables_of_its_patterns_unless_it_says_otherwise() -> None:
    assert owned_tables(Plain) == (LOCKS, FOLLOWS)
    assert owned_tables(Locks) == (LOCKS,)


def test_two_repositories_never_own_one_table() -> None:
    problems = find_problems(Catalogue({"one": (Fixtures, Follows, Locks), "two": (Plain,)}))
    assert "table example-locks has two owners: Locks and Plain" in problems
    assert "table example-follows has two owners: Follows and Plain" in problems


class Reader:
    tables: ClassVar = ()
    reads: ClassVar = (LOCKS, FIXTURES)

    @access("Read lock", GetItem(key=LOCK_KEY), table=LOCKS)
    async def get(self) -> None: ...


class Meddler(Reader):
    @access("Break lock", UpdateItem(key=LOCK_KEY), table=LOCKS)
    async def update(self) -> None: ...

    @access("Break follow", PutItem(key=FOLLOW_KEY), table=FOLLOWS)
    async def put(self) -> None: ...


def test_a_table_of_another_repository_may_be_read_and_not_written() -> None:
    assert find_problems(Catalogue({"example": (Fixtures, Follows, Locks, Reader)})) == []
    assert find_problems(Catalogue({"example": (Fixtures, Follows, Locks, Meddler)})) == [
        "Meddler.update writes to table example-locks, which Meddler may only read",
        "Meddler.put uses table example-follows, which Meddler does not own",
    ]


def test_a_table_that_is_read_has_an_owner() -> None:
    problems = find_problems(Catalogue({"example": (Fixtures, Reader)}))
    assert problems == ["Reader reads table example-locks, which no repository owns"]


def test_two_patterns_of_one_backend_never_have_one_name() -> None:
    """Patterns of different backends may share a name."""

    class Twice:
        tables: ClassVar = ()
        reads: ClassVar = (LOCKS,)

        @access("Acquire lock", Query(where=F("lockKey") == param("lockKey")), table=LOCKS)
        async def acquire(self) -> None: ...

    problems = find_problems(Catalogue({"example": (Locks, Twice)}))
    assert problems == ["example: Locks.acquire and Twice.acquire share the name 'Acquire lock'"]
    assert find_problems(Catalogue({"example": (Locks,), "other": (Twice,)})) == []


def test_every_public_method_of_a_repository_is_a_pattern() -> None:
    class Loose(Locks):
        def helper(self) -> None: ...

        def _private(self) -> None: ...

    problems = find_problems(Catalogue({"example": (Loose,)}))
    assert problems == [
        "Loose.helper is public but not an access pattern: add @access or a leading underscore",
    ]


def test_one_table_is_declared_once() -> None:
    other = Table("example-locks", partition=S("key"))

    class Other:
        tables: ClassVar = ()
        reads: ClassVar = (other,)

        @access("Get other lock", GetItem(key={"key": param("key")}), table=other)
        async def get(self) -> None: ...

    problems = find_problems(Catalogue({"example": (Locks, Other)}))
    assert problems == ["table example-locks is declared differently in Other"]


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(
        AccessViolation,
        match=r"has two owners: Locks and Plain\n(.*\n)*.*reads table example-fixtures",
    ):
        check_repositories(Catalogue({"example": (Locks, Plain, Reader)}))
