"""Serves an engine over DynamoDB's protocol.

async with open_sqlite("data") as engine, serving_store(engine) as url:
    client = boto3.client("dynamodb", endpoint_url=url, region_name="local", …)
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_address
from typing import Final

from tally.kit import logs
from tally.kit.clock import Clock, SystemClock
from tally.kit.connection_table import ConnectionTable, HttpLimits
from tally.kit.hosts import AllowedHosts
from tally.kit.server import listen, socket_url
from tally.kit.tasks import cancel_all
from tally.settings import Secret
from tally.store.errors import StoreError
from tally.store.sqlite import SqliteEngine
from tally.store.wire.connection import WireConnection, WireServer
from tally.store.wire.request_ids import RequestIds
from tally.store.wire.service import ServedStore
from tally.store.wire.signing import SignatureCheck

SWEEP_SECONDS: Final = 1.0
_SWEPT_ITEMS: Final = 1_000
_GRACE_SECONDS: Final = 10.0
_log = logs.logger()


@asynccontextmanager
async def serving_store(
    engine: SqliteEngine,
    listening: socket.socket | None = None,
    *,
    clock: Clock | None = None,
    secret: Secret | None = None,
    limits: HttpLimits | None = None,
    allowed_hosts: Collection[str] = (),
    is_read_only: bool = False,
    hidden_tables: Collection[str] = (),
) -> AsyncIterator[str]:
    """Serve the engine and yield the URL; by default on a free port of the loopback interface.

    Requests must be signed with `secret` if there is one; other addresses than loopback need it.
    A read-only server leaves it to the owner of the tables to delete expired items. Clients do not
    find hidden tables.
    """
    clock = clock or SystemClock()
    listening = listening or listen("127.0.0.1", 0)
    url = socket_url(listening)
    table = ConnectionTable(limits or HttpLimits(), ("127.0.0.1",))
    store = ServedStore(
        engine,
        clock,
        url.removeprefix("http://"),
        is_read_only=is_read_only,
        hidden_tables=hidden_tables,
    )
    signatures = _signatures(listening, secret, clock)
    shared = WireServer(store, table, AllowedHosts(allowed_hosts), signatures, set(), RequestIds())
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(WireConnection, shared), sock=listening)
    housekeeping = [asyncio.create_task(_sweep_connections(table))]
    if not is_read_only:
        housekeeping.append(asyncio.create_task(_sweep_items(engine, clock)))
    try:
        yield url
    finally:
        server.close()
        table.is_draining = True
        for connection in [*table.connections]:
            connection.shutdown()
        if shared.tasks:
            await asyncio.wait(shared.tasks, timeout=_GRACE_SECONDS)
        await cancel_all((*housekeeping, *shared.tasks))
        await store.close()


def is_loopback(listening: socket.socket) -> bool:
    """Whether only programs on this machine can connect."""
    return ip_address(listening.getsockname()[0]).is_loopback


def _signatures(
    listening: socket.socket, secret: Secret | None, clock: Clock
) -> SignatureCheck | None:
    if secret is None:
        if not is_loopback(listening):
            raise ValueError("a server on this address requires a secret")
        return None
    return SignatureCheck(secret, lambda: clock.time_ns() / 1e9)


async def _sweep_connections(table: ConnectionTable) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        table.sweep(loop.time())


async def _sweep_items(engine: SqliteEngine, clock: Clock) -> None:
    """Delete expired items and old changes, as the service does in the background."""
    while True:
        await clock.sleep(SWEEP_SECONDS)
        try:
            for name in await engine.list_tables():
                table = await engine.describe_table(name)
                if table.ttl is not None:
                    now = clock.time_ns() / 1e9
                    await engine.sweep(table, now, _SWEPT_ITEMS)
                    await engine.sweep_current_hour(table, now, _SWEPT_ITEMS)
            await engine.trim_changes()
        except StoreError as error:
            _log.warning("Expiry failed", action="wire_expiry_failed", error=str(error))
