"""The dataset of the collect benchmark: linked users with milestones, sessions and workouts.

The store is filled through the repositories, without sign-ins. The Strava side is a snapshot for
`tally sim strava --state`.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
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
from tally.collect.model.sync import StravaSync
from tally.collect.model.workouts import Workout, strava_workout_id
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.repository.table import COMMIT_COLLECT
from tally.collect.repository.workouts import workout_put
from tally.collect.service.linking import encrypt_tokens
from tally.collect.service.sign_in import hash_secret
from tally.collect.service.sync_worker import DAY_SECONDS
from tally.kit.clock import EPOCH, SystemClock, rfc3339
from tally.kit.encryption import Encryptor
from tally.kit.keyfile import read_or_create
from tally.sim.strava.authorizations import ACCESS_SECONDS, StravaGrant
from tally.sim.strava.model import StravaActivity, StravaAthlete
from tally.sim.strava.snapshot import StravaSnapshot
from tally.store.api import BatchWrite, Engine
from tally.store.store import Store

METRES = 10_000
# Every fourth workout mints a part.
TARGET = 12 * 4 * METRES
PARTS = 12
_FIRST_ATHLETE = 500_001
_FIRST_ACTIVITY = 20_000_000_001
_FIRST_HISTORY = 30_000_000_001
_SCOPE = "activity:read_all,read"


@dataclass(frozen=True, slots=True)
class BenchUser:
    """A user with a Strava connection, a milestone and a session."""

    number: int
    session_id: str
    milestone_id: str

    @property
    def user_id(self) -> str:
        return f"bench-{self.number}"

    @property
    def athlete_id(self) -> int:
        return _FIRST_ATHLETE + self.number

    @property
    def link_id(self) -> str:
        return f"link-{self.number}"


class CollectDataset:
    """Users with existing workouts, and the activities that Strava will report.

    The first `importers` have just linked, and have a history at Strava, of `history` activities
    each, which their milestones include. All others are synced, and the events are theirs.
    """

    def __init__(
        self, workout_counts: list[int], activities: int, importers: int = 0, history: int = 0
    ) -> None:
        self.now = SystemClock().seconds()
        self.workout_counts = workout_counts
        self.users = [
            BenchUser(number, secrets.token_urlsafe(32), f"{number:026}")
            for number in range(len(workout_counts))
        ]
        self.activities = activities
        self.importers, self.senders = self.users[:importers], self.users[importers:]
        self.history = history
        self._tokens = [(secrets.token_hex(20), secrets.token_hex(20)) for _ in workout_counts]
        self._delivered = 0

    async def write(self, engine: Engine, directory: Path) -> None:
        """Write all users to the store."""
        store = Store(engine)
        repository, sessions = CollectRepository(store), BrowserSessionRepository(store)
        encryptor = Encryptor(read_or_create(directory / "collect.key"), "collect")
        for user, count in zip(self.users, self.workout_counts, strict=True):
            now = rfc3339(SystemClock().now())
            await repository.create_profile(Profile(user.user_id, None, "free", now))
            await repository.link(self._connection(user, encryptor, now), None)
            start = rfc3339(self._history_start()) if user in self.importers else now
            await repository.create_milestone(milestone(user, now, period_start=start), 0)
            await sessions.create(
                BrowserSession(hash_secret(user.session_id), user.user_id, now, self.now + 86_400)
            )
            await self._write_workouts(engine, user, count)
        await self._mark_synced(repository)

    async def _mark_synced(self, repository: CollectRepository) -> None:
        """Mark all but the importers as synced, and record a heartbeat.

        Without it, the server would find a gap in the deliveries and sync all of them again.
        """
        now = SystemClock().seconds()
        for user in self.senders:
            sync = StravaSync(
                user_id=user.user_id,
                athlete_id=user.athlete_id,
                link_id=user.link_id,
                due_at=now + DAY_SECONDS,
                is_daily=True,
                synced_at=now,
                synced_from=now,
            )
            await repository.put_sync(sync, None)
        await repository.put_heartbeat(now, 0)

    async def _write_workouts(self, engine: Engine, user: BenchUser, count: int) -> None:
        items = [workout_item(user, number) for number in range(count)]
        for start in range(0, count, 25):
            await engine.batch_write(BatchWrite(COMMIT_COLLECT, tuple(items[start : start + 25])))

    def strava_snapshot(self) -> bytes:
        """Encode the state of the Strava simulator."""
        athletes = [
            StravaAthlete(user.athlete_id, "Bench", str(user.number)) for user in self.users
        ]
        scope, expires_at = frozenset(_SCOPE.split(",")), self.now + ACCESS_SECONDS
        grants = [
            StravaGrant(athlete.id, scope, *tokens, expires_at)
            for athlete, tokens in zip(athletes, self._tokens, strict=True)
        ]
        activities = [
            StravaActivity(
                id=_FIRST_ACTIVITY + number,
                athlete_id=self._sender(number).athlete_id,
                name="Ride",
                sport_type="Ride",
                start=self.now + 60,
                distance=float(METRES),
                moving_time=1800,
                elapsed_time=1900,
            )
            for number in range(self.activities)
        ]
        activities += [activity for user in self.importers for activity in self._history_of(user)]
        return msgspec.json.encode(StravaSnapshot(athletes, activities, grants, None))

    def _history_start(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now, hours=-self.history - 1)

    def _history_of(self, user: BenchUser) -> list[StravaActivity]:
        first = round(self._history_start().timestamp())
        return [
            StravaActivity(
                id=_FIRST_HISTORY + user.number * self.history + number,
                athlete_id=user.athlete_id,
                name="Ride",
                sport_type="Ride",
                start=first + 3600 * number,
                distance=float(METRES),
                moving_time=1800,
                elapsed_time=1900,
            )
            for number in range(self.history)
        ]

    def events(self, count: int) -> list[bytes]:
        """Encode the webhook events of the next activities, alternating between their senders."""
        first, self._delivered = self._delivered, self._delivered + count
        if self._delivered > self.activities:
            raise AssertionError("more events than activities")
        return [
            msgspec.json.encode(self._event(number)) for number in range(first, self._delivered)
        ]

    def _sender(self, number: int) -> BenchUser:
        return self.senders[number % len(self.senders)]

    def _event(self, number: int) -> dict[str, Any]:
        return {
            "object_type": "activity",
            "object_id": _FIRST_ACTIVITY + number,
            "aspect_type": "create",
            "owner_id": self._sender(number).athlete_id,
            "subscription_id": 1,
            "event_time": self.now,
            "updates": {},
        }

    def _connection(self, user: BenchUser, encryptor: Encryptor, now: str) -> StravaConnection:
        access, refresh = self._tokens[user.number]
        tokens = StravaTokens(access, refresh, self.now + ACCESS_SECONDS)
        encrypted = encrypt_tokens(encryptor, user.user_id, user.athlete_id, tokens)
        return StravaConnection(
            user.user_id,
            user.athlete_id,
            encrypted,
            tokens.expires_at,
            _SCOPE,
            now,
            link_id=user.link_id,
        )


def milestone(user: BenchUser, now: str, **changes: Any) -> Milestone:
    """Build a milestone that ignores existing workouts."""
    defaults: dict[str, Any] = {
        "milestone_id": user.milestone_id,
        "user_id": user.user_id,
        "model_id": "fox",
        "sport": Sport.RIDE,
        "metric": Metric.DISTANCE_METERS,
        "total_target": TARGET,
        "parts_total": PARTS,
        "period_start": now,
        "period_end": None,
        "created_at": now,
        "updated_at": now,
    }
    return Milestone(**(defaults | changes))


def workout_item(user: BenchUser, number: int) -> dict[str, Any]:
    """Build the table item of an existing workout."""
    started = SystemClock().now() - timedelta(days=2 + number)
    workout = Workout(
        user_id=user.user_id,
        workout_id=strava_workout_id(10_000_000_000 + number),
        name="An earlier ride",
        sport_type="Ride",
        started_at=rfc3339(started),
        distance=METRES,
        elevation=120,
        moving_seconds=1800,
        elapsed_seconds=1900,
        event_time=1_700_000_000,
    )
    return workout_put(workout, None).item
