"""How the two servers are doing, by their own count: their size, who is connected, and how much they do.

Both keep these figures all the time, so to ask for them costs next to nothing, however much they
hold.
"""

from dataclasses import dataclass

from tally.scoreboard.repository.database import Database
from tally.scoreboard.repository.redis_client import InstrumentedRedis

_DATABASE = """
SELECT pg_database_size(datname) AS size, numbackends, xact_commit + xact_rollback AS transactions, blks_hit, blks_read
FROM pg_stat_database WHERE datname = current_database()
"""


@dataclass(frozen=True, slots=True)
class DatabaseStats:
    """PostgreSQL: bytes on disk, connections, transactions so far, and of the blocks asked for, how many were in its memory."""

    size: int
    connections: int
    transactions: int
    from_memory: float


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Redis: what it calls itself, bytes in memory, keys, operations a second, and of the keys asked for, how many were there."""

    program: str
    memory: int
    keys: int
    operations: int
    hits: float


async def read_database_stats(database: Database) -> DatabaseStats:
    """PostgreSQL's own figures; Unavailable where it does not answer."""
    (row,) = await database.rows("vitals", _DATABASE)
    return DatabaseStats(
        row["size"],
        row["numbackends"],
        row["transactions"],
        _share(row["blks_hit"], row["blks_hit"] + row["blks_read"]),
    )


async def read_cache_stats(redis: InstrumentedRedis) -> CacheStats:
    """Redis' own figures; CacheUnavailable where it does not answer."""
    async with redis.use("vitals") as client:
        told = await client.info()
        keys = await client.dbsize()
    hits, misses = told.get("keyspace_hits", 0), told.get("keyspace_misses", 0)
    program = (
        f"Valkey {told['valkey_version']}"
        if "valkey_version" in told
        else f"Redis {told.get('redis_version', '')}".strip()
    )
    return CacheStats(
        program,
        told["used_memory"],
        keys,
        told["instantaneous_ops_per_sec"],
        _share(hits, hits + misses),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
