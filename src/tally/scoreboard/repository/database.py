"""A PostgreSQL connection pool with prepared statements, time-outs, metrics and error translation.

    async with open_database_pool(dsn, clock, metrics) as database:
        row = await database.row("find_user", "SELECT … WHERE id = $1", user_id)

Transient failures (the server is down, starting or too slow) become `Unavailable`, and values that
PostgreSQL rejects become `Invalid`. Other errors, such as constraint violations, pass through as
asyncpg's, for the repository method to interpret.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import asyncpg
import msgspec

from tally.errors import Invalid, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.repository.metrics import StorageMetrics

_log = logs.logger()

Row: TypeAlias = Any  # asyncpg.Record, which is untyped
Connection: TypeAlias = Any

RETRY_AFTER_SECONDS: Final = 1.0
STREAM_TIMEOUT_SECONDS: Final = 600
# Adds a message of no consequence to the write-ahead log, which the commit then flushes. It needs
# no table and leaves no dead rows.
DURABLE_WRITE: Final = "SELECT pg_logical_emit_message(true, 'tally-probe', '')"
SSL_REQUEST: Final = struct.pack("!II", 8, 80877103)
# SQLSTATE classes: connection exception, insufficient resources, operator intervention (shutdown,
# startup, statement time-out), system error.
_TRANSIENT_CLASSES: Final = frozenset({"08", "53", "57", "58"})
# Lock time-out, deadlock, serialization failure, read-only transaction (a standby), idle
# transaction time-out.
_TRANSIENT_CODES: Final = frozenset({"55P03", "40P01", "40001", "25006", "25P03"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """Connection counts, and time-outs in seconds."""

    min_connections: int = 1
    max_connections: int = 10
    connect_seconds: float = 5.0
    acquire_seconds: float = 2.0
    statement_seconds: float = 5.0


DEFAULT_LIMITS: Final = PoolLimits()


@dataclass(frozen=True, slots=True)
class Database:
    """A connection pool that measures calls and translates errors."""

    pool: Any
    clock: Clock
    metrics: StorageMetrics
    limits: PoolLimits

    @asynccontextmanager
    async def use(self, call: str) -> AsyncIterator[Connection]:
        """Acquire a connection; `call` is the label of the metric."""
        started, outcome = self.clock.monotonic(), "ok"
        try:
            async with self.pool.acquire(timeout=self.limits.acquire_seconds) as connection:
                yield connection
        except BaseException as error:
            translated = translate_postgres_error(error)
            outcome = "unavailable" if isinstance(translated, Unavailable) else "rejected"
            if translated is None:
                raise
            if outcome == "unavailable" and self.metrics.should_log("postgresql", started):
                _log.warning(
                    "PostgreSQL call failed", action="postgresql_failed", call=call, error=error
                )
            raise translated from error
        finally:
            self.metrics.observe("postgresql", call, outcome, self.clock.monotonic() - started)

    async def row(self, call: str, statement: str, *arguments: object) -> Row | None:
        async with self.use(call) as connection:
            return await connection.fetchrow(statement, *arguments)

    async def rows(self, call: str, statement: str, *arguments: object) -> list[Row]:
        async with self.use(call) as connection:
            rows: list[Row] = await connection.fetch(statement, *arguments)
            return rows

    async def value(self, call: str, statement: str, *arguments: object) -> Any:
        async with self.use(call) as connection:
            return await connection.fetchval(statement, *arguments)

    async def stream(
        self, call: str, statement: str, size: int, *arguments: object
    ) -> AsyncIterator[list[Row]]:
        """Iterate over all rows of one snapshot, `size` at a time, with a server-side cursor."""
        async with self.use(call) as connection, connection.transaction(readonly=True):
            # All rows are read, so optimise for total time instead of the first row.
            await connection.execute("SET LOCAL cursor_tuple_fraction = 1")
            await connection.execute("SET LOCAL work_mem = '64MB'")
            # Sorting a million rows before the first one takes longer than a request may.
            await connection.execute(f"SET LOCAL statement_timeout = '{STREAM_TIMEOUT_SECONDS}s'")
            cursor = await connection.cursor(statement, *arguments, timeout=STREAM_TIMEOUT_SECONDS)
            while rows := await cursor.fetch(size, timeout=STREAM_TIMEOUT_SECONDS):
                yield rows

    async def ping(self) -> None:
        """Return if PostgreSQL accepts a durable write and new connections; raises Unavailable."""
        async with self.use("ping") as connection:
            await connection.execute(DURABLE_WRITE)
            await _check_listener(connection._addr)  # noqa: SLF001  (the DSN may name several)


def translate_postgres_error(error: BaseException) -> Exception | None:
    """Return the domain error, or None if the caller must interpret it."""
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        if code[:2] in _TRANSIENT_CLASSES or code in _TRANSIENT_CODES:
            return _unavailable()
        if code[:2] == "22":
            return _invalid_value()
        return None
    if isinstance(error, asyncpg.DataError):  # raised by the driver before sending
        return _invalid_value()
    if isinstance(
        error, (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
    ):
        return _unavailable()
    return None


def _unavailable() -> Unavailable:
    return Unavailable("The database is unavailable", retry_after=RETRY_AFTER_SECONDS)


def _invalid_value() -> Invalid:
    return Invalid("The database cannot store a value of this request", code="invalid_value")


async def _check_listener(address: str | tuple[str, int]) -> None:
    """Return when the server's main process responds to a new connection.

    Existing connections keep working while the main process hangs. The first message of the
    protocol, whether the server offers TLS, costs a tenth of a complete connection.
    """
    if isinstance(address, str):
        reader, writer = await asyncio.open_unix_connection(address)
    else:
        reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(SSL_REQUEST)
        if not await reader.read(1):
            raise ConnectionError("PostgreSQL closed a new connection")
    finally:
        writer.close()


@asynccontextmanager
async def open_database_pool(
    dsn: str, clock: Clock, metrics: StorageMetrics, limits: PoolLimits = DEFAULT_LIMITS
) -> AsyncIterator[Database]:
    """Open a connection pool; raises Unavailable if the server cannot be reached."""
    try:
        pool = await asyncpg.create_pool(
            dsn,
            min_size=limits.min_connections,
            max_size=limits.max_connections,
            timeout=limits.connect_seconds,
            # The server cancels slow statements; this covers a server that stopped responding.
            command_timeout=limits.statement_seconds + 1,
            init=_set_codecs,
            reset=_skip_reset,
            server_settings={
                "application_name": "tally",
                "default_transaction_isolation": "read committed",
                "statement_timeout": f"{round(limits.statement_seconds * 1000)}ms",
                "idle_in_transaction_session_timeout": "60s",
                "timezone": "UTC",
            },
        )
    except (asyncpg.PostgresError, OSError, TimeoutError, asyncpg.InterfaceError) as error:
        raise translate_postgres_error(error) or Unavailable(
            "The database rejected the connection"
        ) from error
    try:
        yield Database(pool, clock, metrics, limits)
    finally:
        await _close(pool)


async def _close(pool: Any) -> None:
    """Wait for running statements, which their time-out bounds; terminate the rest."""
    try:
        await pool.close()
    except (asyncpg.PostgresError, OSError, asyncpg.InterfaceError) as error:
        _log.warning("PostgreSQL connections terminated", action="database_terminated", error=error)
        pool.terminate()


async def _set_codecs(connection: Connection) -> None:
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(
            kind, encoder=_encode_json, decoder=msgspec.json.decode, schema="pg_catalog"
        )


async def _skip_reset(_: Connection) -> None:
    """Save the round trip of a reset: nothing here changes session state."""


def _encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
