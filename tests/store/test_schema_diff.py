"""Every schema change is classified as safe, needing a migration, or impossible."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tally.store.errors import InvalidSchema
from tally.store.lockfile import normalize, render_lock
from tally.store.schema import (
    ALL,
    KEYS_ONLY,
    Attribute,
    GlobalIndex,
    Index,
    KeyPart,
    LocalIndex,
    N,
    S,
    Table,
    include,
)
from tally.store.schema_diff import ChangeImpact, SchemaChange, compare_schemas, parse_version
from tests.store.example import CATALOGUE, FIXTURES, FOLLOWS
from tests.store.schemas import schemas, tables

BASE = Table(
    "base",
    partition=S("id"),
    sort=S("at"),
    indexes=(
        GlobalIndex("by-owner", partition=S("owner"), sort=N("points"), projection=include("note")),
        LocalIndex("by-age", sort=N("age"), projection=KEYS_ONLY),
    ),
    ttl="expires",
    attributes=(
        Attribute("owner", "S", required=True),
        Attribute("note", "S"),
        Attribute("expires", "N"),
    ),
    version="1.2.3",
)
BY_OWNER, BY_AGE = BASE.by_name["by-owner"], BASE.by_name["by-age"]
PLAIN = replace(BASE, ttl=None, indexes=())


def attributes(**types: str) -> tuple[Attribute, ...]:
    """`note="S"` is optional, `note="S!"` is required."""
    return tuple(
        Attribute(name, kind.rstrip("!"), kind.endswith("!"))  # type: ignore[arg-type]
        for name, kind in types.items()
    )


CHANGES: dict[str, tuple[Table, Table, ChangeImpact]] = {
    "new optional attribute more": (
        BASE,
        replace(BASE, attributes=(*BASE.attributes, Attribute("more", "L"))),
        ChangeImpact.SAFE,
    ),
    "new required attribute more": (
        BASE,
        replace(BASE, attributes=(*BASE.attributes, Attribute("more", "L", required=True))),
        ChangeImpact.MIGRATION,
    ),
    "attribute note removed": (
        BASE,
        replace(BASE, attributes=attributes(owner="S!", expires="N")),
        ChangeImpact.MIGRATION,
    ),
    "type of attribute note changed from S to M": (
        BASE,
        replace(BASE, attributes=attributes(owner="S!", note="M", expires="N")),
        ChangeImpact.MIGRATION,
    ),
    "attribute note became required": (
        BASE,
        replace(BASE, attributes=attributes(owner="S!", note="S!", expires="N")),
        ChangeImpact.MIGRATION,
    ),
    "attribute owner became optional": (
        BASE,
        replace(BASE, attributes=attributes(owner="S", note="S", expires="N")),
        ChangeImpact.SAFE,
    ),
    "stream NEW_IMAGE turned on": (BASE, replace(BASE, stream="NEW_IMAGE"), ChangeImpact.SAFE),
    "stream KEYS_ONLY turned off": (replace(BASE, stream="KEYS_ONLY"), BASE, ChangeImpact.SAFE),
    "stream changed from KEYS_ONLY to OLD_IMAGE": (
        replace(BASE, stream="KEYS_ONLY"),
        replace(BASE, stream="OLD_IMAGE"),
        ChangeImpact.SAFE,
    ),
    "new global index by-note": (
        BASE,
        replace(BASE, indexes=(*BASE.indexes, GlobalIndex("by-note", S("note")))),
        ChangeImpact.SAFE,
    ),
    "global index by-owner removed": (BASE, replace(BASE, indexes=(BY_AGE,)), ChangeImpact.SAFE),
    "projection of index by-owner changed from note to ALL": (
        BASE,
        replace(BASE, indexes=(replace(BY_OWNER, projection=ALL), BY_AGE)),
        ChangeImpact.MIGRATION,
    ),
    "projection of index by-owner changed from note to at, note": (
        BASE,
        replace(BASE, indexes=(replace(BY_OWNER, projection=include("note", "at")), BY_AGE)),
        ChangeImpact.MIGRATION,
    ),
    "key of index by-owner changed from owner (S) + points (N) to owner (S)": (
        BASE,
        replace(BASE, indexes=(replace(BY_OWNER, sort=None), BY_AGE)),
        ChangeImpact.IMPOSSIBLE,
    ),
    "key of index by-owner changed from owner (S) + points (N) to owner (S) + points (S)": (
        BASE,
        replace(BASE, indexes=(replace(BY_OWNER, sort=S("points")), BY_AGE)),
        ChangeImpact.IMPOSSIBLE,
    ),
    "new local index by-city": (
        BASE,
        replace(BASE, indexes=(*BASE.indexes, LocalIndex("by-city", S("city")))),
        ChangeImpact.IMPOSSIBLE,
    ),
    "local index by-age removed": (
        BASE,
        replace(BASE, indexes=(BY_OWNER,)),
        ChangeImpact.IMPOSSIBLE,
    ),
    "sort key of local index by-age changed": (
        BASE,
        replace(BASE, indexes=(BY_OWNER, LocalIndex("by-age", S("age"), KEYS_ONLY))),
        ChangeImpact.IMPOSSIBLE,
    ),
    "projection of index by-age changed from KEYS_ONLY to ALL": (
        BASE,
        replace(BASE, indexes=(BY_OWNER, LocalIndex("by-age", N("age")))),
        ChangeImpact.IMPOSSIBLE,
    ),
    "index by-age changed from local to global": (
        BASE,
        replace(BASE, indexes=(BY_OWNER, GlobalIndex("by-age", S("id"), N("age"), KEYS_ONLY))),
        ChangeImpact.IMPOSSIBLE,
    ),
    "primary key changed from id (S) + at (S) to id (S)": (
        PLAIN,
        replace(PLAIN, sort=None),
        ChangeImpact.IMPOSSIBLE,
    ),
    "primary key changed from id (S) + at (S) to id (N) + at (S)": (
        PLAIN,
        replace(PLAIN, partition=N("id")),
        ChangeImpact.IMPOSSIBLE,
    ),
    "primary key changed from id (S) + at (S) to key (S) + at (S)": (
        PLAIN,
        replace(PLAIN, partition=S("key")),
        ChangeImpact.IMPOSSIBLE,
    ),
    "TTL enabled on until": (PLAIN, replace(PLAIN, ttl="until"), ChangeImpact.SAFE),
    "TTL enabled on expires": (PLAIN, replace(PLAIN, ttl="expires"), ChangeImpact.MIGRATION),
    "TTL on expires disabled": (BASE, replace(BASE, ttl=None), ChangeImpact.MIGRATION),
    "TTL moved from expires to until": (
        BASE,
        replace(BASE, ttl="until"),
        ChangeImpact.MIGRATION,
    ),
    "version changed from 1.2.3 to 1.10.0": (
        BASE,
        replace(BASE, version="1.10.0"),
        ChangeImpact.SAFE,
    ),
    "version changed from 1.2.3 to 2.0.0": (
        BASE,
        replace(BASE, version="2.0.0"),
        ChangeImpact.MIGRATION,
    ),
    "version changed from 1.2.3 to 1.2.2": (
        BASE,
        replace(BASE, version="1.2.2"),
        ChangeImpact.IMPOSSIBLE,
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_change_has_its_class(what: str) -> None:
    before, after, cost = CHANGES[what]
    (change,) = compare_schemas([before], [after])
    assert (change.table, change.description, change.impact) == ("base", what, cost)
    assert bool(change.advice) or cost is ChangeImpact.SAFE


def test_a_new_table_is_safe_and_a_removed_one_needs_a_migration() -> None:
    assert [(change.description, change.impact) for change in compare_schemas([], [BASE])] == [
        ("new table", ChangeImpact.SAFE)
    ]
    (change,) = compare_schemas([BASE], [])
    assert (change.description, change.impact, change.accepted) == (
        "table removed",
        ChangeImpact.MIGRATION,
        False,
    )
    assert "--drop base" in change.advice


def test_an_index_in_use_cannot_be_removed() -> None:
    """The catalogue knows its readers; removal is safe without any."""

    def in_use(table: str, index: str) -> list[str]:
        return [entry.qualified_name for entry in CATALOGUE.patterns_using_index(table, index)]

    without = replace(FIXTURES, indexes=())
    (league, live) = compare_schemas([FIXTURES], [without], in_use)
    assert (league.impact, league.advice) == (
        ChangeImpact.IMPOSSIBLE,
        "still used by Fixtures.of_league",
    )
    assert (live.impact, live.advice) == (ChangeImpact.IMPOSSIBLE, "still used by Fixtures.live")
    assert {change.impact for change in compare_schemas([FIXTURES], [without])} == {
        ChangeImpact.SAFE
    }


def test_a_new_major_version_accepts_migrations_only() -> None:
    after = replace(
        BASE, attributes=attributes(owner="S!"), ttl=None, indexes=(BY_OWNER,), version="2.0.0"
    )
    changes = {change.description: change for change in compare_schemas([BASE], [after])}
    assert changes["attribute note removed"].accepted
    assert changes["version changed from 1.2.3 to 2.0.0"].accepted
    assert not changes["local index by-age removed"].accepted
    not_raised = compare_schemas([BASE], [replace(BASE, ttl=None, version="1.9.0")])
    assert [change.accepted for change in not_raised] == [False, False]


@given(schemas())
def test_equal_schemas_have_no_difference(schema: list[Table]) -> None:
    assert compare_schemas(schema, schema) == []
    assert compare_schemas([normalize(table) for table in schema], schema) == []


@given(tables(), tables())
def test_schemas_have_no_differences_exactly_if_their_locks_are_equal(
    before: Table, after: Table
) -> None:
    """The diff and the lock cover the same properties."""
    after = replace(after, name=before.name)
    assert (compare_schemas([before], [after]) == []) == (
        render_lock([before]) == render_lock([after])
    )


Mutation = Callable[[Table, Any], Table | None]


def _retyped(part: KeyPart) -> KeyPart:
    return KeyPart(part.name, "N" if part.type == "S" else "S")


def _change_partition_type(table: Table, _: Any) -> Table | None:
    if any(index.local or part_of(index, table.partition.name) for index in table.by_name.values()):
        return None
    return replace(table, partition=_retyped(table.partition))


def part_of(index: Index, name: str) -> bool:
    return name in {index.partition.name, index.sort.name if index.sort else None}


def _drop_or_add_sort(table: Table, _: Any) -> Table | None:
    if table.sort is None:
        return replace(table, sort=S("fresh sort key"))
    return (
        None if any(index.local for index in table.by_name.values()) else replace(table, sort=None)
    )


def _add_attribute(required: bool) -> Mutation:
    return lambda table, _: replace(
        table, attributes=(*table.attributes, Attribute("a fresh attribute", "L", required))
    )


def _drop_attribute(table: Table, draw: Any) -> Table | None:
    if not table.attributes:
        return None
    removed = draw(st.sampled_from(table.attributes))
    return replace(
        table, attributes=tuple(attribute for attribute in table.attributes if attribute != removed)
    )


def _each_attribute(change: Callable[[Attribute], Attribute | None]) -> Mutation:
    def mutate(table: Table, draw: Any) -> Table | None:
        fit = [
            attribute
            for attribute in table.attributes
            if change(attribute) and attribute.name != table.ttl
        ]
        if not fit:
            return None
        chosen = draw(st.sampled_from(fit))
        changed = [
            change(declared) if declared == chosen else declared for declared in table.attributes
        ]
        return replace(table, attributes=tuple(filter(None, changed)))

    return mutate


def _add_global(table: Table, _: Any) -> Table | None:
    return replace(
        table, indexes=(*table.indexes, GlobalIndex("a-fresh-index", S("a fresh attribute")))
    )


def _add_local(table: Table, _: Any) -> Table | None:
    return (
        None
        if table.sort is None
        else replace(
            table, indexes=(*table.indexes, LocalIndex("a-fresh-index", S("a fresh attribute")))
        )
    )


def _drop_index(*, local: bool) -> Mutation:
    def mutate(table: Table, draw: Any) -> Table | None:
        fit = [index for index in table.by_name.values() if index.local is local]
        if not fit:
            return None
        removed = draw(st.sampled_from(fit))
        return replace(table, indexes=tuple(index for index in table.indexes if index != removed))

    return mutate


def _change_index(change: Callable[[Index], Index], *, local: bool) -> Mutation:
    def mutate(table: Table, draw: Any) -> Table | None:
        fit = [index for index in table.by_name.values() if index.local is local]
        if not fit:
            return None
        chosen = draw(st.sampled_from(fit))
        return replace(
            table,
            indexes=tuple(
                change(index) if index == chosen else index for index in table.by_name.values()
            ),
        )

    return mutate


def _change_ttl(ttl: str | None) -> Mutation:
    return lambda table, _: None if table.ttl is None else replace(table, ttl=ttl)


def _reproject(index: Index) -> Index:
    return replace(index, projection=KEYS_ONLY if index.projection == ALL else ALL)


def _rekey(index: Index) -> Index:
    return replace(index, sort=S("a fresh attribute"))


MUTATIONS: dict[str, tuple[Mutation, ChangeImpact]] = {
    "another type of partition key": (_change_partition_type, ChangeImpact.IMPOSSIBLE),
    "a sort key more or less": (_drop_or_add_sort, ChangeImpact.IMPOSSIBLE),
    "an optional attribute more": (_add_attribute(required=False), ChangeImpact.SAFE),
    "a required attribute more": (_add_attribute(required=True), ChangeImpact.MIGRATION),
    "an attribute less": (_drop_attribute, ChangeImpact.MIGRATION),
    "an attribute of another type": (
        _each_attribute(
            lambda declared: replace(declared, type="L" if declared.type != "L" else "M")
        ),
        ChangeImpact.MIGRATION,
    ),
    "an attribute made required": (
        _each_attribute(
            lambda declared: None if declared.required else replace(declared, required=True)
        ),
        ChangeImpact.MIGRATION,
    ),
    "an attribute made optional": (
        _each_attribute(
            lambda declared: replace(declared, required=False) if declared.required else None
        ),
        ChangeImpact.SAFE,
    ),
    "a global index more": (_add_global, ChangeImpact.SAFE),
    "a local index more": (_add_local, ChangeImpact.IMPOSSIBLE),
    "a global index less": (_drop_index(local=False), ChangeImpact.SAFE),
    "a local index less": (_drop_index(local=True), ChangeImpact.IMPOSSIBLE),
    "another projection of a global index": (
        _change_index(_reproject, local=False),
        ChangeImpact.MIGRATION,
    ),
    "another projection of a local index": (
        _change_index(_reproject, local=True),
        ChangeImpact.IMPOSSIBLE,
    ),
    "another key of a global index": (_change_index(_rekey, local=False), ChangeImpact.IMPOSSIBLE),
    "another key of a local index": (_change_index(_rekey, local=True), ChangeImpact.IMPOSSIBLE),
    "another TTL": (_change_ttl("another"), ChangeImpact.MIGRATION),
    "no TTL": (_change_ttl(None), ChangeImpact.MIGRATION),
    "another major version": (
        lambda table, _: replace(table, version="99.0.0"),
        ChangeImpact.MIGRATION,
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
# So many of each; a table that has nothing to change in that way is passed over, and for some ways
# that is most of them.
@settings(
    max_examples=settings().max_examples // 5, suppress_health_check=[HealthCheck.filter_too_much]
)
@given(data=st.data())
def test_any_single_change_is_detected_and_classified(name: str, data: st.DataObject) -> None:
    mutate, cost = MUTATIONS[name]
    table = data.draw(tables())
    try:
        mutated = mutate(table, data.draw)
    except InvalidSchema:
        mutated = None
    assume(mutated is not None)
    assert mutated is not None
    changes: list[SchemaChange] = compare_schemas([table], [mutated])
    assert [change.impact for change in changes] == [cost]
    assert changes[0].accepted == (name == "another major version")


@pytest.mark.parametrize("version", ["", "1", "1.0", "v1.0.0", "1.0.0-beta", "01.0.0", "1.0.0.0"])
def test_a_version_is_three_numbers(version: str) -> None:
    with pytest.raises(InvalidSchema, match=r"three numbers such as 1\.0\.0"):
        parse_version(replace(FOLLOWS, version=version))
    with pytest.raises(InvalidSchema):
        compare_schemas([], [replace(FOLLOWS, version=version)])
