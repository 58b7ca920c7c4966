"""Table declarations and keys are validated."""

from typing import Any

import pytest

from tally.store.errors import InvalidKey, InvalidSchema, UnknownIndex
from tally.store.schema import (
    ALL,
    KEYS_ONLY,
    Attribute,
    B,
    GlobalIndex,
    Index,
    KeyPart,
    LocalIndex,
    N,
    S,
    Table,
    check_item_keys,
    check_key,
    include,
    index_key,
)

MATCHES = Table(
    "matches",
    partition=S("league"),
    sort=N("start"),
    indexes=(
        GlobalIndex("by-team", partition=S("team"), sort=S("venue"), projection=KEYS_ONLY),
        GlobalIndex("by-day", partition=N("day")),
        LocalIndex("by-rank", sort=B("rank"), projection=include("title")),
    ),
    ttl="expires",
)


def test_a_table_has_a_key_indexes_and_a_time_to_live() -> None:
    assert MATCHES.key == (KeyPart("league", "S"), KeyPart("start", "N"))
    assert MATCHES.key_names == ("league", "start")
    assert [index.name for index in MATCHES.by_name.values()] == ["by-team", "by-day", "by-rank"]
    assert MATCHES.primary_key({"league": "x", "start": 1, "more": 2}) == {
        "league": "x",
        "start": 1,
    }


def test_a_local_index_takes_the_partition_of_its_table() -> None:
    index = MATCHES.index("by-rank")
    assert index == Index("by-rank", S("league"), B("rank"), include("title"), local=True)
    assert index_key(index) == (S("league"), B("rank"))


def test_a_global_index_defaults_to_no_sort_key_and_all_attributes() -> None:
    index = MATCHES.index("by-day")
    assert (index.sort, index.projection, index.local) == (None, ALL, False)


def test_an_unknown_index_error_lists_the_existing_indexes() -> None:
    with pytest.raises(UnknownIndex, match=r"matches.*by-venue.*by-team, by-day, by-rank"):
        MATCHES.index("by-venue")


def declare(**changes: Any) -> Table:
    return Table(**{"name": "matches", "partition": S("league"), "sort": N("start"), **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "ab"}, "3 to 255"),
        ({"name": "a" * 256}, "3 to 255"),
        ({"name": "has space"}, "3 to 255"),
        ({"indexes": (GlobalIndex("ix", partition=S("a")),)}, "3 to 255"),
        (
            {
                "indexes": (
                    GlobalIndex("one", partition=S("a")),
                    GlobalIndex("one", partition=S("b")),
                )
            },
            "must be unique",
        ),
        ({"sort": S("league")}, "partition key and sort key must differ"),
        (
            {"indexes": (GlobalIndex("one", partition=S("a"), sort=S("a")),)},
            "partition key and sort key must differ",
        ),
        (
            {"indexes": (GlobalIndex("one", partition=N("league")),)},
            "league is declared with two types",
        ),
        ({"indexes": (LocalIndex("one", sort=S("start")),)}, "start is declared with two types"),
        (
            {"sort": None, "indexes": (LocalIndex("one", sort=S("a")),)},
            "requires a table with a sort key",
        ),
        (
            {"indexes": tuple(LocalIndex(f"local-{n}", sort=S(f"a{n}")) for n in range(6))},
            "at most 20 global and 5 local",
        ),
        (
            {"indexes": tuple(GlobalIndex(f"global-{n}", partition=S(f"a{n}")) for n in range(21))},
            "at most 20 global and 5 local",
        ),
        ({"attributes": (Attribute("title", "S"), Attribute("title", "N"))}, "declared twice"),
        ({"attributes": (Attribute("league", "N"),)}, "league is a key of type S"),
        (
            {"ttl": "expires", "attributes": (Attribute("expires", "S"),)},
            "expires must be a number",
        ),
        ({"indexes": (GlobalIndex("one", partition=S("a"), projection=include()),)}, "one"),
        ({"indexes": (GlobalIndex("one", partition=S("a"), projection=include("x", "x")),)}, "one"),
        (
            {
                "indexes": (
                    GlobalIndex(
                        "one", partition=S("a"), projection=include(*(f"x{n}" for n in range(101)))
                    ),
                )
            },
            "100",
        ),
        ({"indexes": (Index("one", S("other"), S("a"), local=True),)}, "table's partition key"),
        ({"partition": S("")}, "1 to 65535 bytes, not 0"),
        ({"partition": S("n" * 256)}, "255"),
    ],
)
def test_a_declaration_that_dynamodb_rejects_is_rejected(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidSchema, match=words):
        declare(**changes)


def test_a_table_takes_20_global_and_5_local_indexes() -> None:
    table = declare(
        indexes=(
            *(GlobalIndex(f"global-{n}", partition=S(f"a{n}")) for n in range(20)),
            *(LocalIndex(f"local-{n}", sort=S(f"a{n}")) for n in range(5)),
        )
    )
    assert len(table.by_name) == 25


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ({"league": "x"}, "start is missing"),
        ({}, "league is missing"),
        ({"league": "x", "start": "1"}, "start is of type N, not S"),
        ({"league": None, "start": 1}, "league is of type S, not NULL"),
        ({"league": "", "start": 1}, "league is empty"),
        ({"league": "x" * 2049, "start": 1}, "2049 bytes; the limit is 2048"),
        ({"league": "é" * 1025, "start": 1}, "2050 bytes; the limit is 2048"),
        ({"league": "x", "start": 1, "more": 2}, "more is not part of the key"),
    ],
)
def test_a_key_that_is_not_exactly_the_tables_is_rejected(key: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidKey, match=words):
        check_key(MATCHES, key)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"team": 1}, "by-team.*team is of type S, not N"),
        ({"team": ""}, "by-team.*team is empty"),
        ({"venue": ""}, "by-team.*venue is empty"),
        ({"venue": "x" * 1025}, "by-team.*1025 bytes; the limit is 1024"),
        ({"team": "x" * 2049}, "by-team.*2049 bytes; the limit is 2048"),
        ({"day": "monday"}, "by-day.*day is of type N, not S"),
        ({"rank": b"x" * 1025}, "by-rank.*1025 bytes; the limit is 1024"),
        ({"rank": None}, "by-rank.*rank is of type B, not NULL"),
    ],
)
def test_an_item_with_a_bad_index_key_is_rejected(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidKey, match=words):
        check_item_keys(MATCHES, {"league": "x", "start": 1, **attributes}, 100)


def test_an_item_may_lack_the_keys_of_indexes() -> None:
    item = {"league": "x", "start": 1}
    check_item_keys(MATCHES, item, 100)
    check_key(MATCHES, item)
    assert MATCHES.primary_key(item) == item


@pytest.mark.parametrize(
    ("expires", "expired"),
    [(99, True), (100, True), (101, False), ("99", False), (None, False), ({1, 2}, False)],
)
def test_an_item_has_expired_when_its_number_of_epoch_seconds_has_passed(
    expires: Any, expired: bool
) -> None:
    assert MATCHES.is_expired({"league": "x", "start": 1, "expires": expires}, now=100.0) is expired
    assert MATCHES.is_expired({"league": "x", "start": 1}, now=100.0) is False


def test_tables_of_the_same_declaration_are_equal_and_share_a_hash() -> None:
    assert declare() == declare()
    assert hash(declare()) == hash(declare(ttl="other"))
    assert declare() != declare(ttl="other")
