"""The operations on tables, TTL, tags and limits.

A table is usable once CreateTable responds. A new index of a table with items is filled in the
background: DescribeTable reports it as CREATING until it is complete.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tally.kit.clock import Clock
from tally.kit.tasks import cancel_all
from tally.store.api import Scan
from tally.store.errors import TableNotFound
from tally.store.schema import Table
from tally.store.values import measure_item
from tally.store.wire.service_errors import (
    ServiceError,
    dynamodb_error,
    invalid,
    table_not_found,
)
from tally.store.wire.table_descriptions import table_description
from tally.store.wire.table_metadata import (
    DisabledStream,
    StatefulEngine,
    TableMetadata,
    new_metadata,
    new_stream_label,
    read_metadata,
    readable_streams,
    stream_metadata,
    write_metadata,
)
from tally.store.wire.table_names import check_resource, table_name
from tally.store.wire.table_requests import read_stream, read_table
from tally.store.wire.table_settings import (
    apply_settings,
    billing_mode,
    changed_indexes,
    check_index_updates,
    check_tags,
    read_tags,
)

Body = Mapping[str, Any]
_MAX_LISTED: Final = 100
_COUNTED_PAGES: Final = 4
_POLL_SECONDS: Final = 0.01
_NOTHING_TO_UPDATE: Final = (
    "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled,"
    " GlobalSecondaryIndexUpdates or SSESpecification or ReplicaUpdates is required"
)


class ControlPlane:
    """Creates, describes, changes and deletes tables."""

    def __init__(self, engine: StatefulEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._changes: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Stop filling new indexes; the next start continues."""
        await cancel_all(self._changes.values())

    async def create_table(self, body: Body) -> dict[str, Any]:
        metadata = new_metadata(self._now())
        metadata.tags = read_tags(body)
        check_tags(metadata.tags)
        apply_settings(body, metadata, body.get("BillingMode", "PROVISIONED"), self._now())
        table = read_table(body)
        if table.stream is not None:
            metadata.stream_label = new_stream_label(self._now())
        if table.name in await self._engine.list_tables():
            message = f"Table already exists: {table.name}"
            raise dynamodb_error("ResourceInUseException", message)
        await write_metadata(self._engine, table.name, metadata)
        await self._engine.create_table(table)
        return {"TableDescription": table_description(table, metadata, status="CREATING")}

    async def describe_table(self, body: Body) -> dict[str, Any]:
        table = await self._find(body["TableName"])
        metadata = await stream_metadata(self._engine, table, self._now())
        building = await self._engine.building_indexes(table.name)
        counts = await self._count(table)
        return {"Table": table_description(table, metadata, building=building, counts=counts)}

    async def delete_table(self, body: Body) -> dict[str, Any]:
        table = await self._find(body["TableName"])
        metadata = await read_metadata(self._engine, table.name, self._now())
        if metadata.settings.get("DeletionProtectionEnabled"):
            raise invalid(
                "Resource cannot be deleted as it is currently protected against deletion. Disable"
                " deletion protection first."
            )
        await cancel_all([self._changes.pop(table.name)] if table.name in self._changes else [])
        await self._engine.drop_table(table.name)
        await write_metadata(self._engine, table.name, None)
        return {"TableDescription": table_description(table, metadata, status="DELETING")}

    async def list_tables(self, body: Body) -> dict[str, Any]:
        start = body.get("ExclusiveStartTableName", "")
        names = [name for name in await self._engine.list_tables() if name > start]
        limit = body.get("Limit", _MAX_LISTED)
        response: dict[str, Any] = {"TableNames": names[:limit]}
        if len(names) > limit:
            response["LastEvaluatedTableName"] = names[limit - 1]
        return response

    async def update_table(self, body: Body) -> dict[str, Any]:
        given = {name for name, value in body.items() if value not in (None, [])}
        if not given - {"TableName", "AttributeDefinitions"}:
            raise invalid(_NOTHING_TO_UPDATE)
        table = await self._find(body["TableName"])
        check_index_updates(body.get("GlobalSecondaryIndexUpdates") or ())
        metadata = await read_metadata(self._engine, table.name, self._now())
        billing = body.get("BillingMode") or billing_mode(metadata)
        apply_settings(body, metadata, billing, self._now(), is_update=True)
        changed = self._changed_stream(body, table, metadata)
        for update in body.get("GlobalSecondaryIndexUpdates") or ():
            changed = changed_indexes(body, changed, update, metadata)
        await write_metadata(self._engine, table.name, metadata)
        if changed != table:
            await self._alter(table, changed)
        building = await self._engine.building_indexes(table.name)
        current = await self._engine.describe_table(table.name)
        deleted = [index for index in table.by_name.values() if index.name not in current.by_name]
        described = table_description(
            current, metadata, status="UPDATING", building=building, deleted=deleted
        )
        return {"TableDescription": described}

    async def update_time_to_live(self, body: Body) -> dict[str, Any]:
        table = await self._find(body["TableName"])
        specification = body["TimeToLiveSpecification"]
        name, is_enabled = specification["AttributeName"], specification["Enabled"]
        if table.ttl is not None and table.ttl != name:
            raise invalid(
                "TimeToLive is active on a different AttributeName: current AttributeName is"
                f" {table.ttl}"
            )
        if is_enabled and table.ttl is not None:
            raise invalid("TimeToLive is already enabled")
        if not is_enabled and table.ttl is None:
            raise invalid("TimeToLive is already disabled")
        await self._engine.ensure_table(replace(table, ttl=name if is_enabled else None))
        return {"TimeToLiveSpecification": specification}

    async def describe_time_to_live(self, body: Body) -> dict[str, Any]:
        table = await self._find(body["TableName"])
        if table.ttl is None:
            return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
        described = {"TimeToLiveStatus": "ENABLED", "AttributeName": table.ttl}
        return {"TimeToLiveDescription": described}

    async def tag_resource(self, body: Body) -> dict[str, Any]:
        if not body["Tags"]:
            raise invalid("Atleast one Tag needs to be provided as Input.")
        name, metadata = await self._find_resource(body)
        metadata.tags |= read_tags(body)
        check_tags(metadata.tags)
        await write_metadata(self._engine, name, metadata)
        return {}

    async def untag_resource(self, body: Body) -> dict[str, Any]:
        if not body["TagKeys"]:
            raise invalid("Atleast one Tag Key needs to be provided as Input.")
        name, metadata = await self._find_resource(body)
        for key in body["TagKeys"]:
            metadata.tags.pop(key, None)
        await write_metadata(self._engine, name, metadata)
        return {}

    async def list_tags_of_resource(self, body: Body) -> dict[str, Any]:
        _, metadata = await self._find_resource(body)
        return {"Tags": [{"Key": key, "Value": value} for key, value in metadata.tags.items()]}

    async def describe_limits(self, _body: Body) -> dict[str, Any]:
        return {
            "AccountMaxReadCapacityUnits": 80_000,
            "AccountMaxWriteCapacityUnits": 80_000,
            "TableMaxReadCapacityUnits": 40_000,
            "TableMaxWriteCapacityUnits": 40_000,
        }

    async def _find(self, text: str) -> Table:
        name = table_name(text)
        try:
            return await self._engine.describe_table(name)
        except TableNotFound:
            raise table_not_found(name) from None

    async def _find_resource(self, body: Body) -> tuple[str, TableMetadata]:
        check_resource(body["ResourceArn"])
        try:
            table = await self._engine.describe_table(table_name(body["ResourceArn"]))
        except (TableNotFound, ServiceError):
            message = f"Requested resource not found: ResourcArn: {body['ResourceArn']} not found"
            raise dynamodb_error("ResourceNotFoundException", message) from None
        return table.name, await read_metadata(self._engine, table.name, self._now())

    async def _count(self, table: Table) -> tuple[int, int]:
        """Count the items of the first pages; the service's own counts are estimates, too."""
        count = size = 0
        start = None
        for _ in range(_COUNTED_PAGES):
            page = await self._engine.scan(Scan(table, start=start))
            count += page.count
            size += sum(map(measure_item, page.items))
            start = page.next
            if start is None:
                break
        return count, size

    async def _alter(self, table: Table, changed: Table) -> None:
        """Change a table and wait until the change is visible, not until indexes are filled."""
        running = self._changes.get(table.name)
        if running is not None and not running.done():
            message = (
                "Attempt to change a resource which is still in use: Table is being updated:"
                f" {table.name}"
            )
            raise dynamodb_error("ResourceInUseException", message)
        task = asyncio.create_task(self._engine.ensure_table(changed))
        self._changes[table.name] = task
        while not task.done():
            await asyncio.wait({task}, timeout=_POLL_SECONDS)
            current = await self._engine.describe_table(table.name)
            if (current.by_name.keys(), current.stream) == (changed.by_name.keys(), changed.stream):
                break
        if task.done():
            task.result()

    def _changed_stream(self, body: Body, table: Table, metadata: TableMetadata) -> Table:
        if body.get("StreamSpecification") is None:
            return table
        stream = read_stream(body)
        if stream is None and table.stream is None:
            raise invalid(f"Table is already disabled for stream: {table.name}")
        if stream is not None and table.stream is not None:
            raise invalid(f"Table already has an enabled stream: {table.name}")
        if table.stream is None or metadata.stream_label is None:
            metadata.stream_label = new_stream_label(self._now())
        if table.stream is not None:
            origin = self._engine.stream_reader().origin(table)
            disabled = DisabledStream(origin, table.stream, metadata.stream_label, self._now())
            metadata.disabled_streams = [*readable_streams(metadata, self._now()), disabled]
        return replace(table, stream=stream)

    def _now(self) -> float:
        return self._clock.time_ns() / 1e9
