"""What keeps the data, and how it does: the store, PostgreSQL and Redis, each with the few figures that tell most."""

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
from tally.scoreboard.repository.server_stats import (
    DatabaseStats,
    read_cache_stats,
    read_database_stats,
)
from tally.scoreboard.wiring import Scoreboard
from tally.store.errors import StoreError
from tally.store.sqlite.engine import SqliteEngine

QUERY_TIMEOUT_SECONDS: Final = 2.0

_log = logs.logger()
Facts: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One of them as it is now. `state` is a word or two; without facts it did not answer."""

    key: str
    name: str
    kind: str
    state: str
    is_well: bool
    facts: Facts = ()


class EngineStatusReader:
    """Asks all of them at once; each that does not answer is told as such, and the others are shown."""

    def __init__(self, context: ConsoleContext, rates: CounterRates) -> None:
        self._context = context
        self._rates = rates
        self._scoreboard = context.backend("scoreboard", Scoreboard)
        # Of PostgreSQL's transactions, which it counts and we subtract: when, and how many.
        self._before: tuple[float, int] | None = None

    async def look(self) -> list[EngineStatus]:
        found = [await self._asked("store", "Store", self._store_kind(), self._store)]
        if self._scoreboard is not None:
            settings = self._context.settings
            by_url = "by its address", "embedded, a process of its own"
            kind = by_url[settings.scoreboard_database_url is None]
            found.append(await self._asked("postgresql", "PostgreSQL", kind, self._postgresql))
            found.append(await self._redis(by_url[settings.scoreboard_redis_url is None]))
        return found

    async def _asked(
        self, key: str, name: str, kind: str, ask: Callable[[], Awaitable[Facts]]
    ) -> EngineStatus:
        try:
            facts = await finish_within(self._context.clock, QUERY_TIMEOUT_SECONDS, ask())
        except (TallyError, StoreError, DeadlineExceeded, OSError) as error:
            _log.debug(
                "An engine does not answer", action="console_engines", engine=key, error=error
            )
            return EngineStatus(key, name, kind, "away", is_well=False)
        return EngineStatus(key, name, kind, "works", is_well=True, facts=facts)

    def _store_kind(self) -> str:
        settings = self._context.settings
        if isinstance(self._context.store.engine, SqliteEngine):
            return "SQLite, embedded in this process"
        return (
            f"DynamoDB at {settings.dynamodb_endpoint}"
            if settings.dynamodb_endpoint
            else "DynamoDB"
        )

    async def _store(self) -> Facts:
        engine, rates = self._context.store.engine, self._rates
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
            ("Log", format_size(_bytes(Path(f"{engine.path}-wal")))),
            tables,
            *work,
        )

    async def _postgresql(self) -> Facts:
        if self._scoreboard is None:
            raise Unavailable("The scoreboard does not run here")
        told = await read_database_stats(self._scoreboard.database)
        return (
            ("Size", format_size(told.size)),
            ("Connections", str(told.connections)),
            ("Transactions", self._transactions(told)),
            ("From memory", f"{told.from_memory:.1%}"),
        )

    def _transactions(self, told: DatabaseStats) -> str:
        now, before = self._context.clock.monotonic(), self._before
        self._before = (now, told.transactions)
        if before is None or now <= before[0]:
            return f"{told.transactions:,} so far"
        return f"{format_rate((told.transactions - before[1]) / (now - before[0]))}/s"

    async def _redis(self, kind: str) -> EngineStatus:
        """Where it was switched off by hand, it is not asked: nobody need be told that it does not answer."""
        scoreboard = self._scoreboard
        if (
            scoreboard is not None
            and scoreboard.valkey is not None
            and scoreboard.valkey.supervisor.is_paused
        ):
            return EngineStatus(
                "redis", "Redis", kind, "away: switched off on the scoreboard's page", is_well=False
            )
        return await self._asked("redis", "Redis", kind, self._redis_facts)

    async def _redis_facts(self) -> Facts:
        if self._scoreboard is None:
            raise Unavailable("The scoreboard does not run here")
        told = await read_cache_stats(self._scoreboard.redis)
        return (
            ("Program", told.program),
            ("Memory", format_size(told.memory)),
            ("Keys", f"{told.keys:,}"),
            ("Operations", f"{format_rate(told.operations)}/s"),
            ("Found in it", f"{told.hits:.1%}"),
        )


def _bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
