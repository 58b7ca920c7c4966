"""A virtual athlete: rests, trains, uploads activities and sometimes edits or deletes them."""

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
    random_session,
    seconds_until_daylight,
)

# Probabilities per activity.
RENAME, CHANGE_TYPE, MAKE_PRIVATE, DELETE = 0.08, 0.04, 0.03, 0.05


@dataclass(slots=True)
class AthleteStats:
    """What an athlete did so far."""

    activities: int = 0
    distance: float = 0.0
    elevation: float = 0.0
    edits: int = 0
    deletions: int = 0
    failures: int = 0
    last_event: str = ""


@dataclass(frozen=True, slots=True)
class VirtualAthlete:
    """An athlete with a Strava account."""

    profile: AthleteProfile
    athlete_id: int
    strava: StravaControlClient
    clock: Clock
    rng: random.Random
    stats: AthleteStats = field(default_factory=AthleteStats)
    recent_activities: deque[int] = field(default_factory=lambda: deque(maxlen=20))

    async def run(self) -> None:
        """Train until the task is cancelled."""
        while True:
            await self.clock.sleep(random_rest_seconds(self.rng, self.profile))
            await self.clock.sleep(seconds_until_daylight(self.rng, self.clock.now().hour))
            await self._train()

    async def _train(self) -> None:
        start = self.clock.seconds()
        session = random_session(self.rng, self.profile, self.clock.now().hour)
        await self.clock.sleep(session.elapsed_time)
        try:
            self.recent_activities.append(await self.strava.upload(self.athlete_id, session, start))
            self.stats.activities += 1
            self.stats.distance += session.distance
            self.stats.elevation += session.total_elevation_gain
            self.stats.last_event = f"{session.name}, {session.distance / 1000:.1f} km"
            await self._maybe_edit(session.name, session.sport_type)
        except Unavailable as error:
            # The athlete tries again at the next session; the display shows the error.
            self.stats.failures += 1
            self.stats.last_event = error.message

    async def _maybe_edit(self, name: str, sport_type: str) -> None:
        """Sometimes edit the title, type or privacy, or delete a recent activity."""
        latest = self.recent_activities[-1]
        if self.rng.random() < RENAME:
            await self._edit(latest, name=f"{name} with friends")
        if self.rng.random() < CHANGE_TYPE:
            related_types = next(
                (
                    discipline.sport_types
                    for discipline in DISCIPLINES
                    if sport_type in discipline.sport_types
                ),
                (sport_type,),
            )
            await self._edit(latest, sport_type=self.rng.choice(related_types))
        if self.rng.random() < MAKE_PRIVATE:
            await self._edit(latest, private=True)
        if self.rng.random() < DELETE:
            activity_id = self.rng.choice(tuple(self.recent_activities))
            await self._delete(activity_id)
            self.stats.last_event = "deleted an activity"

    async def _delete(self, activity_id: int) -> None:
        # Counted before the request: one that is cancelled may still delete the activity.
        self.stats.deletions += 1
        try:
            await self.strava.delete(activity_id)
        except Unavailable:
            self.stats.deletions -= 1
            raise
        self.recent_activities.remove(activity_id)

    async def _edit(self, activity_id: int, **fields: str | bool) -> None:
        await self.strava.edit(activity_id, **fields)
        self.stats.edits += 1
