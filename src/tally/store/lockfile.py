"""The schema lock: a file that records every table in a form that diffs well.

It is TOML: each table, index and attribute is on its own line, sorted by name, so a schema change
touches few lines. Descriptions and the order of declarations are not recorded.

    write_lock(path, tables)        tables = read_lock(path)
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from tally.store.errors import InvalidLockFile, InvalidSchema
from tally.store.schema import (
    ALL,
    KEYS_ONLY,
    Attribute,
    Index,
    KeyPart,
    KeyType,
    Projection,
    StreamView,
    Table,
    include,
)
from tally.store.values import Type

FORMAT = 1
_HEADER = """\
# The locked tables. `tally schema lock` writes this file. `tally schema diff` classifies every
# change of the code since: safe, needs a migration, or impossible.
"""


def normalize(table: Table) -> Table:
    """Return the table without insignificant parts.

    These are order, descriptions, and attributes that repeat the primary key.
    """
    indexes = sorted(table.by_name.values(), key=lambda index: index.name)
    attributes = sorted(
        (attribute for attribute in table.attributes if attribute.name not in table.key_names),
        key=lambda attribute: attribute.name,
    )
    return replace(
        table,
        indexes=tuple(
            replace(index, projection=_normalize_projection(index.projection)) for index in indexes
        ),
        attributes=tuple(replace(attribute, about="") for attribute in attributes),
    )


def _normalize_projection(projection: Projection) -> Projection:
    return replace(projection, names=tuple(sorted(projection.names)))


def render_lock(tables: Iterable[Table]) -> str:
    """Render the text of a lock file."""
    ordered = sorted(map(normalize, tables), key=lambda table: table.name)
    return "\n".join([_HEADER, f"format = {FORMAT}\n", *map(_table, ordered)])


def _table(table: Table) -> str:
    name = f"tables.{_text(table.name)}"
    lines = [
        f"[{name}]",
        f"version = {_text(table.version)}",
        f"partition = {_part(table.partition)}",
    ]
    if table.sort is not None:
        lines.append(f"sort = {_part(table.sort)}")
    if table.ttl is not None:
        lines.append(f"ttl = {_text(table.ttl)}")
    if table.stream is not None:
        lines.append(f"stream = {_text(table.stream)}")
    if table.indexes:
        lines += ["", f"[{name}.indexes]"]
        lines += [f"{_text(index.name)} = {_index(index)}" for index in table.by_name.values()]
    if table.attributes:
        lines += ["", f"[{name}.attributes]"]
        lines += [
            f"{_text(attribute.name)} = {_attribute(attribute)}" for attribute in table.attributes
        ]
    return "\n".join(lines) + "\n"


def _index(index: Index) -> str:
    fields = {"kind": _text("local" if index.local else "global")}
    if not index.local:
        fields["partition"] = _part(index.partition)
    if index.sort is not None:
        fields["sort"] = _part(index.sort)
    names = index.projection.names
    fields["projection"] = (
        f"[{', '.join(map(_text, names))}]" if names else _text(index.projection.kind)
    )
    return _inline(fields)


def _part(part: KeyPart) -> str:
    return _inline({"name": _text(part.name), "type": _text(part.type)})


def _attribute(attribute: Attribute) -> str:
    return _inline(
        {"type": _text(attribute.type), "required": "true" if attribute.required else "false"}
    )


def _inline(fields: Mapping[str, str]) -> str:
    return f"{{ {', '.join(f'{name} = {value}' for name, value in fields.items())} }}"


def _text(text: str) -> str:
    """A TOML string: as JSON writes it, except that TOML wants DEL escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def parse_lock(text: str) -> list[Table]:
    """The tables of a lock file's text, in their normal form."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidLockFile(f"the schema lock cannot be read: {error}") from error
    found = document.get("format")
    if type(found) is not int or found < 1:
        raise InvalidLockFile("the schema lock does not say which format it has")
    if found > FORMAT:
        raise InvalidLockFile(
            f"the schema lock has format {found}, and this version of Tally knows {FORMAT} at most"
        )
    try:
        return [_read_table(name, entry) for name, entry in document.get("tables", {}).items()]
    except (KeyError, TypeError, AttributeError, ValueError, InvalidSchema) as error:
        raise InvalidLockFile(
            f"the schema lock is damaged: {type(error).__name__}: {error}"
        ) from error


def _read_table(name: str, entry: Mapping[str, Any]) -> Table:
    partition = _read_part(entry["partition"])
    table = Table(
        name,
        partition,
        _read_part(entry["sort"]) if "sort" in entry else None,
        tuple(
            _read_index(name, index, partition) for name, index in entry.get("indexes", {}).items()
        ),
        _string(entry["ttl"]) if "ttl" in entry else None,
        tuple(
            _read_attribute(name, attribute)
            for name, attribute in entry.get("attributes", {}).items()
        ),
        _string(entry["version"]),
        cast("StreamView", _one_of(entry["stream"], get_args(StreamView)))
        if "stream" in entry
        else None,
    )
    return normalize(table)


def _read_index(name: str, entry: Mapping[str, Any], partition: KeyPart) -> Index:
    local = {"local": True, "global": False}[entry["kind"]]
    sort = _read_part(entry["sort"]) if "sort" in entry else None
    return Index(
        name,
        partition if local else _read_part(entry["partition"]),
        sort,
        _read_projection(entry["projection"]),
        local,
    )


def _read_projection(entry: Any) -> Projection:
    if isinstance(entry, list):
        return include(*map(_string, entry))
    return {"ALL": ALL, "KEYS_ONLY": KEYS_ONLY}[entry]


def _read_part(entry: Mapping[str, Any]) -> KeyPart:
    return KeyPart(
        _string(entry["name"]), cast("KeyType", _one_of(entry["type"], get_args(KeyType)))
    )


def _read_attribute(name: str, entry: Mapping[str, Any]) -> Attribute:
    required = entry["required"]
    if not isinstance(required, bool):
        raise TypeError(f"required is true or false, not {required!r}")
    return Attribute(name, cast("Type", _one_of(entry["type"], get_args(Type))), required)


def _one_of(value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{value!r} is none of {', '.join(known)}")
    return _string(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def read_lock(path: Path) -> list[Table]:
    """Read the locked tables; an absent file means none."""
    try:
        return parse_lock(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise InvalidLockFile(f"the schema lock cannot be read: {error}") from error


def write_lock(path: Path, tables: Iterable[Table]) -> None:
    """Lock these tables. The file is replaced atomically."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(render_lock(tables), encoding="utf-8", newline="\n")
    temporary.replace(path)
