"""Many made-up athletes at once: they sign up, join the collect server if there is one, and live."""

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
NOBODY: Final[Mapping[str, int]] = MappingProxyType({})
# What a goal of some weeks is, in the sport's own measure.
DISTANCES: Final = {"RIDE": 500_000, "RUN": 120_000, "SWIM": 25_000, "WALK": 80_000}
CLIMBS: Final = {"RIDE": 5_000, "RUN": 1_000, "WALK": 800}


@dataclass(frozen=True, slots=True)
class AthleteFleet:
    """`clock` is the athletes' own, which may be a fast one; `collect` is None where nobody collects."""

    accounts: StravaControlClient
    clock: Clock
    rng: random.Random
    collect: CollectClient | None = None
    athletes: list[VirtualAthlete] = field(default_factory=list)

    async def gather(self, count: int, known: Mapping[str, int] = NOBODY) -> None:
        """Let `count` more athletes sign up, and join where there is something to join.

        Those in `known`, by name, have done so before: they go on with the account of that id.
        """
        first = len(self.athletes)
        # Drawn one after the other, so that the same seed makes the same people however the network
        # behaves.
        drawn = [
            (random_profile(self.rng, first + number), self.rng.getrandbits(64))
            for number in range(count)
        ]
        places = asyncio.Semaphore(MAX_CONCURRENT_SIGN_UPS)

        async def arrive(character: AthleteProfile, seed: int) -> VirtualAthlete:
            async with places:
                own = random.Random(seed)  # noqa: S311  made-up workouts, not keys
                if character.name in known:
                    return VirtualAthlete(
                        character, known[character.name], self.accounts, self.clock, own
                    )
                return await self._arrive(character, own)

        self.athletes.extend(
            await asyncio.gather(*(arrive(character, seed) for character, seed in drawn))
        )

    async def _arrive(self, character: AthleteProfile, rng: random.Random) -> VirtualAthlete:
        athlete_id = await self.accounts.sign_up(character.firstname, character.lastname)
        athlete = VirtualAthlete(character, athlete_id, self.accounts, self.clock, rng)
        if self.collect is not None:
            try:
                await self.collect.join(character, athlete_id, random_goal(rng, character))
                athlete.diary.last = "joined"
            except Unavailable as error:
                athlete.diary.failures += 1
                athlete.diary.last = f"could not join: {error.message}"
        return athlete

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Everybody who is there lives until the block ends."""
        tasks = [
            asyncio.create_task(athlete.live(), name=athlete.character.name)
            for athlete in self.athletes
        ]
        try:
            yield
        finally:
            await cancel_all(tasks)
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if error is not None and not isinstance(error, asyncio.CancelledError):
                raise error


def random_goal(rng: random.Random, character: AthleteProfile) -> AthleteGoal:
    """Mostly a distance, sometimes a climb, in the sport that the person loves."""
    family = character.favourite.family
    if family in CLIMBS and rng.random() < 0.25:
        return AthleteGoal(family, "ELEVATION_METERS", round(CLIMBS[family] * rng.uniform(0.5, 2)))
    return AthleteGoal(family, "DISTANCE_METERS", round(DISTANCES[family] * rng.uniform(0.5, 2)))


class AcceleratedClock(Clock):
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
