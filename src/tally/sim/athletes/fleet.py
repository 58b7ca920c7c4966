"""A fleet of virtual athletes, and the accelerated clock they run on."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.tasks import cancel_all
from tally.sim.athletes.athlete import VirtualAthlete
from tally.sim.athletes.collect_client import AthleteGoal, CollectClient
from tally.sim.athletes.strava_client import StravaControlClient
from tally.sim.athletes.training import AthleteProfile, random_profile

MAX_CONCURRENT_SIGN_UPS: Final = 8
NO_ACCOUNTS: Final[Mapping[str, int]] = MappingProxyType({})
# Typical goals for a few weeks, in metres.
DISTANCES: Final = {"RIDE": 500_000, "RUN": 120_000, "SWIM": 25_000, "WALK": 80_000}
CLIMBS: Final = {"RIDE": 5_000, "RUN": 1_000, "WALK": 800}


@dataclass(frozen=True, slots=True)
class AthleteFleet:
    """The athletes. They join the collect server, if there is one, and train on `clock`."""

    strava: StravaControlClient
    clock: Clock
    rng: random.Random
    collect: CollectClient | None = None
    athletes: list[VirtualAthlete] = field(default_factory=list)

    async def sign_up(self, count: int, accounts: Mapping[str, int] = NO_ACCOUNTS) -> None:
        """Sign up `count` more athletes and join the collect server.

        `accounts` maps the names of athletes who signed up earlier to their Strava ids.
        """
        first = len(self.athletes)
        # Drawn sequentially, so that a seed gives the same athletes regardless of the network.
        profiles = [
            (random_profile(self.rng, first + number), self.rng.getrandbits(64))
            for number in range(count)
        ]
        slots = asyncio.Semaphore(MAX_CONCURRENT_SIGN_UPS)

        async def create(profile: AthleteProfile, seed: int) -> VirtualAthlete:
            async with slots:
                rng = random.Random(seed)  # noqa: S311  training data, not keys
                if profile.name in accounts:
                    return VirtualAthlete(
                        profile, accounts[profile.name], self.strava, self.clock, rng
                    )
                return await self._create(profile, rng)

        self.athletes.extend(
            await asyncio.gather(*(create(profile, seed) for profile, seed in profiles))
        )

    async def _create(self, profile: AthleteProfile, rng: random.Random) -> VirtualAthlete:
        athlete_id = await self.strava.sign_up(profile.firstname, profile.lastname)
        athlete = VirtualAthlete(profile, athlete_id, self.strava, self.clock, rng)
        if self.collect is not None:
            try:
                await self.collect.join(profile, athlete_id, random_goal(rng, profile))
                athlete.stats.last_event = "joined"
            except Unavailable as error:
                athlete.stats.failures += 1
                athlete.stats.last_event = f"could not join: {error.message}"
        return athlete

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all athletes until the block ends."""
        tasks = [
            asyncio.create_task(athlete.run(), name=athlete.profile.name)
            for athlete in self.athletes
        ]
        try:
            yield
        finally:
            await cancel_all(tasks)
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for error in results:
            if error is not None and not isinstance(error, asyncio.CancelledError):
                raise error


def random_goal(rng: random.Random, profile: AthleteProfile) -> AthleteGoal:
    """A goal in the favourite sport: mostly a distance, sometimes an elevation."""
    family = profile.favourite.family
    if family in CLIMBS and rng.random() < 0.25:
        return AthleteGoal(family, "ELEVATION_METERS", round(CLIMBS[family] * rng.uniform(0.5, 2)))
    return AthleteGoal(family, "DISTANCE_METERS", round(DISTANCES[family] * rng.uniform(0.5, 2)))


class AcceleratedClock(Clock):
    """A clock that starts at the time of another clock and runs `speed` times as fast."""

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
