"""PostgreSQL behind a pool: every statement prepared, bounded in time, measured, and its trouble told in the domain's words.

    async with open_database(dsn, clock, metrics) as database:
        row = await database.row("find_user", "SELECT … WHERE id = $1", user_id)

What may work later (the server is away, starting, or too slow) is `Unavailable`. What PostgreSQL
refuses for its content is `Invalid`. Everything else that it says, a broken constraint for one,
passes as asyncpg's error to the repository method that can tell what it means.
"""

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

Row: TypeAlias = Any  # asyncpg.Record, which has no types
Connection: TypeAlias = Any

RETRY_AFTER: Final = 1.0
STREAM_SECONDS: Final = 600
# By the class of the error code: connection, no resources, operator intervention (which is shutting
# down, starting up and statement time-outs), system error.
_PASSING_CLASSES: Final = frozenset({"08", "53", "57", "58"})
# Lock time-out, deadlock, serialisation failure, read-only transaction (a standby was asked), idle
# transaction ended.
_PASSING_CODES: Final = frozenset({"55P03", "40P01", "40001", "25006", "25P03"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How many connections, and how long anything may take, in seconds."""

    least: int = 1
    most: int = 10
    connect_seconds: float = 5.0
    wait_seconds: float = 2.0
    statement_seconds: float = 5.0


USUAL_LIMITS: Final = PoolLimits()


@dataclass(frozen=True, slots=True)
class Database:
    """A pool, the clock that times it, and the figures."""

    pool: Any
    clock: Clock
    figures: StorageMetrics
    limits: PoolLimits

    @asynccontextmanager
    async def use(self, call: str) -> AsyncIterator[Connection]:
        """A connection for a while; `call` is the name under which the time is counted."""
        started, outcome = self.clock.monotonic(), "ok"
        try:
            async with self.pool.acquire(timeout=self.limits.wait_seconds) as connection:
                yield connection
        except BaseException as error:
            translated = translate_postgres_error(error)
            outcome = "away" if isinstance(translated, Unavailable) else "refused"
            if translated is None:
                raise
            if outcome == "away" and self.figures.should_log("postgresql", started):
                _log.warning("PostgreSQL did not answer", action=call, error=error)
            raise translated from error
        finally:
            self.figures.observe("postgresql", call, outcome, self.clock.monotonic() - started)

    async def row(self, call: str, statement: str, *arguments: object) -> Row | None:
        async with self.use(call) as connection:
            return await connection.fetchrow(statement, *arguments)

    async def rows(self, call: str, statement: str, *arguments: object) -> list[Row]:
        async with self.use(call) as connection:
            found: list[Row] = await connection.fetch(statement, *arguments)
            return found

    async def value(self, call: str, statement: str, *arguments: object) -> Any:
        async with self.use(call) as connection:
            return await connection.fetchval(statement, *arguments)

    async def stream(self, call: str, statement: str, size: int) -> AsyncIterator[list[Row]]:
        """All rows as they are at one moment, after the first call, through a cursor of the server, `size` at a time."""
        async with self.use(call) as connection, connection.transaction(readonly=True):
            # All rows are wanted, so the plan that is done first is better than the one that begins
            # first.
            await connection.execute("SET LOCAL cursor_tuple_fraction = 1")
            await connection.execute("SET LOCAL work_mem = '64MB'")
            # Before the first row there may be a million to be sorted, and nobody waits for an
            # answer.
            await connection.execute(f"SET LOCAL statement_timeout = '{STREAM_SECONDS}s'")
            cursor = await connection.cursor(statement, timeout=STREAM_SECONDS)
            while rows := await cursor.fetch(size, timeout=STREAM_SECONDS):
                yield rows

    async def ping(self) -> None:
        """Return if PostgreSQL answers; Unavailable if not."""
        await self.value("ping", "SELECT 1")


def translate_postgres_error(error: BaseException) -> Exception | None:
    """The error in the domain's words, or None where it is for the caller to judge."""
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        if code[:2] in _PASSING_CLASSES or code in _PASSING_CODES:
            return Unavailable("The database is not available", retry_after=RETRY_AFTER)
        if code[:2] == "22":
            return Invalid("A value cannot be stored", code="invalid_value")
        return None
    if isinstance(error, asyncpg.DataError):  # found by the driver, before anything was sent
        return Invalid("A value cannot be stored", code="invalid_value")
    if isinstance(
        error, (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
    ):
        return Unavailable("The database is not available", retry_after=RETRY_AFTER)
    return None


@asynccontextmanager
async def open_database_pool(
    dsn: str, clock: Clock, figures: StorageMetrics, limits: PoolLimits = USUAL_LIMITS
) -> AsyncIterator[Database]:
    """The database for as long as this lasts; Unavailable if it cannot be reached at the start."""
    try:
        pool = await asyncpg.create_pool(
            dsn,
            min_size=limits.least,
            max_size=limits.most,
            timeout=limits.connect_seconds,
            # The server ends a statement that takes too long; this ends the wait for a server that
            # has gone silent.
            command_timeout=limits.statement_seconds + 1,
            init=_prepare_connection,
            reset=_leave_as_is,
            server_settings={
                "application_name": "tally",
                "default_transaction_isolation": "read committed",
                "statement_timeout": f"{round(limits.statement_seconds * 1000)}ms",
                "idle_in_transaction_session_timeout": "60s",
                "timezone": "UTC",
            },
        )
    except (asyncpg.PostgresError, OSError, TimeoutError, asyncpg.InterfaceError) as error:
        raise translate_postgres_error(error) or Unavailable("The database refuses us") from error
    try:
        yield Database(pool, clock, figures, limits)
    finally:
        await _close(pool)


async def _close(pool: Any) -> None:
    """Let statements under way finish, which their own time-out bounds; whatever is left then is cut off."""
    try:
        await pool.close()
    except (asyncpg.PostgresError, OSError, asyncpg.InterfaceError) as error:
        _log.warning("Connections to PostgreSQL were cut off", action="database_close", error=error)
        pool.terminate()


async def _prepare_connection(connection: Connection) -> None:
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(
            kind, encoder=_encoded, decoder=msgspec.json.decode, schema="pg_catalog"
        )


async def _leave_as_is(_: Connection) -> None:
    """Nothing here changes a session, so nothing has to be undone, which saves a round trip each time."""


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()
