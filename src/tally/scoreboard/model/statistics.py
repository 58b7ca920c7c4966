"""What operators see of PostgreSQL and Redis."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Differences between the leaderboard in Redis and PostgreSQL.

    Of `compared` players, `missing` are not in Redis and `wrong` have another score, time or name
    there. `extra` are players in Redis without an account, `strays` are members that belong to no
    player. `repaired` counts the differences that were fixed; `examples` are some user ids.
    """

    compared: int = 0
    missing: int = 0
    wrong: int = 0
    extra: int = 0
    strays: int = 0
    repaired: int = 0
    examples: tuple[str, ...] = ()

    @property
    def differences(self) -> int:
        return self.missing + self.wrong + self.extra + self.strays


@dataclass(frozen=True, slots=True)
class DatabaseStats:
    """PostgreSQL: bytes on disk, connections, total transactions, buffer cache hit ratio."""

    size: int
    connections: int
    transactions: int
    cache_hit_ratio: float


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Redis: product and version, bytes in memory, keys, operations per second, hit ratio."""

    version: str
    memory: int
    keys: int
    operations_per_second: int
    hit_ratio: float
