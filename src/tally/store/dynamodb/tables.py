"""Creates, changes, describes and deletes tables, and waits until the service completes each step.

Tables use on-demand capacity. DynamoDB adds or drops one index at a time; `ensure` reads the table
before each step, so several programs may ensure a table concurrently, and an interrupted change is
completed later.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tally.store.descriptions import (
    check_changeable,
    create_request,
    next_change,
    parse_description,
    pending_status,
)
from tally.store.dynamodb.error_mapping import OperationNotSupported
from tally.store.dynamodb.sending import RequestKind, RequestSender
from tally.store.errors import InvalidRequest, StoreUnavailable, TableExists, TableNotFound
from tally.store.schema import Table

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb import DynamoDBClient

ResponseT = TypeVar("ResponseT")

# Filling a large index may take longer; the caller can call again.
MAX_WAIT_SECONDS = 600.0
INITIAL_POLL_SECONDS = 0.02
MAX_POLL_SECONDS = 5.0
MAX_CHANGES = 100


class TableManager:
    """The tables of one service whose names start with a prefix; callers never see the prefix."""

    def __init__(self, client: "DynamoDBClient", prefix: str, sender: RequestSender) -> None:
        self._client = client
        self._prefix = prefix
        self._sender = sender
        self._clock = sender.retry_policy.clock

    async def create(self, table: Table) -> None:
        """Create the table with its indexes and TTL, and wait until it is usable."""
        request = create_request(table, self._prefix + table.name)
        await self._send(
            RequestKind.WRITE, "CreateTable", table.name, self._client.create_table, request
        )
        await self._wait_until_ready(table.name)
        await self._set_ttl(table)

    async def ensure(self, table: Table) -> None:
        """Create the table, or change it to match the declaration."""
        try:
            current = await self._wait_until_ready(table.name)
        except TableNotFound:
            try:
                return await self.create(table)
            except TableExists:  # created concurrently
                current = await self._wait_until_ready(table.name)
        check_changeable(table, current)
        await self._change_indexes(table, current)
        return await self._set_ttl(table)

    async def drop(self, name: str) -> None:
        """Delete the table and wait until it no longer exists."""
        request = {"TableName": self._prefix + name}
        try:
            await self._send(
                RequestKind.WRITE, "DeleteTable", name, self._client.delete_table, request
            )
        except TableExists:  # in use: being created or changed
            await self._wait_until_ready(name)
            await self._send(
                RequestKind.WRITE, "DeleteTable", name, self._client.delete_table, request
            )
        await self._poll(name, lambda: self._deletion_pending(name))

    async def building_indexes(self, name: str) -> list[str]:
        """Return the names of the indexes that are not active."""
        indexes = (await self.describe_raw(name)).get("GlobalSecondaryIndexes", ())
        return sorted(
            index["IndexName"]
            for index in indexes
            if index.get("IndexStatus", "ACTIVE") != "ACTIVE"
        )

    async def describe(self, name: str) -> Table:
        """Return the table as the service describes it."""
        return parse_description(await self.describe_raw(name), name, await self._ttl(name))

    async def names(self) -> list[str]:
        """Return the names of all tables with the prefix, without it."""
        names: list[str] = []
        request: dict[str, Any] = {}
        while True:
            response: Mapping[str, Any] = await self._send(
                RequestKind.READ, "ListTables", "", self._client.list_tables, request
            )
            names += response["TableNames"]
            last = response.get("LastEvaluatedTableName")
            if last is None:
                break
            request = {"ExclusiveStartTableName": last}
        return sorted(
            name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)
        )

    async def _change_indexes(self, table: Table, current: Table) -> None:
        for _ in range(MAX_CHANGES):
            change = next_change(table, current, self._prefix + table.name)
            if change is None:
                return
            current = await self._apply(table, change)
        raise StoreUnavailable(f"table {table.name}: other programs keep changing its indexes")

    async def _apply(self, table: Table, change: Mapping[str, Any]) -> Table:
        """Return the table after the change, or after a concurrent change."""
        try:
            await self._send(
                RequestKind.WRITE, "UpdateTable", table.name, self._client.update_table, change
            )
        except TableExists:  # in use: another program is changing it
            await self._clock.sleep(INITIAL_POLL_SECONDS)
        except (TableNotFound, InvalidRequest):  # another program may have made the same change
            current = await self._wait_until_ready(table.name)
            if next_change(table, current, self._prefix + table.name) == change:
                raise
            return current
        return await self._wait_until_ready(table.name)

    async def _wait_until_ready(self, name: str) -> Table:
        """Return the table without its TTL, once it and its indexes are active."""
        while True:
            await self._poll(name, lambda: self._pending(name))
            description = await self.describe_raw(name)
            if pending_status(description) is None:  # no other change began in between
                return parse_description(description, name)

    async def _pending(self, name: str) -> str | None:
        return pending_status(await self.describe_raw(name))

    async def _deletion_pending(self, name: str) -> str | None:
        try:
            await self.describe_raw(name)
        except TableNotFound:
            return None
        return "it is being deleted"

    async def _poll(self, name: str, check: Callable[[], Awaitable[str | None]]) -> None:
        """Poll with increasing intervals until `check` returns None."""
        deadline = self._clock.monotonic() + MAX_WAIT_SECONDS
        interval = INITIAL_POLL_SECONDS
        while (reason := await check()) is not None:
            if self._clock.monotonic() + interval > deadline:
                raise StoreUnavailable(
                    f"table {name}: {reason} after {MAX_WAIT_SECONDS:.0f} seconds"
                )
            await self._clock.sleep(interval)
            interval = min(interval * 2, MAX_POLL_SECONDS)

    async def _set_ttl(self, table: Table) -> None:
        current = await self._ttl(table.name)
        if current == table.ttl:
            return
        try:
            if current is not None:
                await self._update_ttl(table.name, current, enabled=False)
            if table.ttl is not None:
                await self._update_ttl(table.name, table.ttl, enabled=True)
        except OperationNotSupported:
            return  # no reader relies on deletion
        except InvalidRequest as error:
            if await self._ttl(table.name) != table.ttl:  # unless changed concurrently
                raise StoreUnavailable(
                    f"DynamoDB changes the TTL of a table at most once per hour: {error}"
                ) from error

    async def _ttl(self, name: str) -> str | None:
        request = {"TableName": self._prefix + name}
        try:
            response = await self._send(
                RequestKind.READ,
                "DescribeTimeToLive",
                name,
                self._client.describe_time_to_live,
                request,
            )
        except OperationNotSupported:
            return None
        description = response["TimeToLiveDescription"]
        enabled = description.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
        return description.get("AttributeName") if enabled else None

    async def _update_ttl(self, name: str, attribute: str, *, enabled: bool) -> None:
        specification = {"Enabled": enabled, "AttributeName": attribute}
        request = {"TableName": self._prefix + name, "TimeToLiveSpecification": specification}
        await self._send(
            RequestKind.WRITE, "UpdateTimeToLive", name, self._client.update_time_to_live, request
        )

    async def describe_raw(self, name: str) -> Mapping[str, Any]:
        """Return the description of a table as the service sends it."""
        request = {"TableName": self._prefix + name}
        response = await self._send(
            RequestKind.READ, "DescribeTable", name, self._client.describe_table, request
        )
        return response["Table"]

    async def _send(
        self,
        kind: RequestKind,
        operation: str,
        name: str,
        method: Callable[..., Awaitable[ResponseT]],
        request: Mapping[str, Any],
    ) -> ResponseT:
        return await self._sender.send(
            kind, f"{operation} on {self._prefix + name}", method, request
        )
