"""The pub/sub channel `leaderboard:updates`, on which processes announce leaderboard changes.

Each process has one subscription, however many SSE clients it serves. `listen` resubscribes with
back-off after a failure. Redis does not store messages, so `on_subscribed` runs after each
subscription to read the current state.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.retry import full_jitter
from tally.scoreboard.model.errors import CacheUnavailable
from tally.scoreboard.repository.redis_client import InstrumentedRedis

UPDATES: Final = "leaderboard:updates"
# How long a connection may be idle before a ping checks it.
IDLE_SECONDS: Final = 15.0
INITIAL_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 5.0

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class UpdateChannel:
    """Publishes to the channel and listens on it."""

    redis: InstrumentedRedis
    clock: Clock
    name: str = UPDATES

    async def publish(self, message: bytes) -> int:
        """Publish and return the number of subscribers; raises CacheUnavailable."""
        async with self.redis.use("publish") as client:
            return int(await client.publish(self.name, message))

    async def listen(
        self,
        on_message: Callable[[bytes], Awaitable[None]],
        on_subscribed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Pass each message to `on_message` until cancelled; resubscribe after failures."""
        failures = 0
        while True:
            try:
                async with self.redis.use("subscribe") as client, client.pubsub() as subscription:
                    await subscription.subscribe(self.name)
                    failures = await self._receive(subscription, on_message, on_subscribed)
            except CacheUnavailable as error:
                failures += 1
                if failures == 1:
                    _log.warning(
                        "Redis subscription lost", action="redis_subscription_lost", error=error
                    )
            await self.clock.sleep(
                full_jitter(failures, INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
            )

    async def _receive(
        self,
        subscription: Any,
        on_message: Callable[[bytes], Awaitable[None]],
        on_subscribed: Callable[[], Awaitable[None]] | None,
    ) -> int:
        is_pinged = False
        while True:
            message = await subscription.get_message(timeout=IDLE_SECONDS)
            if message is None:
                if is_pinged:
                    raise CacheUnavailable(f"Redis did not reply to a ping for {IDLE_SECONDS} s")
                await subscription.ping()
                is_pinged = True
                continue
            is_pinged = False
            if message["type"] == "subscribe" and on_subscribed is not None:
                await on_subscribed()
            elif message["type"] == "message":
                await on_message(message["data"])
