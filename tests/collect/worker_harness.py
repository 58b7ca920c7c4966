"""An inbox worker with a fake Strava, on an engine that crashes at a chosen write."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import msgspec

from tally.collect.model.records import (
    AthleteTokens,
    Model,
    StravaTokens,
    TokensRevoked,
    WebhookEvent,
)
from tally.collect.model.workouts import Workout
from tally.collect.repository.audit import COMMIT_COLLECT_AUDIT
from tally.collect.service.event_application import EventApplication
from tally.collect.service.event_budget import EventBudget
from tally.collect.service.event_retries import EventRetries
from tally.collect.service.linking import LinkingService
from tally.collect.service.metrics import InboxMetrics, WebhookMetrics
from tally.collect.service.sync import DeliveryFailures, StravaSyncService
from tally.collect.service.webhook import (
    KnownSubscription,
    WebhookDelivery,
    WebhookSecrets,
    WebhookService,
)
from tally.collect.service.worker import InboxWorker
from tally.kit.clock import ManualClock
from tally.kit.encryption import Encryptor
from tally.kit.metrics import Metrics
from tally.settings import Secret
from tally.store.api import Engine
from tests.collect import factories
from tests.collect.service_harness import SECRET, ServiceHarness, open_services

ENCRYPTOR = Encryptor(SECRET, "collect")
PATH_SECRET = "p" * 32
WRITES = frozenset({"put", "update", "delete", "batch_write", "transact"})


class Crash(BaseException):
    """Simulates the end of the process: no error handler runs and no claim is released."""


class CrashingEngine:
    """An engine that passes a number of writes, then crashes before or after the next one."""

    def __init__(self, engine: Engine, writes: int, *, after: bool) -> None:
        self._engine = engine
        self._remaining = writes
        self._after = after
        self._is_crashed = False

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._engine, name)
        if not callable(operation):
            return operation

        async def call(*args: Any) -> Any:
            if args and getattr(args[0], "table", None) is COMMIT_COLLECT_AUDIT:
                return await operation(*args)  # written in the background, at an arbitrary time
            if self._is_crashed:
                raise Crash
            if name not in WRITES or self._remaining > 0:
                self._remaining -= name in WRITES
                return await operation(*args)
            self._is_crashed = True
            if self._after:
                await operation(*args)
            raise Crash

        return call


@dataclass
class FakeStrava:
    """A Strava client with activities by id, and tokens that are valid unless `is_revoked`."""

    activities: dict[int, Workout] = field(default_factory=dict)
    is_revoked: bool = False

    def authorize_url(self, redirect_uri: str, state: str) -> str:
        return f"{redirect_uri}?{state}"

    def is_paused(self) -> bool:
        return False

    async def exchange(self, code: str) -> AthleteTokens:
        return AthleteTokens(int(code), await self.refresh(code))

    async def refresh(self, refresh_token: str) -> StravaTokens:
        if self.is_revoked:
            raise TokensRevoked
        return StravaTokens("access", refresh_token + "'", 4_000_000_000)

    def pause_seconds(self) -> float:
        return 0.0

    async def revoke(self, refresh_token: str) -> None:
        del refresh_token

    async def activity(
        self, access_token: str, activity_id: int, athlete_id: int
    ) -> Workout | None:
        assert access_token == "access"
        assert athlete_id
        return self.activities.get(activity_id)


@dataclass(frozen=True, slots=True)
class WorkerHarness:
    """The services of a process that applies events."""

    services: ServiceHarness
    webhook: WebhookService
    worker: InboxWorker
    linking: LinkingService


@asynccontextmanager
async def open_worker(
    engine: Engine,
    clock: ManualClock,
    strava: FakeStrava,
    *,
    parts: int = 8,
    model: Model | None = None,
) -> AsyncIterator[WorkerHarness]:
    """Open a worker with its services."""
    async with open_services(engine, clock, parts, model) as services:
        metrics = InboxMetrics(Metrics())
        retries = EventRetries(services.repository, clock, metrics)
        linking = LinkingService(
            services.repository,
            services.sessions,
            strava,
            ENCRYPTOR,
            services.audit,
            clock,
            retries,
        )
        worker = InboxWorker(
            services.repository,
            services.idempotency,
            EventApplication(
                services.repository,
                linking,
                StravaSyncService(services.repository, clock, DeliveryFailures()),
                strava,
                services.audit,
                clock,
                metrics,
            ),
            strava,
            services.engine,
            EventBudget(services.idempotency, clock, per_athlete=0, total=0),
            retries,
            clock,
            metrics,
        )
        yield WorkerHarness(
            services,
            WebhookService(
                services.repository,
                clock,
                WebhookSecrets(Secret(PATH_SECRET), Secret("x" * 32)),
                KnownSubscription(services.repository, clock, configured=1),
                WebhookMetrics(Metrics()),
            ),
            worker,
            linking,
        )


async def create_linked_user(worker_harness: WorkerHarness) -> tuple[str, int]:
    """Create a user whose Strava tokens are expired; return the user id and the athlete id."""
    user_id = factories.new_user_id()
    assert await worker_harness.services.repository.create_profile(factories.profile(user_id))
    connection = factories.connection(user_id)
    encrypted = ENCRYPTOR.encrypt(
        msgspec.json.encode(["old", "refresh", 0]).decode(), f"{user_id} {connection.athlete_id}"
    )
    assert await worker_harness.services.repository.link(
        replace(connection, encrypted_tokens=encrypted, expires_at=0), None
    )
    return user_id, connection.athlete_id


def delivery(athlete_id: int, activity_id: int, aspect: str, time: int) -> WebhookDelivery:
    return WebhookDelivery("activity", activity_id, aspect, athlete_id, 1, time, {})


def activity(activity_id: int, metres: Decimal | int, sport_type: str = "Ride") -> Workout:
    return factories.workout("", activity_id, distance=metres, sport_type=sport_type, event_time=0)


async def pending_events_of(worker_harness: WorkerHarness, athlete_id: int) -> list[WebhookEvent]:
    return await worker_harness.services.repository.athlete_events(athlete_id)
