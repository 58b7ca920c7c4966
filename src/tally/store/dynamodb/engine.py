"""The engine on DynamoDB: validates each operation, sends it with retries and parses the response.

`opening.py` has `open_dynamodb`.
"""

import asyncio
import uuid
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ChecksumError
from botocore.parsers import ResponseParserError

from tally.store import validate
from tally.store.api import (
    BatchGet,
    BatchGetResult,
    BatchWrite,
    BatchWriteResult,
    Delete,
    Get,
    GetResult,
    Page,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    TransactionGetResult,
    TransactionResult,
    Update,
    WriteResult,
    operation_name,
)
from tally.store.batching import run_bounded
from tally.store.changes import Change, ChangePage
from tally.store.dynamodb import requests, responses
from tally.store.dynamodb.options import Credentials, DynamoDBRetryPolicy
from tally.store.dynamodb.sending import RequestKind, RequestSender
from tally.store.dynamodb.shared_pages import PageExchange
from tally.store.dynamodb.stream_reader import StreamReader
from tally.store.dynamodb.stream_requests import StreamRequests, StreamsClient, StreamsOpener
from tally.store.dynamodb.tables import TableManager
from tally.store.dynamodb.write_gate import WriteGate
from tally.store.errors import StoreError
from tally.store.schema import Table

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb import DynamoDBClient

ResponseT = TypeVar("ResponseT")
MAX_CONCURRENT_TRANSACTIONS = 25


@asynccontextmanager
async def create_clients(
    *,
    endpoint: str | None,
    region: str,
    credentials: Credentials | None,
    connections: int,
    connect_timeout: float,
    read_timeout: float,
) -> "AsyncIterator[tuple[DynamoDBClient, StreamsOpener]]":
    """Create AWS's client for tables, and the one for streams when it is first called.

    Their own retries are disabled, because they ignore what is safe to repeat.
    """
    config = AioConfig(
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        max_pool_connections=connections,
        retries={"total_max_attempts": 1, "mode": "standard"},
        parameter_validation=False,  # `validate.py` is stricter
        user_agent_extra="tally",
    )
    options: dict[str, Any] = {
        "region_name": region,
        "endpoint_url": endpoint,
        "aws_access_key_id": credentials.access_key if credentials else None,
        "aws_secret_access_key": credentials.secret_key if credentials else None,
        "aws_session_token": credentials.session_token if credentials else None,
        "config": config,
    }
    session, lock = get_session(), asyncio.Lock()
    async with AsyncExitStack() as stack:
        opened: list[StreamsClient] = []

        async def streams() -> StreamsClient:
            async with lock:
                if not opened:
                    context = session.create_client("dynamodbstreams", **options)
                    client = await stack.enter_async_context(context)
                    client.meta.events.register("before-parse.dynamodb-streams", _check_response)
                    opened.append(client)
            return opened[0]

        client = await stack.enter_async_context(session.create_client("dynamodb", **options))
        client.meta.events.register("before-parse.dynamodb", _check_response)
        yield client, streams


def _check_response(response_dict: dict[str, Any], **_event: Any) -> None:
    """Reject a response that is corrupt or does not come from DynamoDB.

    The client verifies the checksum only within its own retries, and parses a proxy's HTML page as
    an empty response.
    """
    if response_dict["status_code"] < 300 and not response_dict["body"].startswith(b"{"):
        raise ResponseParserError(f"not a DynamoDB response: {response_dict['body'][:80]!r}")
    expected = response_dict["headers"].get("x-amz-crc32")
    if expected is not None:
        actual = str(zlib.crc32(response_dict["body"]))
        if actual != expected:
            raise ChecksumError(
                checksum_type="crc32", expected_checksum=expected, actual_checksum=actual
            )


class DynamoDBEngine:
    """The store's operations over one connection pool."""

    name = "dynamodb"

    def __init__(
        self,
        client: "DynamoDBClient",
        streams: StreamsOpener,
        table_prefix: str,
        retry_policy: DynamoDBRetryPolicy,
        exchange: PageExchange | None = None,
    ) -> None:
        self._client = client
        self._prefix = table_prefix
        self._sender = RequestSender(retry_policy)
        self._tables = TableManager(client, table_prefix, self._sender)
        self._gate: WriteGate | None = None
        self._streams = StreamReader(
            StreamRequests(streams, self._sender, self._tables.describe_raw, exchange)
        )

    def gate_writes(self, gate: WriteGate) -> None:
        """Let writes of items pass this gate from now on."""
        self._gate = gate

    async def get(self, operation: Get) -> GetResult:
        validate.check_get(operation)
        request = requests.get_request(operation, self._name)
        return responses.parse_get(
            await self._send(RequestKind.READ, operation, self._client.get_item, request)
        )

    async def put(self, operation: Put) -> WriteResult:
        validate.check_put(operation)
        request = requests.put_request(operation, self._name)
        return responses.parse_write(
            await self._send(RequestKind.WRITE, operation, self._client.put_item, request)
        )

    async def update(self, operation: Update) -> WriteResult:
        validate.check_write(operation)
        request = requests.update_request(operation, self._name)
        return responses.parse_write(
            await self._send(RequestKind.WRITE, operation, self._client.update_item, request)
        )

    async def delete(self, operation: Delete) -> WriteResult:
        validate.check_write(operation)
        request = requests.delete_request(operation, self._name)
        return responses.parse_write(
            await self._send(RequestKind.WRITE, operation, self._client.delete_item, request)
        )

    async def query(self, operation: Query) -> Page:
        validate.check_query(operation)
        request = requests.query_request(operation, self._name)
        return responses.parse_page(
            await self._send(RequestKind.READ, operation, self._client.query, request)
        )

    async def scan(self, operation: Scan) -> Page:
        validate.check_scan(operation)
        request = requests.scan_request(operation, self._name)
        return responses.parse_page(
            await self._send(RequestKind.READ, operation, self._client.scan, request)
        )

    async def batch_get(self, operation: BatchGet) -> BatchGetResult:
        validate.check_batch_get(operation)
        request = requests.batch_get_request(operation, self._name)
        response = await self._send(
            RequestKind.READ, operation, self._client.batch_get_item, request
        )
        return responses.parse_batch_get(response, self._name(operation.table))

    async def batch_write(self, operation: BatchWrite) -> BatchWriteResult:
        validate.check_batch_write(operation)
        request = requests.batch_write_request(operation, self._name)
        response = await self._send(
            RequestKind.WRITE, operation, self._client.batch_write_item, request
        )
        return responses.parse_batch_write(response, operation.table, self._name(operation.table))

    async def transact(self, operation: Transaction) -> TransactionResult:
        """Send the transaction with a token, so that retries are idempotent."""
        validate.check_transaction(operation)
        request = requests.transaction_request(
            operation, self._name, operation.token or str(uuid.uuid4())
        )
        return responses.parse_transaction(
            await self._send(
                RequestKind.IDEMPOTENT_WRITE, operation, self._client.transact_write_items, request
            )
        )

    async def transact_each(
        self, operations: Sequence[Transaction]
    ) -> list[TransactionResult | StoreError]:
        for operation in operations:
            validate.check_transaction(operation)
        outcomes: dict[int, TransactionResult | StoreError] = {}

        async def transact(position: int) -> None:
            try:
                outcomes[position] = await self.transact(operations[position])
            except StoreError as error:
                outcomes[position] = error

        await run_bounded(
            (partial(transact, position) for position in range(len(operations))),
            MAX_CONCURRENT_TRANSACTIONS,
        )
        return [outcomes[position] for position in range(len(operations))]

    async def transact_get(self, operation: TransactionGet) -> TransactionGetResult:
        validate.check_transaction_get(operation)
        request = requests.transaction_get_request(operation, self._name)
        return responses.parse_transaction_get(
            await self._send(RequestKind.READ, operation, self._client.transact_get_items, request)
        )

    async def create_table(self, table: Table) -> None:
        await self._tables.create(table)

    async def ensure_table(self, table: Table) -> None:
        await self._tables.ensure(table)

    async def drop_table(self, name: str) -> None:
        await self._tables.drop(name)

    async def describe_table(self, name: str) -> Table:
        return await self._tables.describe(name)

    async def building_indexes(self, name: str) -> list[str]:
        return await self._tables.building_indexes(name)

    async def list_tables(self) -> list[str]:
        return await self._tables.names()

    async def estimate_items(self, name: str) -> int:
        """Return the number of items that the service reports, which may be six hours old."""
        return int((await self._tables.describe_raw(name))["ItemCount"])

    async def sweep(self, table: Table, now: float, limit: int) -> int:  # noqa: ARG002 - the service deletes expired items
        """Return 0: the service deletes expired items within days.

        Readers check `Table.is_expired` regardless.
        """
        return 0

    def changes(self, table: Table, after: str | None) -> AsyncGenerator[Change, None]:
        return self._streams.follow(table, after)

    async def stream_position(self, table: Table) -> str:
        return await self._streams.last_position(table)

    async def read_changes(
        self, table: Table, partition: Any, after: str | None, limit: int
    ) -> ChangePage:
        return await self._streams.read_partition(table, partition, after, limit)

    async def has_changes(self, table: Table, after: str, until: str) -> None:
        """Return None: the service does not tell how far a stream is behind its table."""

    async def ping(self) -> None:
        """Send one request without retries, to report the current state."""
        no_retries = replace(self._sender.retry_policy, attempts=1)
        await self._sender.send(
            RequestKind.READ, "ListTables", self._client.list_tables, {"Limit": 1}, no_retries
        )

    async def close(self) -> None:
        """Reject new requests, complete pending ones and close the connections."""
        if self._gate is not None:
            await self._gate.close()
        await self._sender.close()
        await self._client.close()

    def _name(self, table: Table) -> str:
        return self._prefix + table.name

    async def _send(
        self,
        kind: RequestKind,
        operation: Any,
        method: Callable[..., Awaitable[ResponseT]],
        request: requests.Request,
    ) -> ResponseT:
        table = getattr(operation, "table", None)
        context = operation_name(operation) + (f" on {self._name(table)}" if table else "")
        send = partial(self._sender.send, kind, context, method, request)
        if kind is RequestKind.READ or self._gate is None:
            return await send()
        return await self._gate.run(send)
