"""The services of collect on an engine, without HTTP."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tally.collect.model.records import Award, Milestone, Model
from tally.collect.repository.audit import AuditRepository
from tally.collect.repository.idempotency import IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.milestones import MilestoneService
from tally.collect.service.models import ModelCatalog
from tally.kit.clock import Clock
from tally.kit.ids import SortableIds
from tally.kit.ttl_cache import TTLCache
from tally.settings import Secret
from tally.store.api import Engine
from tally.store.store import Store
from tests.collect import factories

SECRET = Secret("a-secret-of-the-tests-0123456789abcdef")


@dataclass
class RecordingPublisher:
    """A publisher that records what the engine publishes."""

    published: list[tuple[Milestone, tuple[Award, ...]]] = field(default_factory=list)

    def publish(self, milestone: Milestone, awards: Sequence[Award]) -> None:
        self.published.append((milestone, tuple(awards)))


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
    publisher: RecordingPublisher

    async def create_linked_user(self) -> tuple[str, int]:
        """Create a user with a Strava connection; return the user id and the athlete id."""
        user_id = factories.new_user_id()
        assert await self.repository.create_profile(factories.profile(user_id))
        connection = factories.connection(user_id)
        assert await self.repository.link(connection, None)
        return user_id, connection.athlete_id


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
    publisher = RecordingPublisher()
    async with AuditTrail(audit_log, clock, SECRET) as audit:
        progress = ProgressEngine(repository, models, clock, audit, publisher)
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
            publisher,
        )
