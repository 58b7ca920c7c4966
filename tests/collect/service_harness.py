"""The services of collect on an engine, without HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tally.collect.model.records import Award, Model
from tally.collect.model.workouts import Workout
from tally.collect.repository.audit import AuditRepository
from tally.collect.repository.copies import CopiesOutcome, CopiesWrite
from tally.collect.repository.idempotency import IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.milestone_items import MilestoneLog, milestone_change
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.repository.table import COMMIT_COLLECT, user_pk
from tally.collect.repository.workouts import workout_put
from tally.collect.service.audit import AuditTrail
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.metrics import dropped_audit_events
from tally.collect.service.milestones import MilestoneService
from tally.collect.service.models import ModelCatalog
from tally.collect.service.workout_reader import WorkoutReader
from tally.kit.clock import Clock
from tally.kit.ids import SortableIds
from tally.kit.metrics import Metrics
from tally.kit.ttl_cache import TTLCache
from tally.settings import Secret
from tally.store.api import MAX_BATCH_WRITE, BatchWrite, Engine
from tally.store.changes import START
from tally.store.store import Store
from tests.collect import factories

SECRET = Secret("a-secret-of-the-tests-0123456789abcdef")


@dataclass(frozen=True, slots=True)
class ServiceHarness:
    """Repositories and services that share a store; a flat bag of what tests use."""

    store: Store
    clock: Clock
    repository: CollectRepository
    sessions: BrowserSessionRepository
    audit_log: AuditRepository
    idempotency: IdempotencyRepository
    audit: AuditTrail
    engine: ProgressEngine
    milestones: MilestoneService
    model: Model

    async def minted(self, user_id: str) -> list[int]:
        """The parts that subscribers of the user's milestones receive, in order."""
        page = await MilestoneLog(self.store).read(user_pk(user_id), START, 10_000)
        found = map(milestone_change, page.changes)
        return [award.part.index for award in found if isinstance(award, Award)]

    async def create_linked_user(self) -> tuple[str, int]:
        """Create a user with a Strava connection; return the user id and the athlete id."""
        user_id = factories.new_user_id()
        assert await self.repository.create_profile(factories.profile(user_id))
        connection = factories.connection(user_id)
        assert await self.repository.link(connection, None)
        return user_id, connection.athlete_id


async def put_workout(
    repository: CollectRepository,
    workout: Workout,
    athlete_id: int | None,
    expected_version: int | None,
) -> bool:
    """Write one version of a workout as it is; False if it is outdated or not the user's."""
    connection = None if athlete_id is None else await repository.connection(workout.user_id)
    imports_version = await repository.imports_version(workout.user_id)
    if (connection is None) != (athlete_id is None) or imports_version is None:
        return False
    if connection is not None and connection.athlete_id != athlete_id:
        return False
    write = CopiesWrite(
        [(workout, expected_version)], imports_version, connection, is_decision=False
    )
    return await repository.write_copies(write) is CopiesOutcome.WRITTEN


async def write_workouts(engine: Engine, workouts: Sequence[Workout]) -> None:
    """Write many workouts in batches, without conditions."""
    items = [workout_put(workout, None).item for workout in workouts]
    chunks = [
        BatchWrite(COMMIT_COLLECT, tuple(items[start : start + MAX_BATCH_WRITE]))
        for start in range(0, len(items), MAX_BATCH_WRITE)
    ]
    await asyncio.gather(*(engine.batch_write(chunk) for chunk in chunks))


@asynccontextmanager
async def open_services(
    engine: Engine, clock: Clock, parts: int = 12, model: Model | None = None
) -> AsyncIterator[ServiceHarness]:
    """Open the services with a new model, or with one that is already in the table."""
    store = Store(engine, clock)
    repository, audit_log = CollectRepository(store), AuditRepository(store)
    if model is None:
        model = factories.model(parts)
        await repository.put_model(model)
    models = ModelCatalog(repository, {model.meta.model_id: model}, TTLCache(clock, 300, 10))
    async with AuditTrail(audit_log, clock, SECRET, dropped_audit_events(Metrics())) as audit:
        workouts = WorkoutReader(repository, TTLCache(clock, 3600, 1000))
        progress = ProgressEngine(repository, workouts, models, clock, audit)
        milestones = MilestoneService(
            repository, models, progress, audit, clock, SortableIds(clock)
        )
        yield ServiceHarness(
            store,
            clock,
            repository,
            BrowserSessionRepository(store),
            audit_log,
            IdempotencyRepository(store),
            audit,
            progress,
            milestones,
            model,
        )
