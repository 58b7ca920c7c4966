"""What a made-up athlete is like, and what they do on a given day: drawn at random, and plausible.

Distances are spread around what is usual for the sport and the person, never beyond what people do;
speed, pauses and climbing follow from the distance. The same `random.Random` gives the same people
and the same days.
"""

import random
from dataclasses import dataclass
from typing import Final

DAY: Final = 86_400
WEEK: Final = 7 * DAY
# When most people begin to be on their feet, and when they no longer set out.
FIRST_HOUR, LAST_HOUR = 6, 21

FIRST_NAMES: Final = (
    "Ana", "Bo", "Chidi", "Dana", "Eve", "Femi", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Liam", "Mei", "Noor", "Otto",
    "Priya", "Quinn", "Rosa", "Sami", "Tove", "Uma", "Viktor", "Wanda", "Ximena", "Yuki", "Zoe",
)  # fmt: skip
LAST_NAMES: Final = (
    "Abara", "Berg", "Costa", "Dimitrov", "Eriksen", "Fontaine", "Garcia", "Haddad", "Ito", "Jansen", "Kowalski", "Lindqvist",
    "Moreau", "Ng", "Okafor", "Petrov", "Quist", "Rossi", "Silva", "Tanaka", "Ueda", "Vargas", "Weiss", "Young", "Zhang",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Discipline:
    """A sport as people do it: metres, metres a second, and metres up for each kilometre."""

    family: str
    # The first is what most of it is called.
    sport_types: tuple[str, ...]
    indoor: str | None
    distance: float
    longest: float
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
    """Who somebody is: the sport they love, how often they go, how far beside others."""

    firstname: str
    lastname: str
    favourite: Discipline
    times_a_week: float
    strength: float

    @property
    def name(self) -> str:
        return f"{self.firstname} {self.lastname}"


@dataclass(frozen=True, slots=True)
class TrainingSession:
    """One time out."""

    name: str
    sport_type: str
    distance: float
    moving_time: int
    elapsed_time: int
    total_elevation_gain: float
    trainer: bool


def random_profile(rng: random.Random, number: int) -> AthleteProfile:
    """The `number`-th of a fleet; names repeat late, and then have a number."""
    index = number % (len(FIRST_NAMES) * len(LAST_NAMES))
    generation = number // (len(FIRST_NAMES) * len(LAST_NAMES))
    # Seven is prime to both lengths, so that every first name meets every last one before any two
    # meet again.
    lastname = LAST_NAMES[(7 * index + index // len(FIRST_NAMES)) % len(LAST_NAMES)]
    return AthleteProfile(
        firstname=FIRST_NAMES[index % len(FIRST_NAMES)],
        lastname=f"{lastname} {generation + 1}" if generation else lastname,
        favourite=rng.choices(DISCIPLINES, weights=(45, 35, 8, 12))[0],
        times_a_week=rng.uniform(2, 7),
        strength=rng.lognormvariate(0, 0.25),
    )


def random_workout(rng: random.Random, character: AthleteProfile, hour: int) -> TrainingSession:
    """What comes of going out at this hour of the day."""
    discipline = character.favourite if rng.random() < 0.8 else rng.choice(DISCIPLINES)
    distance = min(
        discipline.longest, discipline.distance * character.strength * rng.lognormvariate(0, 0.4)
    )
    is_indoor = discipline.indoor is not None and rng.random() < 0.08
    main, *others = discipline.sport_types
    sport_type = rng.choice(others) if others and rng.random() < 0.25 else main
    # Longer is slower, a little.
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


def random_rest_seconds(rng: random.Random, character: AthleteProfile) -> float:
    """Seconds of rest before the next time out: at least some hours, and as many days as the person's week has room for."""
    return rng.uniform(4, 10) * 3600 + rng.expovariate(1.0) * WEEK / character.times_a_week * 0.7


def seconds_until_daylight(rng: random.Random, hour: int) -> float:
    """Seconds to wait so as not to set out in the middle of the night; only few do."""
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
