"""The engine on DynamoDB: each operation is checked here as on every engine, sent with patience, and read back.

    async with open_dynamodb(region="eu-central-1", table_prefix="prod-") as engine:
        await engine.get(Get(FIXTURES, {"matchId": "65432"}))

Without an endpoint it is AWS's service in that region; without credentials the client looks where
AWS's tools look (the environment, the profile, the machine's role). The role needs the item
operations on the tables, and ListTables for `ping`.
"""

import uuid
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ChecksumError
from botocore.parsers import ResponseParserError

from tally.store import validate
from tally.store.api import (
    BatchFound,
    BatchGet,
    BatchWrite,
    BatchWritten,
    Delete,
    Found,
    Get,
    Page,
    Put,
    Query,
    Scan,
    Transacted,
    Transaction,
    TransactionFound,
    TransactionGet,
    Update,
    Written,
    operation_name,
)
from tally.store.dynamodb import answers, requests
from tally.store.dynamodb.retry_policy import Kind, Line, Patience
from tally.store.dynamodb.tables import Tables
from tally.store.errors import StoreError
from tally.store.paging import run_bounded
from tally.store.schema import Table

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb import DynamoDBClient

Answer = TypeVar("Answer")
TRANSACTIONS_AT_ONCE = 25


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks. The secrets stay out of every repr and so out of logs."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@asynccontextmanager
async def open_dynamodb(
    *,
    endpoint: str | None = None,
    region: str = "us-east-1",
    credentials: Credentials | None = None,
    table_prefix: str = "",
    connections: int = 50,
    connect_timeout: float = 2.0,
    read_timeout: float = 10.0,
    patience: Patience | None = None,
) -> "AsyncIterator[DynamoDBEngine]":
    """An engine on the service at `endpoint`, where the names of its tables all begin with `table_prefix`."""
    config = AioConfig(
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        max_pool_connections=connections,
        retries={"total_max_attempts": 1, "mode": "standard"},
        parameter_validation=False,  # every request was checked by our own rules, more closely
        user_agent_extra="tally",
    )
    async with get_session().create_client(
        "dynamodb",
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id=credentials.access_key if credentials else None,
        aws_secret_access_key=credentials.secret_key if credentials else None,
        aws_session_token=credentials.session_token if credentials else None,
        config=config,
    ) as client:
        client.meta.events.register("before-parse.dynamodb", _check_answer)
        engine = DynamoDBEngine(client, table_prefix, patience or Patience())
        try:
            yield engine
        finally:
            await engine.close()


def _check_answer(response_dict: dict[str, Any], **_event: Any) -> None:
    """Refuse an answer that was damaged on the way, or that is no answer of a DynamoDB at all.

    The client checks the sum only as a part of its own retries, and reads a page of a proxy as an
    empty answer.
    """
    if response_dict["status_code"] < 300 and not response_dict["body"].startswith(b"{"):
        raise ResponseParserError(f"this is no answer of DynamoDB: {response_dict['body'][:80]!r}")
    expected = response_dict["headers"].get("x-amz-crc32")
    if expected is not None:
        actual = str(zlib.crc32(response_dict["body"]))
        if actual != expected:
            raise ChecksumError(
                checksum_type="crc32", expected_checksum=expected, actual_checksum=actual
            )


class DynamoDBEngine:
    """The store's operations on one connection pool."""

    name = "dynamodb"

    def __init__(self, client: "DynamoDBClient", table_prefix: str, patience: Patience) -> None:
        self._client = client
        self._prefix = table_prefix
        self._line = Line(patience)
        self._tables = Tables(client, table_prefix, self._line)

    async def get(self, operation: Get) -> Found:
        validate.check_get(operation)
        request = requests.get_request(operation, self._name)
        return answers.found(await self._send(Kind.READ, operation, self._client.get_item, request))

    async def put(self, operation: Put) -> Written:
        validate.check_put(operation)
        request = requests.put_request(operation, self._name)
        return answers.written(
            await self._send(Kind.WRITE, operation, self._client.put_item, request)
        )

    async def update(self, operation: Update) -> Written:
        validate.check_update(operation)
        request = requests.update_request(operation, self._name)
        return answers.written(
            await self._send(Kind.WRITE, operation, self._client.update_item, request)
        )

    async def delete(self, operation: Delete) -> Written:
        validate.check_delete(operation)
        request = requests.delete_request(operation, self._name)
        return answers.written(
            await self._send(Kind.WRITE, operation, self._client.delete_item, request)
        )

    async def query(self, operation: Query) -> Page:
        validate.check_query(operation)
        request = requests.query_request(operation, self._name)
        return answers.page(await self._send(Kind.READ, operation, self._client.query, request))

    async def scan(self, operation: Scan) -> Page:
        validate.check_scan(operation)
        request = requests.scan_request(operation, self._name)
        return answers.page(await self._send(Kind.READ, operation, self._client.scan, request))

    async def batch_get(self, operation: BatchGet) -> BatchFound:
        validate.check_batch_get(operation)
        request = requests.batch_get_request(operation, self._name)
        answer = await self._send(Kind.READ, operation, self._client.batch_get_item, request)
        return answers.batch_found(answer, self._name(operation.table))

    async def batch_write(self, operation: BatchWrite) -> BatchWritten:
        validate.check_batch_write(operation)
        request = requests.batch_write_request(operation, self._name)
        answer = await self._send(Kind.WRITE, operation, self._client.batch_write_item, request)
        return answers.batch_written(answer, operation.table, self._name(operation.table))

    async def transact(self, operation: Transaction) -> Transacted:
        """A transaction without a token gets one of our own, so that it too can be sent again."""
        validate.check_transaction(operation)
        request = requests.transaction_request(
            operation, self._name, operation.token or str(uuid.uuid4())
        )
        return answers.transacted(
            await self._send(Kind.TOKENED, operation, self._client.transact_write_items, request)
        )

    async def transact_each(
        self, operations: Sequence[Transaction]
    ) -> list[Transacted | StoreError]:
        for operation in operations:
            validate.check_transaction(operation)
        outcomes: dict[int, Transacted | StoreError] = {}

        async def transact(position: int) -> None:
            try:
                outcomes[position] = await self.transact(operations[position])
            except StoreError as refusal:
                outcomes[position] = refusal

        await run_bounded(
            (partial(transact, position) for position in range(len(operations))),
            TRANSACTIONS_AT_ONCE,
        )
        return [outcomes[position] for position in range(len(operations))]

    async def transact_get(self, operation: TransactionGet) -> TransactionFound:
        validate.check_transaction_get(operation)
        request = requests.transaction_get_request(operation, self._name)
        return answers.transaction_found(
            await self._send(Kind.READ, operation, self._client.transact_get_items, request)
        )

    async def create_table(self, table: Table) -> None:
        await self._tables.create(table)

    async def ensure_table(self, table: Table) -> None:
        await self._tables.ensure(table)

    async def drop_table(self, name: str) -> None:
        await self._tables.drop(name)

    async def describe_table(self, name: str) -> Table:
        return await self._tables.describe(name)

    async def list_tables(self) -> list[str]:
        return await self._tables.names()

    async def sweep(self, table: Table, now: float, limit: int) -> int:  # noqa: ARG002 - the service sweeps by itself
        """Nothing to do: the service deletes what has expired, within days.

        Readers ask `Table.expired` all the same.
        """
        return 0

    async def ping(self) -> None:
        """Ask once, without patience: whoever pings wants to know how it is now."""
        once = replace(self._line.patience, attempts=1)
        await self._line.send(Kind.READ, "ListTables", self._client.list_tables, {"Limit": 1}, once)

    async def close(self) -> None:
        """Take nothing new, let what was begun come to its end, and close the connections."""
        await self._line.close()
        await self._client.close()

    def _name(self, table: Table) -> str:
        return self._prefix + table.name

    async def _send(
        self,
        kind: Kind,
        operation: Any,
        method: Callable[..., Awaitable[Answer]],
        request: requests.Request,
    ) -> Answer:
        table = getattr(operation, "table", None)
        where = operation_name(operation) + (f" on {self._name(table)}" if table else "")
        return await self._line.send(kind, where, method, request)
