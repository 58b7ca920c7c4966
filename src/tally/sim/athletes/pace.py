"""A clock on which days pass in seconds: the time of another one, as many times as fast."""

from tally.kit.clock import Clock


class FastClock(Clock):
    """Starts at the moment of the clock it stands on, and runs away from it."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock = clock
        self._speed = speed
        self._start_ns = clock.time_ns()
        self._started = clock.monotonic()

    def time_ns(self) -> int:
        return self._start_ns + round(self.monotonic() * 1_000_000_000)

    def monotonic(self) -> float:
        return (self._clock.monotonic() - self._started) * self._speed

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds / self._speed)
