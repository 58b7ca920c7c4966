"""The channel `leaderboard:updates`, on which processes tell each other how the board looks now.

A process publishes with `publish`, and has one subscription, however many clients watch, kept up by
`listen`: it subscribes again, with growing patience, whenever Redis was away. Redis keeps nothing
for those who are not there, so after each subscription `joined` is called: the time to look at the
board afresh.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.retry import full_jitter
from tally.scoreboard.model import CacheUnavailable
from tally.scoreboard.repository.redis_client import InstrumentedRedis

UPDATES: Final = "leaderboard:updates"
# How long a silent connection is trusted before it is asked whether it still lives.
QUIET_SECONDS: Final = 15.0
LONGEST_WAIT: Final = 5.0

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class UpdateChannel:
    """Publishes to and listens on the channel."""

    server: InstrumentedRedis
    clock: Clock
    name: str = UPDATES

    async def publish(self, message: bytes) -> int:
        """Tell all processes; how many were listening. CacheUnavailable without Redis."""
        async with self.server.use("publish") as client:
            return int(await client.publish(self.name, message))

    async def listen(
        self,
        heard: Callable[[bytes], Awaitable[None]],
        joined: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Hand every message to `heard`, until cancelled; `joined` is called after each subscription, also the first."""
        failed = 0
        while True:
            try:
                async with self.server.use("subscribe") as client, client.pubsub() as subscription:
                    await subscription.subscribe(self.name)
                    failed = await self._hear(subscription, heard, joined)
            except CacheUnavailable as away:
                failed += 1
                if failed == 1:
                    _log.warning(
                        "Updates are not heard while Redis is away",
                        action="updates_listen",
                        error=away,
                    )
            await self.clock.sleep(full_jitter(failed, 0.1, LONGEST_WAIT))

    async def _hear(
        self,
        subscription: Any,
        heard: Callable[[bytes], Awaitable[None]],
        joined: Callable[[], Awaitable[None]] | None,
    ) -> int:
        is_asked = False
        while True:
            message = await subscription.get_message(timeout=QUIET_SECONDS)
            if message is None:
                if is_asked:
                    raise CacheUnavailable("Redis has gone silent")
                await subscription.ping()
                is_asked = True
                continue
            is_asked = False
            if message["type"] == "subscribe" and joined is not None:
                await joined()
            elif message["type"] == "message":
                await heard(message["data"])
