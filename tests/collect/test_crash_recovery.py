"""Every operation with several writes can be repeated after a crash between any two of them."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from tally.collect.model.records import BrowserSession, OidcIdentity
from tally.collect.model.workouts import strava_workout_id
from tally.collect.service.sign_in import SignInService
from tally.collect.service.webhook import WebhookDelivery
from tally.kit.clock import ManualClock
from tally.kit.metrics import Metrics
from tally.store.api import Engine
from tests.collect import factories
from tests.collect.conftest import TABLES
from tests.collect.service_harness import put_workout
from tests.collect.test_crashes import MAX_WRITES, goal
from tests.collect.test_repository_sessions import session
from tests.collect.worker_harness import (
    ENCRYPTOR,
    PATH_SECRET,
    Crash,
    CrashingEngine,
    FakeStrava,
    WorkerHarness,
    activity,
    create_linked_user,
    delivery,
    open_worker,
    pending_events_of,
)
from tests.store.emulators import open_engine

EVENT_TIME = 1_767_225_600


@pytest.fixture(scope="module")
async def embedded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with open_engine("sqlite", tmp_path_factory.mktemp("crashes"), TABLES) as engine:
        yield engine


class Scenario(ABC):
    """An operation. `act` is interrupted by a crash and then repeated."""

    def __init__(self, strava: FakeStrava, name: str, athlete_id: int) -> None:
        self.strava = strava
        self.name = name
        self.athlete_id = athlete_id

    @abstractmethod
    async def prepare(self, worker_harness: WorkerHarness) -> None:
        """Create the initial state."""

    @abstractmethod
    async def act(self, worker_harness: WorkerHarness) -> None: ...

    @abstractmethod
    async def check(self, worker_harness: WorkerHarness) -> None:
        """Check the final state."""


class Event(Scenario):
    """The worker applies an event of a known activity."""

    aspect = "update"

    async def prepare(self, worker_harness: WorkerHarness) -> None:
        self.number = factories.new_id()
        self.milestone = await goal(worker_harness, self.name)
        self.strava.activities[self.number] = activity(self.number, 3000)
        await worker_harness.webhook.receive(
            PATH_SECRET, delivery(self.athlete_id, self.number, "create", EVENT_TIME)
        )
        await worker_harness.worker.run()
        self.strava.activities[self.number] = activity(self.number, 5000)
        await worker_harness.webhook.receive(PATH_SECRET, self.event())

    def event(self) -> WebhookDelivery:
        return delivery(self.athlete_id, self.number, self.aspect, EVENT_TIME + 60)

    async def act(self, worker_harness: WorkerHarness) -> None:
        await worker_harness.worker.run()

    async def check(self, worker_harness: WorkerHarness) -> None:
        assert await pending_events_of(worker_harness, self.athlete_id) == []
        now = await worker_harness.services.milestones.get(
            self.name, self.milestone.milestone.milestone_id
        )
        assert (now.milestone.progress, now.milestone.version, len(now.awards)) == self.expected()
        await self.check_workout(worker_harness)

    def expected(self) -> tuple[int, int, int]:
        return 5000, 3, 5

    async def check_workout(self, worker_harness: WorkerHarness) -> None:
        found = await worker_harness.services.repository.workout(
            self.name, strava_workout_id(self.number)
        )
        assert found is not None
        assert (found.distance, found.is_deleted) == (5000, False)


class Update(Event):
    """The workout and the progress are updated."""


class Deletion(Event):
    """The workout is marked as deleted, and awards are retained."""

    aspect = "delete"

    def event(self) -> WebhookDelivery:
        self.strava.activities.pop(self.number, None)
        return super().event()

    def expected(self) -> tuple[int, int, int]:
        return 3000, 2, 3

    async def check_workout(self, worker_harness: WorkerHarness) -> None:
        found = await worker_harness.services.repository.workout(
            self.name, strava_workout_id(self.number)
        )
        assert found is not None
        assert found.is_deleted


class EventBatch(Update):
    """A batch of events advances the milestones once, and all of them count."""

    async def prepare(self, worker_harness: WorkerHarness) -> None:
        await super().prepare(worker_harness)
        for _ in range(3):
            number = factories.new_id()
            self.strava.activities[number] = activity(number, 1000)
            await worker_harness.webhook.receive(
                PATH_SECRET, delivery(self.athlete_id, number, "create", EVENT_TIME + 120)
            )

    def expected(self) -> tuple[int, int, int]:
        return 8000, 3, 8


class Deauthorisation(Event):
    """Connection and owner are deleted, and workouts are retained."""

    def event(self) -> WebhookDelivery:
        self.strava.is_revoked = True
        return WebhookDelivery(
            "athlete",
            self.athlete_id,
            "update",
            self.athlete_id,
            1,
            EVENT_TIME + 60,
            {"authorized": "false"},
        )

    def expected(self) -> tuple[int, int, int]:
        return 3000, 2, 3

    async def check_workout(self, worker_harness: WorkerHarness) -> None:
        assert await worker_harness.services.repository.connection(self.name) is None
        assert await worker_harness.services.repository.owner(self.athlete_id) is None
        assert await worker_harness.services.repository.linked_users(self.athlete_id) == set()


class Link(Scenario):
    """Linking a second athlete replaces the first."""

    async def prepare(self, worker_harness: WorkerHarness) -> None:
        assert await worker_harness.services.repository.owner(self.athlete_id) == self.name
        self.second = factories.new_id()
        self.session: BrowserSession = session(self.name)

    async def act(self, worker_harness: WorkerHarness) -> None:
        url = await worker_harness.linking.begin(self.session, "https://here", "/")
        state = url.partition("?")[2]
        await worker_harness.linking.finish(
            self.session,
            state=state,
            code=str(self.second),
            scope="read,activity:read_all",
            error="",
        )

    async def check(self, worker_harness: WorkerHarness) -> None:
        linked = await worker_harness.services.repository.connection(self.name)
        assert linked is not None
        assert linked.athlete_id == self.second
        assert await worker_harness.services.repository.owner(self.second) == self.name
        assert await worker_harness.services.repository.owner(self.athlete_id) is None


class Unlink(Scenario):
    """Connection and owner are deleted."""

    async def prepare(self, worker_harness: WorkerHarness) -> None:
        assert await worker_harness.services.repository.owner(self.athlete_id) == self.name

    async def act(self, worker_harness: WorkerHarness) -> None:
        if await worker_harness.linking.status(self.name) is not None:
            await worker_harness.linking.disconnect(self.name)

    async def check(self, worker_harness: WorkerHarness) -> None:
        assert await worker_harness.services.repository.connection(self.name) is None
        assert await worker_harness.services.repository.owner(self.athlete_id) is None


class FakeIdentityProvider:
    """A provider that identifies every user as the same one."""

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id

    async def authorize_url(self, redirect_uri: str, state: str, nonce: str, challenge: str) -> str:
        assert redirect_uri
        assert nonce
        assert challenge
        return state

    async def identify(
        self, code: str, redirect_uri: str, nonce: str, verifier: str
    ) -> OidcIdentity:
        assert code
        assert redirect_uri
        assert nonce
        assert verifier
        return OidcIdentity(self.user_id, None, "a-refresh-token")


class FirstSignIn(Scenario):
    """The profile and a valid session exist."""

    async def prepare(self, worker_harness: WorkerHarness) -> None:
        self.newcomer = factories.new_user_id()
        self.session_id = ""
        assert await worker_harness.services.repository.profile(self.newcomer) is None

    def sign_in(self, worker_harness: WorkerHarness) -> SignInService:
        services = worker_harness.services
        return SignInService(
            services.sessions,
            services.repository,
            FakeIdentityProvider(self.newcomer),
            ENCRYPTOR,
            services.audit,
            services.clock,
            Metrics(),
        )

    async def act(self, worker_harness: WorkerHarness) -> None:
        service = self.sign_in(worker_harness)
        begun = await service.begin("https://here", "/")
        done = await service.finish(
            state=begun.url,
            code="code",
            browser_secret=begun.browser_secret,
            redirect_uri="https://here",
            former_session_id="former",
            ip=None,
        )
        self.session_id = done.session_id

    async def check(self, worker_harness: WorkerHarness) -> None:
        assert await worker_harness.services.repository.profile(self.newcomer) is not None
        assert (
            await self.sign_in(worker_harness).resolve(self.session_id)
        ).user_id == self.newcomer


class NewMilestone(Scenario):
    """A milestone with existing workouts is advanced by the next run."""

    async def prepare(self, worker_harness: WorkerHarness) -> None:
        made = factories.workout(self.name, distance=5000)
        assert await put_workout(worker_harness.services.repository, made, self.athlete_id, None)

    async def act(self, worker_harness: WorkerHarness) -> None:
        await goal(worker_harness, self.name)

    async def check(self, worker_harness: WorkerHarness) -> None:
        await worker_harness.services.engine.advance_all(self.name)
        found = await worker_harness.services.milestones.all(self.name)
        assert found
        for current in found:
            assert (
                current.milestone.progress,
                current.milestone.parts_minted,
                current.milestone.version,
            ) == (5000, 5, 2)
            assert current.ledger == {1, 2, 3, 4, 5}


SCENARIOS: list[type[Scenario]] = [
    Update,
    EventBatch,
    Deletion,
    Deauthorisation,
    Link,
    Unlink,
    FirstSignIn,
    NewMilestone,
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", SCENARIOS)
async def test_repeating_an_operation_completes_it_after_a_crash(
    embedded: Engine, kind: type[Scenario], after: bool
) -> None:
    """For a crash before or after any write."""
    for writes in range(MAX_WRITES):
        clock, strava = ManualClock(datetime.now(UTC)), FakeStrava()
        async with open_worker(embedded, clock, strava) as worker_harness:
            scenario = kind(strava, *await create_linked_user(worker_harness))
            await scenario.prepare(worker_harness)
            crashed = False
            try:
                crashing_engine = CrashingEngine(embedded, writes, after=after)
                async with open_worker(
                    crashing_engine, clock, strava, model=worker_harness.services.model
                ) as crashing:
                    await scenario.act(crashing)
            except (Crash, BaseExceptionGroup):
                crashed = True
            clock._elapsed += 61  # the lease expires
            if crashed or isinstance(scenario, Event):
                await scenario.act(worker_harness)
            await scenario.check(worker_harness)
        if not crashed:
            assert writes > 0
            return
    pytest.fail(f"the operation takes more than {MAX_WRITES} writes")
