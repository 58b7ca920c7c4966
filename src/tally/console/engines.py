"""State and key statistics of the store, PostgreSQL and Redis."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from tally.console.context import ConsoleContext
from tally.console.counter_rates import CounterRates
from tally.console.formatting import format_duration, format_rate, format_size
from tally.errors import TallyError, Unavailable
from tally.kit import logs
from tally.kit.clock import DeadlineExceeded, finish_within
from tally.scoreboard.model.statistics import DatabaseStats
from tally.scoreboard.wiring import Scoreboard
from tally.store.errors import StoreError
from tally.store.sqlite.engine import SqliteEngine

QUERY_TIMEOUT_SECONDS: Final = 2.0

_log = logs.logger()
Facts: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Current state of an engine; `facts` is empty if it did not respond."""

    key: str
    name: str
    kind: str
    state: str
    is_healthy: bool
    facts: Facts = ()


class EngineStatusReader:
    """Queries every engine; one that does not respond does not hide the others."""

    def __init__(self, context: ConsoleContext, rates: CounterRates) -> None:
        self._context = context
        self._rates = rates
        self._scoreboard = context.backend("scoreboard", Scoreboard)
        # Time and PostgreSQL's transaction counter at the last read, to compute a rate.
        self._last_transactions: tuple[float, int] | None = None

    async def read(self) -> list[EngineStatus]:
        statuses = [await self._query("store", "Store", self._store_kind(), self._store)]
        if self._scoreboard is not None:
            settings = self._context.settings
            kinds = "external", "embedded, child process"
            kind = kinds[settings.scoreboard_database_url is None]
            statuses.append(await self._query("postgresql", "PostgreSQL", kind, self._postgresql))
            statuses.append(await self._redis(kinds[settings.scoreboard_redis_url is None]))
        return statuses

    async def _query(
        self, key: str, name: str, kind: str, query: Callable[[], Awaitable[Facts]]
    ) -> EngineStatus:
        try:
            facts = await finish_within(self._context.clock, QUERY_TIMEOUT_SECONDS, query())
        except (TallyError, StoreError, DeadlineExceeded, OSError) as error:
            _log.debug(
                "Engine did not respond", action="engine_query_failed", engine=key, error=error
            )
            return EngineStatus(key, name, kind, "unavailable", is_healthy=False)
        return EngineStatus(key, name, kind, "available", is_healthy=True, facts=facts)

    def _store_kind(self) -> str:
        settings = self._context.settings
        if isinstance(self._context.engine, SqliteEngine):
            return "SQLite, embedded in this process"
        return (
            f"DynamoDB at {settings.dynamodb_endpoint}"
            if settings.dynamodb_endpoint
            else "DynamoDB"
        )

    async def _store(self) -> Facts:
        engine, rates = self._context.engine, self._rates
        await engine.ping()
        reads, writes = rates.rate("store reads"), rates.rate("store writes")
        mean = rates.rate("store seconds") / (reads + writes) if reads + writes else 0.0
        tables = ("Tables", str(len(self._context.catalogue.tables())))
        work = (
            ("Reads", f"{format_rate(reads)}/s"),
            ("Writes", f"{format_rate(writes)}/s"),
            ("Mean time", format_duration(mean)),
        )
        if not isinstance(engine, SqliteEngine):
            return (tables, *work)
        return (
            ("File", format_size(_bytes(engine.path))),
            ("Write-ahead log", format_size(_bytes(Path(f"{engine.path}-wal")))),
            tables,
            *work,
        )

    async def _postgresql(self) -> Facts:
        if self._scoreboard is None:
            raise Unavailable("This instance does not run the scoreboard")
        stats = await self._scoreboard.services.server_stats.read_database()
        return (
            ("Size", format_size(stats.size)),
            ("Connections", str(stats.connections)),
            ("Transactions", self._transactions(stats)),
            ("Cache hit ratio", f"{stats.cache_hit_ratio:.1%}"),
        )

    def _transactions(self, stats: DatabaseStats) -> str:
        now, last = self._context.clock.monotonic(), self._last_transactions
        self._last_transactions = (now, stats.transactions)
        if last is None or now <= last[0]:
            return f"{stats.transactions:,} total"
        return f"{format_rate((stats.transactions - last[1]) / (now - last[0]))}/s"

    async def _redis(self, kind: str) -> EngineStatus:
        """Read Redis' state; while it is stopped from the console, it is not queried."""
        scoreboard = self._scoreboard
        if (
            scoreboard is not None
            and scoreboard.valkey is not None
            and scoreboard.valkey.supervisor.is_paused
        ):
            return EngineStatus(
                "redis", "Redis", kind, "stopped on the scoreboard page", is_healthy=False
            )
        return await self._query("redis", "Redis", kind, self._redis_facts)

    async def _redis_facts(self) -> Facts:
        if self._scoreboard is None:
            raise Unavailable("This instance does not run the scoreboard")
        stats = await self._scoreboard.services.server_stats.read_cache()
        return (
            ("Server", stats.version),
            ("Memory", format_size(stats.memory)),
            ("Keys", f"{stats.keys:,}"),
            ("Operations", f"{format_rate(stats.operations_per_second)}/s"),
            ("Hit ratio", f"{stats.hit_ratio:.1%}"),
        )


def _bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
