"""Classifies the differences between the locked and the declared tables.

- **safe**: no data changes. A new table, a new optional attribute, an attribute that is no longer
  required, a new global index, removal of a global index that no pattern uses, a stream that is
  turned on, turned off or changed.
- **migration**: existing data or readers must be adapted first. An attribute is removed, changes
  its type or becomes required; a TTL starts, stops or moves; a projection changes (DynamoDB
  rebuilds the index); a new major version, which states that meanings changed; a table is removed.
- **impossible**: DynamoDB cannot change an existing table this way. Another primary key, another
  key of an index, a local index added, removed or changed, a decreased version, removal of an index
  that a pattern still uses.
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
    """The class of a change, in increasing order."""

    SAFE = 1
    MIGRATION = 2
    IMPOSSIBLE = 3


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference, its class, and advice.

    `accepted`: the major version was increased for it.
    """

    table: str
    description: str
    impact: ChangeImpact
    advice: str = ""
    accepted: bool = False
    removes_table: bool = False


InUse = Callable[[str, str], list[str]]


def no_index_users(_table: str, _index: str) -> list[str]:
    """No pattern uses the index."""
    return []


def compare_schemas(
    locked: Iterable[Table], declared: Iterable[Table], in_use: InUse = no_index_users
) -> list[SchemaChange]:
    """Return all changes by table; `in_use` returns the patterns that use an index."""
    before = {table.name: normalize(table) for table in locked}
    after = {table.name: normalize(table) for table in declared}
    changes: list[SchemaChange] = []
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            parse_version(after[name])
            changes.append(SchemaChange(name, "new table", ChangeImpact.SAFE))
        elif name not in after:
            advice = (
                f"move the data you need, then lock with --drop {name};"
                " the data remains until you delete it"
            )
            changes.append(
                SchemaChange(
                    name, "table removed", ChangeImpact.MIGRATION, advice, removes_table=True
                )
            )
        else:
            changes += _compare_tables(before[name], after[name], in_use)
    return changes


def parse_version(table: Table) -> tuple[int, int, int]:
    """Parse the schema version of a table."""
    differences = _VERSION.fullmatch(table.version)
    if differences is None:
        raise InvalidSchema(
            f"table {table.name}: version must be three numbers such as 1.0.0, not"
            f" {table.version!r}"
        )
    major, minor, patch = map(int, differences.groups())
    return major, minor, patch


def _compare_tables(before: Table, after: Table, in_use: InUse) -> Iterator[SchemaChange]:
    is_new_major = parse_version(after)[0] > parse_version(before)[0]
    differences = (
        *_versions(before, after),
        *_keys(before, after),
        *_indexes(before, after, in_use),
        *_ttl(before, after),
        *_stream(before, after),
        *_attributes(before, after),
    )
    for description, impact, advice in differences:
        yield SchemaChange(
            before.name,
            description,
            impact,
            advice,
            accepted=is_new_major and impact is ChangeImpact.MIGRATION,
        )


_Difference = tuple[str, ChangeImpact, str]
_MIGRATE = "migrate the data, then increase the table's major version"
_REBUILD = "declare a new table, copy the items, switch over, then remove this one"
_ANOTHER = "declare a new index, move its readers, then remove this one"


def _versions(before: Table, after: Table) -> Iterator[_Difference]:
    if before.version == after.version:
        return
    description = f"version changed from {before.version} to {after.version}"
    if parse_version(after) < parse_version(before):
        yield description, ChangeImpact.IMPOSSIBLE, "a version cannot decrease"
    elif parse_version(after)[0] > parse_version(before)[0]:
        yield (
            description,
            ChangeImpact.MIGRATION,
            "a new major version: meanings changed, so migrate the data",
        )
    else:
        yield description, ChangeImpact.SAFE, ""


def _keys(before: Table, after: Table) -> Iterator[_Difference]:
    if before.key != after.key:
        yield (
            f"primary key changed from {_key(before)} to {_key(after)}",
            ChangeImpact.IMPOSSIBLE,
            _REBUILD,
        )


def _key(keyed: Table | Index) -> str:
    parts: list[KeyPart] = [part for part in (keyed.partition, keyed.sort) if part is not None]
    return " + ".join(f"{part.name} ({part.type})" for part in parts)


def _indexes(before: Table, after: Table, in_use: InUse) -> Iterator[_Difference]:
    for name in sorted(before.by_name.keys() | after.by_name.keys()):
        old, new = before.by_name.get(name), after.by_name.get(name)
        if old is not None and new is not None:
            yield from _changed_index(old, new)
        elif new is not None:
            yield from _added_index(new)
        elif old is not None:
            yield from _removed_index(old, in_use(before.name, name))


def _added_index(index: Index) -> Iterator[_Difference]:
    if index.local:
        yield (
            f"new local index {index.name}",
            ChangeImpact.IMPOSSIBLE,
            "a local index is created with its table: use a global index",
        )
    else:
        yield (
            f"new global index {index.name}",
            ChangeImpact.SAFE,
            "DynamoDB fills it; deploy one index at a time",
        )


def _removed_index(index: Index, users: list[str]) -> Iterator[_Difference]:
    if index.local:
        yield (
            f"local index {index.name} removed",
            ChangeImpact.IMPOSSIBLE,
            "a local index cannot be removed from its table",
        )
    elif users:
        yield (
            f"global index {index.name} removed",
            ChangeImpact.IMPOSSIBLE,
            f"still used by {', '.join(users)}",
        )
    else:
        yield f"global index {index.name} removed", ChangeImpact.SAFE, "no pattern uses it"


def _changed_index(old: Index, new: Index) -> Iterator[_Difference]:
    if old.local != new.local:
        kinds = ("local", "global") if old.local else ("global", "local")
        yield (
            f"index {old.name} changed from {kinds[0]} to {kinds[1]}",
            ChangeImpact.IMPOSSIBLE,
            _ANOTHER,
        )
    elif not old.local and (old.partition, old.sort) != (new.partition, new.sort):
        yield (
            f"key of index {old.name} changed from {_key(old)} to {_key(new)}",
            ChangeImpact.IMPOSSIBLE,
            _ANOTHER,
        )
    elif old.local and old.sort != new.sort:
        yield (
            f"sort key of local index {old.name} changed",
            ChangeImpact.IMPOSSIBLE,
            "a local index cannot change",
        )
    elif old.projection != new.projection:
        description = (
            f"projection of index {old.name} changed from {_projection(old)} to {_projection(new)}"
        )
        if old.local:
            yield description, ChangeImpact.IMPOSSIBLE, "a local index cannot change"
        else:
            yield (
                description,
                ChangeImpact.MIGRATION,
                f"the index is rebuilt and unavailable meanwhile; {_MIGRATE}",
            )


def _projection(index: Index) -> str:
    names = index.projection.names
    return f"{', '.join(names)}" if names else index.projection.kind


def _ttl(before: Table, after: Table) -> Iterator[_Difference]:
    if before.ttl == after.ttl:
        return
    if before.ttl is None:
        known = after.ttl in {attribute.name for attribute in before.attributes}
        advice = f"existing items with {after.ttl} start to expire; {_MIGRATE}" if known else ""
        yield (
            f"TTL enabled on {after.ttl}",
            ChangeImpact.MIGRATION if known else ChangeImpact.SAFE,
            advice,
        )
    elif after.ttl is None:
        yield (
            f"TTL on {before.ttl} disabled",
            ChangeImpact.MIGRATION,
            f"expired items remain; {_MIGRATE}",
        )
    else:
        yield (
            f"TTL moved from {before.ttl} to {after.ttl}",
            ChangeImpact.MIGRATION,
            _MIGRATE,
        )


def _stream(before: Table, after: Table) -> Iterator[_Difference]:
    if before.stream == after.stream:
        return
    if before.stream is None:
        yield f"stream {after.stream} turned on", ChangeImpact.SAFE, ""
    elif after.stream is None:
        advice = "consumers must have read it to its end: unread records are lost"
        yield f"stream {before.stream} turned off", ChangeImpact.SAFE, advice
    else:
        yield (
            f"stream changed from {before.stream} to {after.stream}",
            ChangeImpact.SAFE,
            "it is turned off and on: unread records are lost, and old positions become unknown",
        )


def _attributes(before: Table, after: Table) -> Iterator[_Difference]:
    old = {attribute.name: attribute for attribute in before.attributes}
    new = {attribute.name: attribute for attribute in after.attributes}
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield _added_attribute(new[name])
        elif name not in new:
            yield (
                f"attribute {name} removed",
                ChangeImpact.MIGRATION,
                f"items still have it, and readers may need it; {_MIGRATE}",
            )
        else:
            yield from _changed_attribute(old[name], new[name])


def _added_attribute(attribute: Attribute) -> _Difference:
    if attribute.required:
        description = f"new required attribute {attribute.name}"
        return (
            description,
            ChangeImpact.MIGRATION,
            f"existing items lack it: make it optional, or {_MIGRATE}",
        )
    return f"new optional attribute {attribute.name}", ChangeImpact.SAFE, ""


def _changed_attribute(old: Attribute, new: Attribute) -> Iterator[_Difference]:
    if old.type != new.type:
        yield (
            f"type of attribute {old.name} changed from {old.type} to {new.type}",
            ChangeImpact.MIGRATION,
            _MIGRATE,
        )
    if new.required and not old.required:
        yield (
            f"attribute {old.name} became required",
            ChangeImpact.MIGRATION,
            f"existing items may lack it; {_MIGRATE}",
        )
    if old.required and not new.required:
        yield (
            f"attribute {old.name} became optional",
            ChangeImpact.SAFE,
            "deploy readers that tolerate its absence first",
        )
