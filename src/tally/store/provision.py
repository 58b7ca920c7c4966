"""Creates the declared tables on an engine, or exports them for CloudFormation and Terraform.

Both exports specify on-demand capacity, the TTL, the stream, point-in-time recovery and deletion
protection.
The output is deterministic, so a schema change touches few lines.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from tally.store.api import Engine
from tally.store.descriptions import create_request
from tally.store.errors import InvalidSchema, TableNotFound
from tally.store.lockfile import normalize
from tally.store.schema import Index, Table, index_key

# How long CloudWatch keeps logs.
LOG_RETENTION_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class ProvisionResult:
    """What happened to one table."""

    table: str
    status: Literal["created", "updated", "unchanged"]


async def create_tables(engine: Engine, tables: Iterable[Table]) -> list[ProvisionResult]:
    """Create the tables or change them to match; raise TableDiffers if a key differs."""
    results = []
    for table in tables:
        before = await _found(engine, table.name)
        await engine.ensure_table(table)
        if before is None:
            results.append(ProvisionResult(table.name, "created"))
        else:
            same = _layout(before) == _layout(table)
            results.append(ProvisionResult(table.name, "unchanged" if same else "updated"))
    return results


async def table_status(engine: Engine, table: Table) -> str:
    """Return `ready`, or what is missing or in progress."""
    stored = await _found(engine, table.name)
    if stored is None:
        return "missing"
    building = await engine.building_indexes(table.name)
    states = [f"index {name} is backfilling" for name in building]
    states += [f"index {name} is missing" for name in table.by_name if name not in stored.by_name]
    return ", ".join(states) or "ready"


async def existing_tables(engine: Engine, declared: Iterable[Table]) -> list[Table]:
    """Return the declared tables as they are on the engine.

    It knows neither attributes nor versions: these are the declared ones.
    """
    tables = []
    for table in declared:
        stored = await _found(engine, table.name)
        if stored is not None:
            tables.append(replace(stored, attributes=table.attributes, version=table.version))
    return tables


async def _found(engine: Engine, name: str) -> Table | None:
    try:
        return await engine.describe_table(name)
    except TableNotFound:
        return None


def _layout(table: Table) -> tuple[Any, ...]:
    """Return the parts of a table that an engine stores."""
    ordered = normalize(table)
    return ordered.key, ordered.indexes, ordered.ttl, ordered.stream


def cloudformation(tables: Iterable[Table], prefix: str = "") -> str:
    """Render a CloudFormation template as JSON.

    Deleting the stack, or a table from it, retains the data.
    """
    template = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "The tables of Tally",
        "Resources": {
            label: _resource(table, prefix + table.name)
            for label, table in _labelled(tables, _cloudformation_label)
        },
    }
    text = json.dumps(template, indent=2, ensure_ascii=False)
    # CloudFormation parses the template as YAML, which requires escapes for non-printable
    # characters and does not support surrogate pairs.
    escaped = (
        letter
        if letter.isprintable() or letter == "\n" or ord(letter) > 0xFFFF
        else f"\\u{ord(letter):04x}"
        for letter in text
    )
    return "".join(escaped) + "\n"


def _resource(table: Table, name: str) -> dict[str, Any]:
    properties = create_request(table, name) | {
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "DeletionProtectionEnabled": True,
    }
    if table.ttl is not None:
        properties["TimeToLiveSpecification"] = {"AttributeName": table.ttl, "Enabled": True}
    if table.stream is not None:  # CloudFormation has no StreamEnabled
        properties["StreamSpecification"] = {"StreamViewType": table.stream}
    return {
        "Type": "AWS::DynamoDB::Table",
        "DeletionPolicy": "Retain",
        "UpdateReplacePolicy": "Retain",
        "Properties": properties,
    }


def _cloudformation_label(name: str) -> str:
    """Letters and digits only: `match-follows` becomes MatchFollowsTable."""
    words = re.split(r"[^A-Za-z0-9]+", name)
    return "".join(word[:1].upper() + word[1:] for word in words) + "Table"


def _terraform_label(name: str) -> str:
    """Letters, digits and underscores, starting with a letter."""
    label = re.sub(r"[^A-Za-z0-9]", "_", name)
    return label if label[0].isalpha() else f"table_{label}"


def _labelled(tables: Iterable[Table], make_label: Callable[[str], str]) -> list[tuple[str, Table]]:
    """Label each table by its name alone, because a new label would mean a new resource."""
    labelled: dict[str, Table] = {}
    for table in sorted(map(normalize, tables), key=lambda table: table.name):
        other = labelled.setdefault(make_label(table.name), table)
        if other is not table:
            raise InvalidSchema(
                f"tables {other.name} and {table.name} would share the label"
                f" {make_label(table.name)}"
            )
    return list(labelled.items())


def terraform(tables: Iterable[Table], prefix: str = "") -> str:
    """Render the tables as Terraform resources."""
    return "\n".join(
        _terraform_table(label, table, prefix)
        for label, table in _labelled(tables, _terraform_label)
    )


def terraform_log_groups(services: Iterable[str], prefix: str = "") -> str:
    """Render a CloudWatch log group per service, whose entries expire."""
    return "".join(
        "\n" + _terraform_log_group(_terraform_label(service), f"/ecs/{prefix}{service}")
        for service in sorted(services)
    )


def _terraform_log_group(label: str, name: str) -> str:
    fields = {"name": _quoted(name), "retention_in_days": str(LOG_RETENTION_DAYS)}
    body = _indented("\n".join(_aligned(fields)))
    return f'resource "aws_cloudwatch_log_group" {_quoted(label)} {{\n{body}\n}}\n'


def _terraform_table(label: str, table: Table, prefix: str) -> str:
    indexes = table.by_name.values()
    types = {part.name: part.type for key in (table.key, *map(index_key, indexes)) for part in key}
    blocks = [
        *(
            _block("attribute", {"name": _quoted(part), "type": _quoted(kind)})
            for part, kind in types.items()
        ),
        *(_terraform_index(index) for index in indexes),
        *(
            [_block("ttl", {"attribute_name": _quoted(table.ttl), "enabled": "true"})]
            if table.ttl is not None
            else []
        ),
        _block("point_in_time_recovery", {"enabled": "true"}),
        _block("lifecycle", {"prevent_destroy": "true"}),
    ]
    fields = {
        "name": _quoted(prefix + table.name),
        "billing_mode": _quoted("PAY_PER_REQUEST"),
        "hash_key": _quoted(table.partition.name),
        **({"range_key": _quoted(table.sort.name)} if table.sort is not None else {}),
        "deletion_protection_enabled": "true",
    }
    if table.stream is not None:
        fields |= {"stream_enabled": "true", "stream_view_type": _quoted(table.stream)}
    body = "\n".join([*_aligned(fields), *(f"\n{block}" for block in blocks)])
    return f'resource "aws_dynamodb_table" {_quoted(label)} {{\n{_indented(body)}\n}}\n'


def _terraform_index(index: Index) -> str:
    fields = {"name": _quoted(index.name)}
    if not index.local:
        fields["hash_key"] = _quoted(index.partition.name)
    if index.sort is not None:
        fields["range_key"] = _quoted(index.sort.name)
    fields["projection_type"] = _quoted(index.projection.kind)
    if index.projection.names:
        fields["non_key_attributes"] = f"[{', '.join(map(_quoted, index.projection.names))}]"
    return _block("local_secondary_index" if index.local else "global_secondary_index", fields)


def _block(name: str, fields: dict[str, str]) -> str:
    return f"{name} {{\n{_indented(chr(10).join(_aligned(fields)))}\n}}"


def _aligned(fields: dict[str, str]) -> list[str]:
    """Align fields like `terraform fmt`."""
    width = max(map(len, fields))
    return [f"{name:{width}} = {value}" for name, value in fields.items()]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else line for line in text.split("\n"))


def _quoted(text: str) -> str:
    """Quote a Terraform string, in which ${ and %{ would start a template."""
    escaped = "".join(
        _ESCAPES.get(letter) or (letter if letter.isprintable() else f"\\U{ord(letter):08x}")
        for letter in text
    )
    return '"' + escaped.replace("${", "$${").replace("%{", "%%{") + '"'


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
