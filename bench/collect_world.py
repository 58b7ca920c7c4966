"""A club for the benchmark: people with links, goals, sessions and a past, and a Strava that knows them and what they will do.

The store is filled through collect's own repositories, so that nobody has to sign in a few hundred
times; Strava's side is a file that `tally sim strava --state` starts from.
"""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from tally.collect.model.records import (
    BrowserSession,
    Metric,
    Milestone,
    Profile,
    Sport,
    StravaConnection,
    StravaTokens,
)
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.repository.table import COMMIT_COLLECT, item_key, user_pk, workout_sk
from tally.collect.service.linking import encrypt_tokens
from tally.collect.service.sign_in import hash_secret
from tally.kit.clock import SystemClock, rfc3339
from tally.kit.encryption import Encryptor
from tally.kit.keyfile import read_or_create
from tally.sim.strava.authorizations import ACCESS_SECONDS, StravaGrant
from tally.sim.strava.model import StravaActivity, StravaAthlete
from tally.sim.strava.snapshot import StravaSnapshot
from tally.store.api import BatchWrite, Engine
from tally.store.store import Store

METRES = 10_000
# A part for every fourth workout.
TARGET = 12 * 4 * METRES
PARTS = 12
_FIRST_ATHLETE = 500_001
_FIRST_ACTIVITY = 20_000_000_001
_SCOPE = "activity:read_all,read"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a link, a goal and a session."""

    number: int
    session_id: str
    milestone_id: str

    @property
    def user_id(self) -> str:
        return f"bench-{self.number}"

    @property
    def athlete_id(self) -> int:
        return _FIRST_ATHLETE + self.number


class World:
    """So many people, each with so many workouts behind them, and so many activities that Strava will tell of, in turn."""

    def __init__(self, pasts: list[int], activities: int) -> None:
        self.now = SystemClock().seconds()
        self.pasts = pasts
        self.people = [
            Person(number, secrets.token_urlsafe(32), f"{number:026}")
            for number in range(len(pasts))
        ]
        self.activities = activities
        self._tokens = [(secrets.token_hex(20), secrets.token_hex(20)) for _ in pasts]
        self._told = 0

    async def settle(self, engine: Engine, directory: Path) -> None:
        """Put them into the store."""
        store = Store(engine)
        main, sessions = CollectRepository(store), BrowserSessionRepository(store)
        encryptor = Encryptor(read_or_create(directory / "collect.key"), "collect")
        for person, past in zip(self.people, self.pasts, strict=True):
            parse_time = rfc3339(SystemClock().now())
            await main.create_profile(Profile(person.user_id, None, "free", parse_time))
            await main.link(self._connection(person, encryptor, parse_time), None)
            await main.create_milestone(milestone(person, parse_time))
            await sessions.create(
                BrowserSession(
                    hash_secret(person.session_id), person.user_id, parse_time, self.now + 86_400
                )
            )
            await self._live(engine, person, past)

    async def _live(self, engine: Engine, person: Person, past: int) -> None:
        items = [past_workout(person, number) for number in range(past)]
        for start in range(0, past, 25):
            await engine.batch_write(BatchWrite(COMMIT_COLLECT, tuple(items[start : start + 25])))

    def strava(self) -> bytes:
        """What Strava knows."""
        athletes = [
            StravaAthlete(person.athlete_id, "Bench", str(person.number)) for person in self.people
        ]
        scope, until = frozenset(_SCOPE.split(",")), self.now + ACCESS_SECONDS
        grants = [
            StravaGrant(athlete.id, scope, *tokens, until)
            for athlete, tokens in zip(athletes, self._tokens, strict=True)
        ]
        done = [
            StravaActivity(
                id=_FIRST_ACTIVITY + number,
                athlete_id=athletes[number % len(athletes)].id,
                name="Ride",
                sport_type="Ride",
                start=self.now + 60,
                distance=float(METRES),
                moving_time=1800,
                elapsed_time=1900,
            )
            for number in range(self.activities)
        ]
        return msgspec.json.encode(StravaSnapshot(athletes, done, grants, None))

    def events(self, count: int) -> list[bytes]:
        """Webhooks of the next activities, each of another person than the one before."""
        first, self._told = self._told, self._told + count
        if self._told > self.activities:
            raise AssertionError("more events than activities")
        return [msgspec.json.encode(self._event(number)) for number in range(first, self._told)]

    def _event(self, number: int) -> dict[str, Any]:
        return {
            "object_type": "activity",
            "object_id": _FIRST_ACTIVITY + number,
            "aspect_type": "create",
            "owner_id": self.people[number % len(self.people)].athlete_id,
            "subscription_id": 1,
            "event_time": self.now,
            "updates": {},
        }

    def _connection(
        self, person: Person, encryptor: Encryptor, parse_time: str
    ) -> StravaConnection:
        access, refresh = self._tokens[person.number]
        tokens = StravaTokens(access, refresh, self.now + ACCESS_SECONDS)
        sealed = encrypt_tokens(encryptor, person.user_id, person.athlete_id, tokens)
        return StravaConnection(
            person.user_id, person.athlete_id, sealed, tokens.expires_at, _SCOPE, parse_time
        )


def milestone(person: Person, parse_time: str, **changes: Any) -> Milestone:
    """A goal that the past does not count for."""
    made: dict[str, Any] = {
        "milestone_id": person.milestone_id,
        "user_id": person.user_id,
        "model_id": "fox",
        "sport": Sport.RIDE,
        "metric": Metric.DISTANCE_METERS,
        "total_target": TARGET,
        "parts_total": PARTS,
        "period_start": parse_time,
        "period_end": None,
        "created_at": parse_time,
        "updated_at": parse_time,
    }
    return Milestone(**(made | changes))


def past_workout(person: Person, number: int) -> dict[str, Any]:
    """One of the workouts that somebody has behind them, as it stands in the table."""
    started = SystemClock().now() - timedelta(days=2 + number)
    return {
        **item_key(user_pk(person.user_id), workout_sk(10_000_000_000 + number)),
        "userId": person.user_id,
        "activityId": 10_000_000_000 + number,
        "name": "A ride of the past",
        "sportType": "Ride",
        "startDateUtc": rfc3339(started),
        "distanceMeters": METRES,
        "totalElevationGain": 120,
        "movingSeconds": 1800,
        "elapsedSeconds": 1900,
        "eventTime": 1_700_000_000,
        "isDeleted": False,
    }
