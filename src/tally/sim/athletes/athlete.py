"""One made-up athlete: rests, goes out, uploads, and now and then has second thoughts."""

import random
from collections import deque
from dataclasses import dataclass, field

from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.sim.athletes.strava_client import StravaControlClient
from tally.sim.athletes.training import (
    DISCIPLINES,
    AthleteProfile,
    random_rest_seconds,
    random_workout,
    seconds_until_daylight,
)

RENAMES, RETYPES, HIDES, DELETES = 0.08, 0.04, 0.03, 0.05


@dataclass(slots=True)
class AthleteStats:
    """What came of it so far."""

    activities: int = 0
    metres: float = 0.0
    climbed: float = 0.0
    edits: int = 0
    deletions: int = 0
    failures: int = 0
    last: str = ""


@dataclass(frozen=True, slots=True)
class VirtualAthlete:
    character: AthleteProfile
    athlete_id: int
    accounts: StravaControlClient
    clock: Clock
    rng: random.Random
    diary: AthleteStats = field(default_factory=AthleteStats)
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=20))

    async def live(self) -> None:
        """For ever: until the task is cancelled."""
        while True:
            await self.clock.sleep(random_rest_seconds(self.rng, self.character))
            await self.clock.sleep(seconds_until_daylight(self.rng, self.clock.now().hour))
            await self._go_out()

    async def _go_out(self) -> None:
        start = self.clock.seconds()
        effort = random_workout(self.rng, self.character, self.clock.now().hour)
        await self.clock.sleep(effort.elapsed_time)
        try:
            self.recent.append(await self.accounts.upload(self.athlete_id, effort, start))
            self.diary.activities += 1
            self.diary.metres += effort.distance
            self.diary.climbed += effort.total_elevation_gain
            self.diary.last = f"{effort.name}, {effort.distance / 1000:.1f} km"
            await self._think_again(effort.name, effort.sport_type)
        except Unavailable as error:
            # People try again another day, and so does this one; the display says what went wrong.
            self.diary.failures += 1
            self.diary.last = error.message

    async def _think_again(self, name: str, sport_type: str) -> None:
        """Sometimes a title, a type or the privacy is changed, and sometimes an older activity is deleted."""
        latest = self.recent[-1]
        if self.rng.random() < RENAMES:
            await self._edit(latest, name=f"{name} with friends")
        if self.rng.random() < RETYPES:
            relatives = next(
                (each.sport_types for each in DISCIPLINES if sport_type in each.sport_types),
                (sport_type,),
            )
            await self._edit(latest, sport_type=self.rng.choice(relatives))
        if self.rng.random() < HIDES:
            await self._edit(latest, private=True)
        if self.rng.random() < DELETES:
            regretted = self.rng.choice(tuple(self.recent))
            await self.accounts.delete(regretted)
            self.recent.remove(regretted)
            self.diary.deletions += 1
            self.diary.last = "deleted an activity"

    async def _edit(self, activity_id: int, **fields: str | bool) -> None:
        await self.accounts.edit(activity_id, **fields)
        self.diary.edits += 1
