"""Random but plausible athlete profiles and training sessions.

Distances vary around the typical distance of the sport and the athlete, up to a realistic maximum.
Speed, pauses and elevation follow from the distance. The same seed gives the same athletes and
sessions.
"""

import random
from dataclasses import dataclass
from typing import Final

WEEK_SECONDS: Final = 7 * 86_400
# Few athletes train outside these hours.
FIRST_HOUR, LAST_HOUR = 6, 21

FIRST_NAMES: Final = (
    "Ana", "Bo", "Chidi", "Dana", "Eve", "Femi", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Liam",
    "Mei", "Noor", "Otto", "Priya", "Quinn", "Rosa", "Sami", "Tove", "Uma", "Viktor", "Wanda",
    "Ximena", "Yuki", "Zoe",
)  # fmt: skip
LAST_NAMES: Final = (
    "Abara", "Berg", "Costa", "Dimitrov", "Eriksen", "Fontaine", "Garcia", "Haddad", "Ito",
    "Jansen", "Kowalski", "Lindqvist", "Moreau", "Ng", "Okafor", "Petrov", "Quist", "Rossi",
    "Silva", "Tanaka", "Ueda", "Vargas", "Weiss", "Young", "Zhang",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Discipline:
    """A sport: typical and maximum distance (m), speed (m/s) and climb (m per km)."""

    family: str
    # The first is the most common.
    sport_types: tuple[str, ...]
    indoor: str | None
    distance: float
    max_distance: float
    speed: float
    climb: float


DISCIPLINES: Final = (
    Discipline(
        "RIDE",
        ("Ride", "GravelRide", "MountainBikeRide", "EBikeRide"),
        "VirtualRide",
        32_000,
        220_000,
        7.0,
        9.0,
    ),
    Discipline("RUN", ("Run", "TrailRun"), "VirtualRun", 8_500, 60_000, 2.8, 8.0),
    Discipline("SWIM", ("Swim",), None, 1_800, 10_000, 0.85, 0.0),
    Discipline("WALK", ("Walk", "Hike"), None, 5_500, 40_000, 1.35, 12.0),
)


@dataclass(frozen=True, slots=True)
class AthleteProfile:
    """An athlete: favourite sport, sessions per week and distance relative to others."""

    firstname: str
    lastname: str
    favourite: Discipline
    sessions_per_week: float
    strength: float

    @property
    def name(self) -> str:
        return f"{self.firstname} {self.lastname}"


@dataclass(frozen=True, slots=True)
class TrainingSession:
    """One activity; the fields of Strava's upload."""

    name: str
    sport_type: str
    distance: float
    moving_time: int
    elapsed_time: int
    total_elevation_gain: float
    trainer: bool


def random_profile(rng: random.Random, number: int) -> AthleteProfile:
    """The profile of athlete `number`; repeated names get a suffix."""
    index = number % (len(FIRST_NAMES) * len(LAST_NAMES))
    generation = number // (len(FIRST_NAMES) * len(LAST_NAMES))
    # 7 is coprime to both lengths, so every pair of names occurs once before one repeats.
    lastname = LAST_NAMES[(7 * index + index // len(FIRST_NAMES)) % len(LAST_NAMES)]
    return AthleteProfile(
        firstname=FIRST_NAMES[index % len(FIRST_NAMES)],
        lastname=f"{lastname} {generation + 1}" if generation else lastname,
        favourite=rng.choices(DISCIPLINES, weights=(45, 35, 8, 12))[0],
        sessions_per_week=rng.uniform(2, 7),
        strength=rng.lognormvariate(0, 0.25),
    )


def random_session(rng: random.Random, profile: AthleteProfile, hour: int) -> TrainingSession:
    """A session that starts at this hour of the day."""
    discipline = profile.favourite if rng.random() < 0.8 else rng.choice(DISCIPLINES)
    distance = min(
        discipline.max_distance, discipline.distance * profile.strength * rng.lognormvariate(0, 0.4)
    )
    is_indoor = discipline.indoor is not None and rng.random() < 0.08
    main, *others = discipline.sport_types
    sport_type = rng.choice(others) if others and rng.random() < 0.25 else main
    # Longer sessions are slightly slower.
    speed = discipline.speed * rng.uniform(0.85, 1.15) * (discipline.distance / distance) ** 0.06
    moving_time = max(60, round(distance / speed))
    climb = 0.0 if is_indoor else discipline.climb * distance / 1000 * rng.lognormvariate(0, 0.5)
    return TrainingSession(
        name=f"{part_of_day(hour)} {sport_type if discipline.family != 'WALK' else 'Walk'}",
        sport_type=discipline.indoor if is_indoor and discipline.indoor else sport_type,
        distance=round(distance, 1),
        moving_time=moving_time,
        elapsed_time=round(moving_time * rng.uniform(1.0, 1.25)),
        total_elevation_gain=round(climb, 1),
        trainer=is_indoor,
    )


def random_rest_seconds(rng: random.Random, profile: AthleteProfile) -> float:
    """Seconds of rest before the next session."""
    return (
        rng.uniform(4, 10) * 3600
        + rng.expovariate(1.0) * WEEK_SECONDS / profile.sessions_per_week * 0.7
    )


def seconds_until_daylight(rng: random.Random, hour: int) -> float:
    """Seconds to wait until morning; 0 by day and for the few who train at night."""
    is_night = hour < FIRST_HOUR or hour >= LAST_HOUR
    if not is_night or rng.random() < 0.05:
        return 0.0
    return ((FIRST_HOUR - hour) % 24 + rng.uniform(0, 4)) * 3600


def part_of_day(hour: int) -> str:
    return next(
        name
        for end, name in (
            (5, "Night"),
            (11, "Morning"),
            (14, "Lunch"),
            (18, "Afternoon"),
            (24, "Evening"),
        )
        if hour < end
    )
