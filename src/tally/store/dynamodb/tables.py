"""Makes, changes, describes and removes tables, each step awaited until the service has really taken it.

Tables are billed per request. An index is added or dropped one at a time, since DynamoDB allows no
more; `ensure` looks at the table anew before each step, so several programs may ensure one table at
once, and what a killed one left is finished later.
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
from tally.store.dynamodb.retry_policy import RequestKind, RequestSender
from tally.store.errors import InvalidRequest, StoreUnavailable, TableExists, TableNotFound
from tally.store.schema import Table

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb import DynamoDBClient

Answer = TypeVar("Answer")

# An index over very many items takes the service longer to fill; whoever asks for it can ask again.
MAX_WAIT_SECONDS = 600.0
INITIAL_POLL_SECONDS = 0.02
MAX_POLL_SECONDS = 5.0
MAX_CHANGES = 100


class TableManager:
    """The tables of one service that begin with a prefix, which callers of this never see."""

    def __init__(self, client: "DynamoDBClient", prefix: str, line: RequestSender) -> None:
        self._client = client
        self._prefix = prefix
        self._line = line
        self._clock = line.retry_policy.clock

    async def create(self, table: Table) -> None:
        """Make the table, with its indexes and TTL, and return when it can be used."""
        request = create_request(table, self._prefix + table.name)
        await self._send(
            RequestKind.WRITE, "CreateTable", table.name, self._client.create_table, request
        )
        await self._settled(table.name)
        await self._set_ttl(table)

    async def ensure(self, table: Table) -> None:
        """Make the table, or change it until it is as declared."""
        try:
            current = await self._settled(table.name)
        except TableNotFound:
            try:
                return await self.create(table)
            except TableExists:  # another program was faster
                current = await self._settled(table.name)
        check_changeable(table, current)
        await self._change_indexes(table, current)
        return await self._set_ttl(table)

    async def drop(self, name: str) -> None:
        """Remove the table and return when it is gone."""
        request = {"TableName": self._prefix + name}
        try:
            await self._send(
                RequestKind.WRITE, "DeleteTable", name, self._client.delete_table, request
            )
        except TableExists:  # it is in use: still being made or changed
            await self._settled(name)
            await self._send(
                RequestKind.WRITE, "DeleteTable", name, self._client.delete_table, request
            )
        await self._until(name, lambda: self._gone(name))

    async def describe(self, name: str) -> Table:
        """The table as the service knows it."""
        return parse_description(await self._description(name), name, await self._ttl(name))

    async def names(self) -> list[str]:
        """The names of all tables with our prefix, without it."""
        names: list[str] = []
        request: dict[str, Any] = {}
        while True:
            answer: Mapping[str, Any] = await self._send(
                RequestKind.READ, "ListTables", "", self._client.list_tables, request
            )
            names += answer["TableNames"]
            last = answer.get("LastEvaluatedTableName")
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
            current = await self._changed(table, change)
        raise StoreUnavailable(f"table {table.name}: others keep changing its indexes")

    async def _changed(self, table: Table, change: Mapping[str, Any]) -> Table:
        """The table after the change, or after what another program did to it in the meantime."""
        try:
            await self._send(
                RequestKind.WRITE, "UpdateTable", table.name, self._client.update_table, change
            )
        except TableExists:  # it is in use: another program changes it now
            await self._clock.sleep(INITIAL_POLL_SECONDS)
        except (
            TableNotFound,
            InvalidRequest,
        ):  # the index is gone or there already, if another program was faster
            current = await self._settled(table.name)
            if next_change(table, current, self._prefix + table.name) == change:
                raise
            return current
        return await self._settled(table.name)

    async def _settled(self, name: str) -> Table:
        """The table, without its TTL, once it and all of its indexes are at rest."""
        while True:
            await self._until(name, lambda: self._unrest(name))
            description = await self._description(name)
            if (
                pending_status(description) is None
            ):  # else another program has begun its next change between the two looks
                return parse_description(description, name)

    async def _unrest(self, name: str) -> str | None:
        return pending_status(await self._description(name))

    async def _gone(self, name: str) -> str | None:
        try:
            await self._description(name)
        except TableNotFound:
            return None
        return "it is still being deleted"

    async def _until(self, name: str, trouble: Callable[[], Awaitable[str | None]]) -> None:
        """Look again and again, less and less often, until there is no trouble left."""
        end = self._clock.monotonic() + MAX_WAIT_SECONDS
        pause = INITIAL_POLL_SECONDS
        while (found := await trouble()) is not None:
            if self._clock.monotonic() + pause > end:
                raise StoreUnavailable(
                    f"table {name}: {found}, after {MAX_WAIT_SECONDS:.0f} seconds"
                )
            await self._clock.sleep(pause)
            pause = min(pause * 2, MAX_POLL_SECONDS)

    async def _set_ttl(self, table: Table) -> None:
        current = await self._ttl(table.name)
        if current == table.ttl:
            return
        try:
            if current is not None:
                await self._switch_ttl(table.name, current, on=False)
            if table.ttl is not None:
                await self._switch_ttl(table.name, table.ttl, on=True)
        except OperationNotSupported:
            return  # nothing expires there by itself; no reader relies on it
        except InvalidRequest as error:
            if await self._ttl(table.name) != table.ttl:  # nor was another program faster
                raise StoreUnavailable(
                    f"DynamoDB changes the TTL of a table once an hour at most: {error}"
                ) from error

    async def _ttl(self, name: str) -> str | None:
        request = {"TableName": self._prefix + name}
        try:
            answer = await self._send(
                RequestKind.READ,
                "DescribeTimeToLive",
                name,
                self._client.describe_time_to_live,
                request,
            )
        except OperationNotSupported:
            return None
        description = answer["TimeToLiveDescription"]
        on = description.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
        return description.get("AttributeName") if on else None

    async def _switch_ttl(self, name: str, attribute: str, *, on: bool) -> None:
        specification = {"Enabled": on, "AttributeName": attribute}
        request = {"TableName": self._prefix + name, "TimeToLiveSpecification": specification}
        await self._send(
            RequestKind.WRITE, "UpdateTimeToLive", name, self._client.update_time_to_live, request
        )

    async def _description(self, name: str) -> Mapping[str, Any]:
        request = {"TableName": self._prefix + name}
        answer = await self._send(
            RequestKind.READ, "DescribeTable", name, self._client.describe_table, request
        )
        return answer["Table"]

    async def _send(
        self,
        kind: RequestKind,
        operation: str,
        name: str,
        method: Callable[..., Awaitable[Answer]],
        request: Mapping[str, Any],
    ) -> Answer:
        return await self._line.send(kind, f"{operation} on {self._prefix + name}", method, request)
