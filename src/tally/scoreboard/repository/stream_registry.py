"""How many streams somebody has open, on all processes together, counted in Redis.

`streams:user:<user id>` and `streams:address:<address>` are hashes: by process, how many it has
open for them. Each process says how many it has, not that there is one more or less, so no error
adds up while Redis is away. `streams:process:<name>` says that a process lives, and is gone some
seconds after it: what a process had open that was killed counts no longer.
"""

from typing import Final

from tally.kit.ids import new_uuid
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.scripts import STREAMS

STREAMS_OF: Final = "streams:"
PROCESS: Final = "streams:process:"
LIVES_SECONDS: Final = 10
# Longer than anybody watches without opening or closing a stream.
KEPT_SECONDS: Final = 7 * 86_400


class StreamRegistry:
    """What this process tells of its streams.

    Every method raises CacheUnavailable where Redis does not answer.
    """

    def __init__(self, server: InstrumentedRedis) -> None:
        self._server = server
        self._process = new_uuid()
        self._script = server.script(STREAMS)

    async def tell(self, kind: str, who: str, count: int) -> int:
        """This process has so many open for them; how many that makes with those of others."""
        keys = (f"{STREAMS_OF}{kind}:{who}", PROCESS + self._process)
        arguments = (self._process, count, LIVES_SECONDS, PROCESS, KEPT_SECONDS)
        total: int = await self._server.run("streams_tell", self._script, keys, arguments)
        return total

    async def live(self) -> bool:
        """Count as living for some seconds more; whether this process still did, or else Redis has forgotten it."""
        async with self._server.use("streams_live") as client:
            return (
                await client.set(PROCESS + self._process, "1", ex=LIVES_SECONDS, get=True)
                is not None
            )
