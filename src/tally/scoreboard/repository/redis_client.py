"""Redis, or Valkey, which speaks the same: one connection for all, bounded in time, measured, its trouble told as `CacheUnavailable`.

    async with open_redis(url, clock, figures) as server:
        async with server.use("board_top") as client: …

Whatever goes wrong here is `CacheUnavailable`: Redis is a cache, PostgreSQL knows the same, and who
catches it asks there. That includes answers that Redis should never give, such as that a key is of
another type: a rebuild mends those.
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
from tally.scoreboard.model import CacheUnavailable
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.multiplexed_redis import MultiplexedRedis

_log = logs.logger()

Client: TypeAlias = (
    Any  # Redis[bytes]; what its methods return depends on arguments in ways the types cannot tell
)

RETRY_AFTER: Final = 1.0


@dataclass(frozen=True, slots=True)
class InstrumentedRedis:
    """A client, the clock that times it, and the figures."""

    client: Client
    clock: Clock
    figures: StorageMetrics

    @asynccontextmanager
    async def use(self, call: str) -> AsyncIterator[Client]:
        """The client for a while; `call` is the name under which the time is counted."""
        started, outcome = self.clock.monotonic(), "ok"
        try:
            yield self.client
        except (RedisError, OSError, TimeoutError) as error:
            outcome = "away"
            if self.figures.should_log("redis", started):
                _log.warning("Redis did not answer", action=call, error=error)
            raise CacheUnavailable(
                f"Redis: {type(error).__name__} {error}", retry_after=RETRY_AFTER
            ) from error
        except BaseException:
            outcome = "refused"
            raise
        finally:
            self.figures.observe("redis", call, outcome, self.clock.monotonic() - started)

    async def run(
        self,
        call: str,
        script: AsyncScript,
        keys: Sequence[str],
        arguments: Sequence[str | bytes | int],
    ) -> Any:
        """What a script answers; sent by its hash, and whole only when Redis does not know it."""
        async with self.use(call) as client:
            return await script(keys=list(keys), args=list(arguments), client=client)

    def script(self, text: str) -> AsyncScript:
        script: AsyncScript = self.client.register_script(text)
        return script

    async def ping(self) -> None:
        """Return if Redis answers; CacheUnavailable if not."""
        async with self.use("ping") as client:
            await client.ping()


@asynccontextmanager
async def open_redis(
    url: str, clock: Clock, figures: StorageMetrics, *, seconds: float = 1.0
) -> AsyncIterator[InstrumentedRedis]:
    """The server for as long as this lasts. It need not be there: nothing is asked of it yet."""
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
        yield InstrumentedRedis(client, clock, figures)
    finally:
        await client.aclose()
