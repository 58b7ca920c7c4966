"""What has changed between the locked tables and the declared ones, and what each change costs.

- **safe**: no data has to be touched. A new table, a new optional attribute, an attribute that is no longer required, a new
  global index, a global index removed that no pattern uses.
- **migration**: data that is there has to be brought along, or readers of it have to be ready first. An attribute removed,
  of another type, or required from now on; a TTL that starts, stops or moves; another projection (the index is built anew); a
  new major version, which says that something means something else; a table removed.
- **impossible**: DynamoDB cannot do it to a table that is there. Another primary key, another key of an index of the same name,
  local indexes added, removed or changed, a version that goes back, an index removed that a pattern still uses.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from tally.store.errors import InvalidSchema
from tally.store.lockfile import normalize
from tally.store.schema import Attribute, Index, KeyPart, Table

_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


class ChangeImpact(IntEnum):
    """How much a change asks for, from little to too much."""

    SAFE = 1
    MIGRATION = 2
    IMPOSSIBLE = 3


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference, what it costs, and what to do about it.

    `accepted`: the major version was raised for it.
    """

    table: str
    what: str
    cost: ChangeImpact
    advice: str = ""
    accepted: bool = False
    removes_table: bool = False


InUse = Callable[[str, str], list[str]]


def no_index_users(_table: str, _index: str) -> list[str]:
    """No pattern uses any index."""
    return []


def compare_schemas(
    locked: Iterable[Table], declared: Iterable[Table], in_use: InUse = no_index_users
) -> list[SchemaChange]:
    """All changes, table by table; `in_use` tells which patterns use an index of a table."""
    before = {table.name: normalize(table) for table in locked}
    after = {table.name: normalize(table) for table in declared}
    changes: list[SchemaChange] = []
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            version_of(after[name])
            changes.append(SchemaChange(name, "the table is new", ChangeImpact.SAFE))
        elif name not in after:
            advice = f"move what is needed elsewhere, then lock with --drop {name}; its data stays until you delete it"
            changes.append(
                SchemaChange(
                    name, "the table is gone", ChangeImpact.MIGRATION, advice, removes_table=True
                )
            )
        else:
            changes += _compare_tables(before[name], after[name], in_use)
    return changes


def version_of(table: Table) -> tuple[int, int, int]:
    """The schema version of a table in numbers."""
    found = _VERSION.fullmatch(table.version)
    if found is None:
        raise InvalidSchema(
            f"table {table.name}: the version is three numbers such as 1.0.0, not {table.version!r}"
        )
    major, minor, patch = map(int, found.groups())
    return major, minor, patch


def _compare_tables(before: Table, after: Table, in_use: InUse) -> Iterator[SchemaChange]:
    raised = version_of(after)[0] > version_of(before)[0]
    found = (
        *_versions(before, after),
        *_keys(before, after),
        *_indexes(before, after, in_use),
        *_ttl(before, after),
        *_attributes(before, after),
    )
    for what, cost, advice in found:
        yield SchemaChange(
            before.name, what, cost, advice, accepted=raised and cost is ChangeImpact.MIGRATION
        )


_Found = tuple[str, ChangeImpact, str]
_MIGRATE = "migrate what is there, then raise the table's major version"
_REBUILD = "declare a table of another name, copy the items, switch over, then remove this one"
_ANOTHER = "declare an index of another name, move its readers over, then remove this one"


def _versions(before: Table, after: Table) -> Iterator[_Found]:
    if before.version == after.version:
        return
    what = f"the version went from {before.version} to {after.version}"
    if version_of(after) < version_of(before):
        yield what, ChangeImpact.IMPOSSIBLE, "a version never goes back"
    elif version_of(after)[0] > version_of(before)[0]:
        yield (
            what,
            ChangeImpact.MIGRATION,
            "a new major version: something means something else now, and data must follow",
        )
    else:
        yield what, ChangeImpact.SAFE, ""


def _keys(before: Table, after: Table) -> Iterator[_Found]:
    if before.key != after.key:
        yield (
            f"the primary key was {_key(before)} and is {_key(after)}",
            ChangeImpact.IMPOSSIBLE,
            _REBUILD,
        )


def _key(keyed: Table | Index) -> str:
    parts: list[KeyPart] = [part for part in (keyed.partition, keyed.sort) if part is not None]
    return " + ".join(f"{part.name} ({part.type})" for part in parts)


def _indexes(before: Table, after: Table, in_use: InUse) -> Iterator[_Found]:
    for name in sorted(before.by_name.keys() | after.by_name.keys()):
        old, new = before.by_name.get(name), after.by_name.get(name)
        if old is not None and new is not None:
            yield from _changed_index(old, new)
        elif new is not None:
            yield from _added_index(new)
        elif old is not None:
            yield from _removed_index(old, in_use(before.name, name))


def _added_index(index: Index) -> Iterator[_Found]:
    if index.local:
        yield (
            f"local index {index.name} is new",
            ChangeImpact.IMPOSSIBLE,
            "a local index is made with its table: use a global one",
        )
    else:
        yield (
            f"global index {index.name} is new",
            ChangeImpact.SAFE,
            "DynamoDB fills it by itself; one index per deployment",
        )


def _removed_index(index: Index, users: list[str]) -> Iterator[_Found]:
    if index.local:
        yield (
            f"local index {index.name} is gone",
            ChangeImpact.IMPOSSIBLE,
            "a local index lives as long as its table",
        )
    elif users:
        yield (
            f"global index {index.name} is gone",
            ChangeImpact.IMPOSSIBLE,
            f"still used by {', '.join(users)}",
        )
    else:
        yield f"global index {index.name} is gone", ChangeImpact.SAFE, "no pattern uses it"


def _changed_index(old: Index, new: Index) -> Iterator[_Found]:
    if old.local != new.local:
        kinds = ("local", "global") if old.local else ("global", "local")
        yield (
            f"index {old.name} was {kinds[0]} and is {kinds[1]}",
            ChangeImpact.IMPOSSIBLE,
            _ANOTHER,
        )
    elif not old.local and (old.partition, old.sort) != (new.partition, new.sort):
        yield (
            f"the key of index {old.name} was {_key(old)} and is {_key(new)}",
            ChangeImpact.IMPOSSIBLE,
            _ANOTHER,
        )
    elif old.local and old.sort != new.sort:
        yield (
            f"the sort key of local index {old.name} has changed",
            ChangeImpact.IMPOSSIBLE,
            "a local index never changes",
        )
    elif old.projection != new.projection:
        what = (
            f"the projection of index {old.name} was {_projection(old)} and is {_projection(new)}"
        )
        if old.local:
            yield what, ChangeImpact.IMPOSSIBLE, "a local index never changes"
        else:
            yield (
                what,
                ChangeImpact.MIGRATION,
                f"the index is built anew and cannot be read meanwhile; {_MIGRATE}",
            )


def _projection(index: Index) -> str:
    names = index.projection.names
    return f"{', '.join(names)}" if names else index.projection.kind


def _ttl(before: Table, after: Table) -> Iterator[_Found]:
    if before.ttl == after.ttl:
        return
    if before.ttl is None:
        known = after.ttl in {attribute.name for attribute in before.attributes}
        advice = (
            f"items that carry {after.ttl} already begin to expire; {_MIGRATE}" if known else ""
        )
        yield (
            f"items expire by {after.ttl}",
            ChangeImpact.MIGRATION if known else ChangeImpact.SAFE,
            advice,
        )
    elif after.ttl is None:
        yield (
            f"items no longer expire by {before.ttl}",
            ChangeImpact.MIGRATION,
            f"what has expired stays; {_MIGRATE}",
        )
    else:
        yield (
            f"items expire by {after.ttl} instead of {before.ttl}",
            ChangeImpact.MIGRATION,
            _MIGRATE,
        )


def _attributes(before: Table, after: Table) -> Iterator[_Found]:
    old = {attribute.name: attribute for attribute in before.attributes}
    new = {attribute.name: attribute for attribute in after.attributes}
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield _added_attribute(new[name])
        elif name not in new:
            yield (
                f"attribute {name} is gone",
                ChangeImpact.MIGRATION,
                f"items still have it, and readers may want it; {_MIGRATE}",
            )
        else:
            yield from _changed_attribute(old[name], new[name])


def _added_attribute(attribute: Attribute) -> _Found:
    if attribute.required:
        what = f"required attribute {attribute.name} is new"
        return (
            what,
            ChangeImpact.MIGRATION,
            f"items that are there lack it: make it optional, or {_MIGRATE}",
        )
    return f"optional attribute {attribute.name} is new", ChangeImpact.SAFE, ""


def _changed_attribute(old: Attribute, new: Attribute) -> Iterator[_Found]:
    if old.type != new.type:
        yield (
            f"attribute {old.name} was of type {old.type} and is of type {new.type}",
            ChangeImpact.MIGRATION,
            _MIGRATE,
        )
    if new.required and not old.required:
        yield (
            f"attribute {old.name} is required from now on",
            ChangeImpact.MIGRATION,
            f"some items may lack it; {_MIGRATE}",
        )
    if old.required and not new.required:
        yield (
            f"attribute {old.name} is no longer required",
            ChangeImpact.SAFE,
            "let readers that can do without it go first",
        )
