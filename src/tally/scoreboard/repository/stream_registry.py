"""The number of open streams per player and per address across all processes, in Redis.

`streams:user:<user id>` and `streams:address:<address>` are hashes from process to its open
streams. Processes write absolute counts, not increments, so errors do not accumulate while Redis is
unavailable. `streams:process:<id>` is a heartbeat key with a TTL: the counts of a killed process
are ignored once it expires.
"""

from typing import Final

from tally.kit.ids import new_uuid
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.scripts import STREAMS

STREAMS_PREFIX: Final = "streams:"
PROCESS_PREFIX: Final = "streams:process:"
HEARTBEAT_TTL_SECONDS: Final = 10
# Longer than any client stays connected without opening or closing a stream.
COUNTS_TTL_SECONDS: Final = 7 * 86_400


class StreamRegistry:
    """Reports the streams of this process. Methods raise CacheUnavailable."""

    def __init__(self, redis: InstrumentedRedis) -> None:
        self._redis = redis
        self._process_id = new_uuid()
        self._script = redis.script(STREAMS)

    async def report(self, kind: str, client: str, count: int) -> int:
        """Set this process' count for a client and return the count of all processes."""
        keys = (f"{STREAMS_PREFIX}{kind}:{client}", PROCESS_PREFIX + self._process_id)
        arguments = (
            self._process_id,
            count,
            HEARTBEAT_TTL_SECONDS,
            PROCESS_PREFIX,
            COUNTS_TTL_SECONDS,
        )
        total: int = await self._redis.run("streams_report", self._script, keys, arguments)
        return total

    async def heartbeat(self) -> bool:
        """Renew the heartbeat and return whether the previous one was still there."""
        async with self._redis.use("streams_heartbeat") as client:
            previous = await client.set(
                PROCESS_PREFIX + self._process_id, "1", ex=HEARTBEAT_TTL_SECONDS, get=True
            )
        return previous is not None
