"""Opens the DynamoDB engine; imports AWS's client only then, because the import takes a second."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from tally.store.dynamodb.options import Credentials, DynamoDBRetryPolicy

if TYPE_CHECKING:
    from tally.store.dynamodb.engine import DynamoDBEngine
    from tally.store.dynamodb.shared_pages import PageExchange


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
    retry_policy: DynamoDBRetryPolicy | None = None,
    exchange: "PageExchange | None" = None,
) -> "AsyncIterator[DynamoDBEngine]":
    """Open an engine on AWS, or on any service with DynamoDB's protocol at `endpoint`.

        async with open_dynamodb(region="eu-central-1", table_prefix="prod-") as engine:
            store = Store(engine)

    Without `credentials` the client searches the environment, the profile and the machine's role,
    like every AWS tool. `table_prefix` precedes the name of every table. The role needs the item
    operations on the tables and `ListTables` for `ping`; to follow changes, also
    `DescribeTable` and the operations on the tables' streams. With an `exchange`, the processes
    that share it read each shard of a stream once. Timeouts are in seconds.
    """
    engine_module = import_module("tally.store.dynamodb.engine")
    async with engine_module.create_clients(
        endpoint=endpoint,
        region=region,
        credentials=credentials,
        connections=connections,
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
    ) as (client, streams):
        engine: DynamoDBEngine = engine_module.DynamoDBEngine(
            client, streams, table_prefix, retry_policy or DynamoDBRetryPolicy(), exchange
        )
        try:
            yield engine
        finally:
            await engine.close()
