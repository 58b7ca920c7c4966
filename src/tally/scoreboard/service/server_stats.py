"""Statistics of PostgreSQL and Redis, for the console."""

from dataclasses import dataclass

from tally.scoreboard.model.statistics import CacheStats, DatabaseStats
from tally.scoreboard.repository.database import Database
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.server_stats import read_cache_stats, read_database_stats


@dataclass(frozen=True, slots=True)
class ServerStats:
    """Reads what the two servers report about themselves."""

    database: Database
    redis: InstrumentedRedis

    async def read_database(self) -> DatabaseStats:
        """Return PostgreSQL's statistics; raises Unavailable."""
        return await read_database_stats(self.database)

    async def read_cache(self) -> CacheStats:
        """Return Redis' statistics; raises CacheUnavailable."""
        return await read_cache_stats(self.redis)

    async def ping_cache(self) -> None:
        """Return if Redis responds; raises CacheUnavailable."""
        await self.redis.ping()
