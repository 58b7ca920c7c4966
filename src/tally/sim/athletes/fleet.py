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
from tally.sim.athletes.account import StravaAccounts
from tally.sim.athletes.athlete import MadeUpAthlete
from tally.sim.athletes.membership import CollectServer, Goal
from tally.sim.athletes.training import Character, draw_character

AT_ONCE: Final = 8
NOBODY: Final[Mapping[str, int]] = MappingProxyType({})
# What a goal of some weeks is, in the sport's own measure.
DISTANCES: Final = {"RIDE": 500_000, "RUN": 120_000, "SWIM": 25_000, "WALK": 80_000}
CLIMBS: Final = {"RIDE": 5_000, "RUN": 1_000, "WALK": 800}


@dataclass(frozen=True, slots=True)
class Fleet:
    """`clock` is the athletes' own, which may be a fast one; `collect` is None where nobody collects."""

    accounts: StravaAccounts
    clock: Clock
    chance: random.Random
    collect: CollectServer | None = None
    athletes: list[MadeUpAthlete] = field(default_factory=list)

    async def gather(self, count: int, known: Mapping[str, int] = NOBODY) -> None:
        """Let `count` more athletes sign up, and join where there is something to join.

        Those in `known`, by name, have done so before: they go on with the account of that id.
        """
        first = len(self.athletes)
        # Drawn one after the other, so that the same seed makes the same people however the network
        # behaves.
        drawn = [
            (draw_character(self.chance, first + number), self.chance.getrandbits(64))
            for number in range(count)
        ]
        places = asyncio.Semaphore(AT_ONCE)

        async def arrive(character: Character, seed: int) -> MadeUpAthlete:
            async with places:
                own = random.Random(seed)  # noqa: S311  made-up workouts, not keys
                if character.name in known:
                    return MadeUpAthlete(
                        character, known[character.name], self.accounts, self.clock, own
                    )
                return await self._arrive(character, own)

        self.athletes.extend(
            await asyncio.gather(*(arrive(character, seed) for character, seed in drawn))
        )

    async def _arrive(self, character: Character, chance: random.Random) -> MadeUpAthlete:
        athlete_id = await self.accounts.sign_up(character.firstname, character.lastname)
        athlete = MadeUpAthlete(character, athlete_id, self.accounts, self.clock, chance)
        if self.collect is not None:
            try:
                await self.collect.join(character, athlete_id, draw_goal(chance, character))
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


def draw_goal(chance: random.Random, character: Character) -> Goal:
    """Mostly a distance, sometimes a climb, in the sport that the person loves."""
    family = character.favourite.family
    if family in CLIMBS and chance.random() < 0.25:
        return Goal(family, "ELEVATION_METERS", round(CLIMBS[family] * chance.uniform(0.5, 2)))
    return Goal(family, "DISTANCE_METERS", round(DISTANCES[family] * chance.uniform(0.5, 2)))
