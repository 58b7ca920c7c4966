"""Statistics that PostgreSQL and Redis maintain themselves, so reading them is cheap."""

from tally.scoreboard.model.statistics import CacheStats, DatabaseStats
from tally.scoreboard.repository.database import Database
from tally.scoreboard.repository.redis_client import InstrumentedRedis

_DATABASE_STATS = """
SELECT pg_database_size(datname) AS size, numbackends,
    xact_commit + xact_rollback AS transactions, blks_hit, blks_read
FROM pg_stat_database WHERE datname = current_database()
"""


async def read_database_stats(database: Database) -> DatabaseStats:
    """Read PostgreSQL's statistics; raises Unavailable."""
    (row,) = await database.rows("server_stats", _DATABASE_STATS)
    return DatabaseStats(
        row["size"],
        row["numbackends"],
        row["transactions"],
        _ratio(row["blks_hit"], row["blks_hit"] + row["blks_read"]),
    )


async def read_cache_stats(redis: InstrumentedRedis) -> CacheStats:
    """Read Redis' statistics; raises CacheUnavailable."""
    async with redis.use("server_stats") as client:
        info = await client.info()
        keys = await client.dbsize()
    hits, misses = info.get("keyspace_hits", 0), info.get("keyspace_misses", 0)
    version = (
        f"Valkey {info['valkey_version']}"
        if "valkey_version" in info
        else f"Redis {info.get('redis_version', '')}".strip()
    )
    return CacheStats(
        version,
        info["used_memory"],
        keys,
        info["instantaneous_ops_per_sec"],
        _ratio(hits, hits + misses),
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
