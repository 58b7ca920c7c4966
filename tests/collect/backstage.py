"""The services on an engine, without HTTP: what the tests of single uses are written in."""

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
from tests.collect import people

SECRET = Secret("a-secret-of-the-tests-0123456789abcdef")


@dataclass
class RecordingPublisher:
    """A publisher that records what the engine publishes."""

    published: list[tuple[Milestone, tuple[Award, ...]]] = field(default_factory=list)

    def publish(self, milestone: Milestone, awards: Sequence[Award]) -> None:
        self.published.append((milestone, tuple(awards)))


@dataclass(frozen=True, slots=True)
class Backstage:
    """Repositories and services that share a store."""

    store: Store
    clock: Clock
    main: CollectRepository
    sessions: BrowserSessionRepository
    audit_log: AuditRepository
    idempotency: IdempotencyRepository
    audit: AuditTrail
    engine: ProgressEngine
    milestones: MilestoneService
    model: Model
    publisher: RecordingPublisher

    async def person(self) -> tuple[str, int]:
        """Somebody with a profile and a link: their id, and their athlete's."""
        name = people.user_id()
        assert await self.main.create_profile(people.profile(name))
        linked = people.connection(name)
        assert await self.main.link(linked, None)
        return name, linked.athlete_id


@asynccontextmanager
async def backstage(
    engine: Engine, clock: Clock, parts: int = 12, model: Model | None = None
) -> AsyncIterator[Backstage]:
    """With a new model of so many parts, or one that is in the table already."""
    store = Store(engine, clock)
    main, audit_log = CollectRepository(store), AuditRepository(store)
    if model is None:
        model = people.model(parts)
        await main.put_model(model)
    shelf = ModelCatalog(main, {model.meta.model_id: model}, TTLCache(clock, 300, 10))
    publisher = RecordingPublisher()
    async with AuditTrail(audit_log, clock, SECRET) as audit:
        progress = ProgressEngine(main, shelf, clock, audit, publisher)
        milestones = MilestoneService(main, shelf, progress, audit, clock, SortableIds(clock))
        yield Backstage(
            store,
            clock,
            main,
            BrowserSessionRepository(store),
            audit_log,
            IdempotencyRepository(store),
            audit,
            progress,
            milestones,
            model,
            publisher,
        )
