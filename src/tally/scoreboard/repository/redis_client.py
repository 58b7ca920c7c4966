"""A Redis (or Valkey) client with timing metrics, time-outs and error translation.

    async with open_redis(url, clock, metrics) as redis:
        async with redis.use("leaderboard_top") as client: …

Every error becomes `CacheUnavailable`, since PostgreSQL has the same data and callers fall back to
it. This includes unexpected replies, such as a key of the wrong type, which a rebuild repairs.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.model.errors import CacheUnavailable
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.multiplexed_redis import MultiplexedRedis

_log = logs.logger()

# Redis[bytes], whose result types depend on arguments in ways that annotations cannot express.
Client: TypeAlias = Any

RETRY_AFTER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class InstrumentedRedis:
    """A Redis client that measures calls and translates errors."""

    client: Client
    clock: Clock
    metrics: StorageMetrics

    @asynccontextmanager
    async def use(self, call: str) -> AsyncIterator[Client]:
        """Yield the client; `call` is the label of the metric. Raises CacheUnavailable."""
        started, outcome = self.clock.monotonic(), "ok"
        try:
            yield self.client
        except (RedisError, OSError, TimeoutError) as error:
            outcome = "unavailable"
            if self.metrics.should_log("redis", started):
                _log.warning("Redis call failed", action="redis_failed", call=call, error=error)
            raise CacheUnavailable(
                f"Redis: {type(error).__name__} {error}", retry_after=RETRY_AFTER_SECONDS
            ) from error
        except BaseException:
            outcome = "rejected"
            raise
        finally:
            self.metrics.observe("redis", call, outcome, self.clock.monotonic() - started)

    async def run(
        self,
        call: str,
        script: AsyncScript,
        keys: Sequence[str],
        arguments: Sequence[str | bytes | int],
    ) -> Any:
        """Run a script with EVALSHA; its source is sent only if Redis does not have it."""
        async with self.use(call) as client:
            return await script(keys=list(keys), args=list(arguments), client=client)

    def script(self, text: str) -> AsyncScript:
        script: AsyncScript = self.client.register_script(text)
        return script

    async def ping(self) -> None:
        """Return if Redis responds; raises CacheUnavailable."""
        async with self.use("ping") as client:
            await client.ping()


@asynccontextmanager
async def open_redis(
    url: str, clock: Clock, metrics: StorageMetrics, *, seconds: float = 1.0
) -> AsyncIterator[InstrumentedRedis]:
    """Open a client whose calls time out after `seconds`; it connects on the first call."""
    pool = ConnectionPool.from_url(
        url,
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
        retry=Retry(NoBackoff(), 0),
        decode_responses=False,
        protocol=2,
    )
    client: Client = MultiplexedRedis(pool, seconds)
    try:
        yield InstrumentedRedis(client, clock, metrics)
    finally:
        await client.aclose()
