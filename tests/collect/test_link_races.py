"""Links that change while a worker uses them: nothing is unlinked, and no event stays parked."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields, replace

import msgspec

from tally.collect.model.records import StravaConnection, StravaTokens, TokensRevoked
from tally.collect.repository.main import CollectRepository
from tally.collect.service.event_application import EventApplication
from tally.collect.service.linking import REFRESH_LEASE_SECONDS
from tally.collect.service.webhook import WebhookDelivery
from tally.errors import Unavailable
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tests.collect.worker_harness import (
    ENCRYPTOR,
    PATH_SECRET,
    FakeStrava,
    WorkerHarness,
    activity,
    create_linked_user,
    delivery,
    open_worker,
    pending_events_of,
)


@dataclass
class RotatedStrava(FakeStrava):
    """Rejects the first refresh, after another instance has refreshed the tokens."""

    refresh_elsewhere: Callable[[], Awaitable[None]] | None = None

    async def refresh(self, refresh_token: str) -> StravaTokens:
        if self.refresh_elsewhere is not None:
            elsewhere, self.refresh_elsewhere = self.refresh_elsewhere, None
            await elsewhere()
            raise TokensRevoked
        return await super().refresh(refresh_token)


@dataclass(frozen=True, slots=True)
class RelinkedApplication(EventApplication):
    """The user links again just after the worker has read the link."""

    relink: Callable[[], Awaitable[None]]

    async def link_of(self, athlete_id: int) -> StravaConnection | None:
        found = await EventApplication.link_of(self, athlete_id)
        if found is not None and found.needs_relink:
            await self.relink()
        return found


async def connection_of(harness: WorkerHarness, user_id: str) -> StravaConnection:
    found = await harness.services.repository.connection(user_id)
    assert found is not None
    return found


async def test_a_rejection_after_a_refresh_elsewhere_unlinks_nobody(
    engine: Engine, clock: ManualClock
) -> None:
    """The rejected token was rotated by another instance when the lease had expired."""
    strava = RotatedStrava()
    async with open_worker(engine, clock, strava) as harness:
        user_id, athlete_id = await create_linked_user(harness)
        read = await connection_of(harness, user_id)
        tokens = msgspec.json.encode(["access", "rotated", 4_000_000_000]).decode()

        async def refresh() -> None:
            encrypted = ENCRYPTOR.encrypt(tokens, f"{user_id} {athlete_id}")
            repository = harness.services.repository
            assert await repository.store_tokens(read, encrypted, 4_000_000_000)

        strava.refresh_elsewhere = refresh
        event = WebhookDelivery(
            "athlete", athlete_id, "update", athlete_id, 1, 1, {"authorized": "false"}
        )
        await harness.webhook.receive(PATH_SECRET, event)
        await harness.worker.run()
        assert not (await connection_of(harness, user_id)).needs_relink
        assert await pending_events_of(harness, athlete_id) == []


@dataclass(frozen=True, slots=True)
class FailingRepository(CollectRepository):
    """A repository that cannot store tokens while `failures` has elements."""

    failures: list[Unavailable] = field(default_factory=list)

    async def store_tokens(
        self, connection: StravaConnection, encrypted_tokens: str, expires_at: int
    ) -> bool:
        if self.failures:
            raise self.failures.pop()
        return await CollectRepository.store_tokens(self, connection, encrypted_tokens, expires_at)


async def test_rotated_tokens_survive_a_store_that_fails_for_a_moment(
    engine: Engine, clock: ManualClock
) -> None:
    """Strava accepts only the new refresh token, so that losing it would cost the link."""
    strava = FakeStrava({1: activity(1, 1000)})
    async with open_worker(engine, clock, strava) as harness:
        user_id, athlete_id = await create_linked_user(harness)
        failures = [Unavailable("The store is unavailable", retry_after=1) for _ in range(3)]
        repository = FailingRepository(harness.services.repository.store, failures)
        linking = replace(harness.linking, repository=repository)
        connection = await connection_of(harness, user_id)
        refresh = asyncio.create_task(linking.access_token(connection))
        while not refresh.done():
            await clock.advance(1)
        assert await refresh == "access"
        stored = await connection_of(harness, user_id)
        text = ENCRYPTOR.decrypt(stored.encrypted_tokens, f"{user_id} {athlete_id}")
        assert msgspec.json.decode(text)[1] == "refresh'"


@dataclass
class RotatingStrava(FakeStrava):
    """Accepts a refresh token once, like Strava."""

    used: set[str] = field(default_factory=set)

    async def refresh(self, refresh_token: str) -> StravaTokens:
        if refresh_token in self.used:
            raise TokensRevoked
        self.used.add(refresh_token)
        return await super().refresh(refresh_token)


async def test_rotated_tokens_survive_a_store_that_fails_for_longer(
    engine: Engine, clock: ManualClock
) -> None:
    """The next refresh stores them. Strava would reject the old refresh token that is stored."""
    strava = RotatingStrava({1: activity(1, 1000)})
    async with open_worker(engine, clock, strava) as harness:
        user_id, athlete_id = await create_linked_user(harness)
        failures = [Unavailable("The store is unavailable", retry_after=1) for _ in range(200)]
        repository = FailingRepository(harness.services.repository.store, failures)
        linking = replace(harness.linking, repository=repository)
        connection = await connection_of(harness, user_id)
        refresh = asyncio.create_task(linking.access_token(connection))
        while not refresh.done():
            await clock.advance(1)
        assert isinstance(refresh.exception(), Unavailable)
        failures.clear()
        await clock.advance(REFRESH_LEASE_SECONDS)
        assert await linking.access_token(await connection_of(harness, user_id)) == "access"
        stored = await connection_of(harness, user_id)
        text = ENCRYPTOR.decrypt(stored.encrypted_tokens, f"{user_id} {athlete_id}")
        assert msgspec.json.decode(text)[1] == "refresh'"


async def test_events_parked_just_after_a_relink_are_retried(
    engine: Engine, clock: ManualClock
) -> None:
    """The relink found no parked events, because they were parked later."""
    strava = FakeStrava({1: activity(1, 1000)})
    async with open_worker(engine, clock, strava) as harness:
        user_id, athlete_id = await create_linked_user(harness)
        repository = harness.services.repository
        assert await repository.require_relink(await connection_of(harness, user_id))

        async def relink() -> None:
            former = await connection_of(harness, user_id)
            if former.needs_relink:
                renewed = replace(former, link_id="new", version=2, needs_relink=False)
                assert await repository.link(renewed, former)
                await harness.linking.retries.retry_parked(athlete_id)

        application = harness.worker.application
        parts = {part.name: getattr(application, part.name) for part in fields(application)}
        relinked = RelinkedApplication(**parts, relink=relink)
        await harness.webhook.receive(PATH_SECRET, delivery(athlete_id, 1, "create", 1))
        await replace(harness.worker, application=relinked).run()
        await harness.worker.run()
        assert (await repository.parked_events(athlete_id, 10, None))[0] == []
        workouts, _ = await harness.services.engine.workouts.page(user_id, 10, None)
        assert [workout.activity_id for workout in workouts] == [1]


async def test_the_sync_of_a_link_that_works_again_is_scheduled(
    engine: Engine, clock: ManualClock
) -> None:
    """It was parked when Strava rejected the refresh token; a later refresh succeeded."""
    async with open_worker(engine, clock, FakeStrava()) as harness:
        user_id, _ = await create_linked_user(harness)
        connection = await connection_of(harness, user_id)
        repository = harness.services.repository
        service = harness.worker.application.sync
        scheduled = await service.ensure(connection)
        assert scheduled is not None
        assert await repository.put_sync(replace(scheduled, due_at=None), scheduled)
        parked = await service.ensure(replace(connection, needs_relink=True))
        assert parked is not None
        assert parked.due_at is None
        again = await service.ensure(connection)
        assert again is not None
        assert again.due_at == clock.seconds()


async def test_an_event_schedules_the_sync_of_a_link_of_an_earlier_version(
    engine: Engine, clock: ManualClock
) -> None:
    """Its user may never ask for the status."""
    async with open_worker(engine, clock, FakeStrava({1: activity(1, 1000)})) as harness:
        user_id, athlete_id = await create_linked_user(harness)
        assert await harness.services.repository.sync(user_id) is None
        await harness.webhook.receive(PATH_SECRET, delivery(athlete_id, 1, "create", 1))
        await harness.worker.run()
        sync = await harness.services.repository.sync(user_id)
        assert sync is not None
        assert sync.is_pending


async def test_unlinking_while_a_sync_is_scheduled_is_no_error(
    engine: Engine, clock: ManualClock
) -> None:
    """Requests that schedule a sync besides succeed."""
    async with open_worker(engine, clock, FakeStrava()) as harness:
        user_id, _ = await create_linked_user(harness)
        connection = await connection_of(harness, user_id)
        assert await harness.services.repository.unlink(connection)
        service = harness.worker.application.sync
        assert await service.ensure(connection) is None
