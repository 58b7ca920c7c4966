"""A crash between any two writes of whatever writes more than once: done again, it ends as if nothing had happened."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from tally.collect.model.records import BrowserSession, OidcIdentity
from tally.collect.service.sign_in import SignInService
from tally.collect.service.webhook import WebhookDelivery
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tally.store.sqlite import open_sqlite
from tests.collect import people
from tests.collect.conftest import TABLES
from tests.collect.fragile import (
    SEALER,
    Died,
    MadeUpStrava,
    Mortal,
    Workshop,
    activity,
    member,
    told,
    waiting_of,
    workshop,
)
from tests.collect.test_crashes import MAX_WRITES, goal
from tests.collect.test_repository_beside import session

LONG_AGO = 1_767_225_600


@pytest.fixture(scope="module")
async def embedded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with open_sqlite(tmp_path_factory.mktemp("crashes")) as engine:
        for table in TABLES:
            await engine.create_table(table)
        yield engine


class Story(ABC):
    """Something that somebody does; `act` is what a crash interrupts, and what is done again afterwards."""

    def __init__(self, strava: MadeUpStrava, name: str, athlete_id: int) -> None:
        self.strava = strava
        self.name = name
        self.athlete_id = athlete_id

    @abstractmethod
    async def prepare(self, shop: Workshop) -> None:
        """What was there before."""

    @abstractmethod
    async def act(self, shop: Workshop) -> None: ...

    @abstractmethod
    async def check(self, shop: Workshop) -> None:
        """How it must stand in the end."""


class Event(Story):
    """An event that the worker applies; the activity had been applied before."""

    aspect = "update"

    async def prepare(self, shop: Workshop) -> None:
        self.number = people.number()
        self.held = await goal(shop, self.name)
        self.strava.activities[self.number] = activity(self.number, 3000)
        await shop.webhook.receive(told(self.athlete_id, self.number, "create", LONG_AGO))
        await shop.worker.run()
        self.strava.activities[self.number] = activity(self.number, 5000)
        await shop.webhook.receive(self.event())

    def event(self) -> WebhookDelivery:
        return told(self.athlete_id, self.number, self.aspect, LONG_AGO + 60)

    async def act(self, shop: Workshop) -> None:
        await shop.worker.run()

    async def check(self, shop: Workshop) -> None:
        assert await waiting_of(shop, self.athlete_id) == []
        now = await shop.stage.milestones.get(self.name, self.held.milestone.milestone_id)
        assert (now.milestone.progress, now.milestone.version, len(now.awards)) == self.expected()
        await self.check_workout(shop)

    def expected(self) -> tuple[int, int, int]:
        return 5000, 3, 5

    async def check_workout(self, shop: Workshop) -> None:
        found = await shop.stage.main.workout(self.name, self.number)
        assert found is not None
        assert (found.distance, found.is_deleted) == (5000, False)


class Update(Event):
    """The workout is as it was edited, and what it adds is there."""


class Deletion(Event):
    """The workout is marked, and what it earned stays."""

    aspect = "delete"

    def expected(self) -> tuple[int, int, int]:
        return 3000, 2, 3

    async def check_workout(self, shop: Workshop) -> None:
        found = await shop.stage.main.workout(self.name, self.number)
        assert found is not None
        assert found.is_deleted


class Several(Update):
    """Events that came together and move the milestones together: all of them count."""

    async def prepare(self, shop: Workshop) -> None:
        await super().prepare(shop)
        for _ in range(3):
            number = people.number()
            self.strava.activities[number] = activity(number, 1000)
            await shop.webhook.receive(told(self.athlete_id, number, "create", LONG_AGO + 120))

    def expected(self) -> tuple[int, int, int]:
        return 8000, 3, 8


class Deauthorisation(Event):
    """The link is gone on both sides, and what was collected stays."""

    def event(self) -> WebhookDelivery:
        return WebhookDelivery(
            "athlete",
            self.athlete_id,
            "update",
            self.athlete_id,
            1,
            LONG_AGO + 60,
            {"authorized": "false"},
        )

    def expected(self) -> tuple[int, int, int]:
        return 3000, 2, 3

    async def check_workout(self, shop: Workshop) -> None:
        assert await shop.stage.main.connection(self.name) is None
        assert await shop.stage.main.owner(self.athlete_id) is None
        assert await shop.stage.main.linked_users(self.athlete_id) == set()


class LinkingService(Story):
    """Consent for a second athlete, which takes the place of the first; begun anew when it was interrupted."""

    async def prepare(self, shop: Workshop) -> None:
        assert await shop.stage.main.owner(self.athlete_id) == self.name
        self.second = people.number()
        self.session: BrowserSession = session(self.name)

    async def act(self, shop: Workshop) -> None:
        url = await shop.linking.begin(self.session, "https://here", "/")
        state = url.partition("?")[2]
        await shop.linking.finish(
            self.session,
            state=state,
            code=str(self.second),
            scope="read,activity:read_all",
            error="",
        )

    async def check(self, shop: Workshop) -> None:
        linked = await shop.stage.main.connection(self.name)
        assert linked is not None
        assert linked.athlete_id == self.second
        assert await shop.stage.main.owner(self.second) == self.name
        assert await shop.stage.main.owner(self.athlete_id) is None


class Unlinking(Story):
    """No connection, no owner; asked again, there is nothing to unlink."""

    async def prepare(self, shop: Workshop) -> None:
        assert await shop.stage.main.owner(self.athlete_id) == self.name

    async def act(self, shop: Workshop) -> None:
        if await shop.linking.status(self.name) is not None:
            await shop.linking.disconnect(self.name)

    async def check(self, shop: Workshop) -> None:
        assert await shop.stage.main.connection(self.name) is None
        assert await shop.stage.main.owner(self.athlete_id) is None


class MadeUpIssuer:
    """Knows one person."""

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


class FirstSignIn(Story):
    """One profile, and a session that works."""

    async def prepare(self, shop: Workshop) -> None:
        self.newcomer = people.user_id()
        self.session_id = ""
        assert await shop.stage.main.profile(self.newcomer) is None

    def sign_in(self, shop: Workshop) -> SignInService:
        stage = shop.stage
        return SignInService(
            stage.sessions,
            stage.main,
            MadeUpIssuer(self.newcomer),
            SEALER,
            stage.audit,
            stage.clock,
        )

    async def act(self, shop: Workshop) -> None:
        service = self.sign_in(shop)
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

    async def check(self, shop: Workshop) -> None:
        assert await shop.stage.main.profile(self.newcomer) is not None
        assert (await self.sign_in(shop).resolve(self.session_id)).user_id == self.newcomer


class Goal(Story):
    """A milestone that looks back: whatever was made before the crash is moved by the next run."""

    async def prepare(self, shop: Workshop) -> None:
        made = people.workout(self.name, distance=5000)
        assert await shop.stage.main.put_workout(made, self.athlete_id)

    async def act(self, shop: Workshop) -> None:
        await goal(shop, self.name)

    async def check(self, shop: Workshop) -> None:
        await shop.stage.engine.advance_all(self.name)
        found = await shop.stage.milestones.all(self.name)
        assert found
        for held in found:
            assert (
                held.milestone.progress,
                held.milestone.parts_minted,
                held.milestone.version,
            ) == (5000, 5, 2)
            assert held.ledger == {1, 2, 3, 4, 5}


STORIES: list[type[Story]] = [
    Update,
    Several,
    Deletion,
    Deauthorisation,
    LinkingService,
    Unlinking,
    FirstSignIn,
    Goal,
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", STORIES)
async def test_a_crash_at_any_write_is_made_good_by_doing_it_again(
    embedded: Engine, kind: type[Story], after: bool
) -> None:
    """Wherever the process died, before or after a write became durable."""
    for writes in range(MAX_WRITES):
        clock, strava = ManualClock(datetime.now(UTC)), MadeUpStrava()
        async with workshop(embedded, clock, strava) as shop:
            story = kind(strava, *await member(shop))
            await story.prepare(shop)
            died = False
            try:
                mortal = Mortal(embedded, writes, after=after)
                async with workshop(mortal, clock, strava, model=shop.stage.model) as doomed:
                    await story.act(doomed)
            except (Died, BaseExceptionGroup):
                died = True
            clock._elapsed += 61  # the lease is over
            if died or isinstance(story, Event):
                await story.act(shop)
            await story.check(shop)
        if not died:
            assert writes > 0
            return
    pytest.fail(f"it takes more than {MAX_WRITES} writes")
