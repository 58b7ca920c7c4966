"""A worker with a made-up Strava beside it, on an engine that dies at a chosen write."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import msgspec

from tally.collect.model.records import AthleteTokens, Model, StravaTokens, WebhookEvent, Workout
from tally.collect.repository.audit import COMMIT_COLLECT_AUDIT
from tally.collect.service.linking import LinkingService
from tally.collect.service.metrics import InboxMetrics
from tally.collect.service.webhook import WebhookDelivery, WebhookService
from tally.collect.service.worker import InboxWorker
from tally.kit.clock import ManualClock
from tally.kit.encryption import Encryptor
from tally.kit.metrics import Metrics
from tally.settings import Secret
from tally.store.api import Engine
from tests.collect import people
from tests.collect.backstage import SECRET, Backstage, backstage

SEALER = Encryptor(SECRET, "collect")
WRITES = frozenset({"put", "update", "delete", "batch_write", "transact"})


class Died(BaseException):
    """The process is gone: no handler of errors runs, nothing is given back."""


class Mortal:
    """An engine that lets so many writes through, and dies before or after the next one."""

    def __init__(self, engine: Engine, writes: int, *, after: bool) -> None:
        self._engine = engine
        self._left = writes
        self._after = after
        self._is_dead = False

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._engine, name)
        if not callable(operation):
            return operation

        async def call(*args: Any) -> Any:
            if args and getattr(args[0], "table", None) is COMMIT_COLLECT_AUDIT:
                return await operation(*args)  # written beside the work, at no particular moment
            if self._is_dead:
                raise Died
            if name not in WRITES or self._left > 0:
                self._left -= name in WRITES
                return await operation(*args)
            self._is_dead = True
            if self._after:
                await operation(*args)
            raise Died

        return call


@dataclass
class MadeUpStrava:
    """Activities by id, and tokens that always work."""

    activities: dict[int, Workout] = field(default_factory=dict)

    def authorize_url(self, redirect_uri: str, state: str) -> str:
        return f"{redirect_uri}?{state}"

    def is_paused(self) -> bool:
        return False

    async def exchange(self, code: str) -> AthleteTokens:
        return AthleteTokens(int(code), await self.refresh(code))

    async def refresh(self, refresh_token: str) -> StravaTokens:
        return StravaTokens("access", refresh_token + "'", 4_000_000_000)

    async def deauthorize(self, access_token: str) -> None:
        del access_token

    async def activity(
        self, access_token: str, activity_id: int, athlete_id: int
    ) -> Workout | None:
        assert access_token == "access"
        assert athlete_id
        return self.activities.get(activity_id)


@dataclass(frozen=True, slots=True)
class Workshop:
    stage: Backstage
    webhook: WebhookService
    worker: InboxWorker
    linking: LinkingService


@asynccontextmanager
async def workshop(
    engine: Engine,
    clock: ManualClock,
    strava: MadeUpStrava,
    *,
    parts: int = 8,
    model: Model | None = None,
) -> AsyncIterator[Workshop]:
    """A process, as far as events are concerned."""
    async with backstage(engine, clock, parts, model) as stage:
        linking = LinkingService(stage.main, stage.sessions, strava, SEALER, stage.audit, clock)
        worker = InboxWorker(
            stage.main,
            stage.idempotency,
            linking,
            strava,
            stage.engine,
            stage.audit,
            clock,
            InboxMetrics(Metrics()),
        )
        yield Workshop(
            stage, WebhookService(stage.main, clock, Secret("x" * 32), 0), worker, linking
        )


async def member(shop: Workshop) -> tuple[str, int]:
    """Somebody with a profile and a link whose tokens are about to expire."""
    name = people.user_id()
    assert await shop.stage.main.create_profile(people.profile(name))
    linked = people.connection(name)
    sealed = SEALER.encrypt(
        msgspec.json.encode(["old", "refresh", 0]).decode(), f"{name} {linked.athlete_id}"
    )
    assert await shop.stage.main.link(replace(linked, encrypted_tokens=sealed, expires_at=0), None)
    return name, linked.athlete_id


def told(athlete_id: int, activity_id: int, aspect: str, time: int) -> WebhookDelivery:
    return WebhookDelivery("activity", activity_id, aspect, athlete_id, 1, time, {})


def activity(activity_id: int, metres: Decimal | int, sport_type: str = "Ride") -> Workout:
    return people.workout("", activity_id, distance=metres, sport_type=sport_type, event_time=0)


async def waiting_of(shop: Workshop, athlete_id: int) -> list[WebhookEvent]:
    shards = [await shop.stage.main.pending_events(shard) for shard in range(8)]
    return [event for shard in shards for event in shard if event.owner_id == athlete_id]
