"""An account deletion completes after a crash between any two writes or calls."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

import pytest

from tally.collect.model.records import BrowserSession
from tally.collect.repository.table import COMMIT_COLLECT, item_key, user_pk
from tally.collect.service.deletion_steps import DeletionSteps
from tally.collect.service.deletions import LEASE_SECONDS, DeletionService, DeletionWorker
from tally.collect.service.metrics import DeletionMetrics
from tally.collect.service.ports import KeepToken
from tally.kit.clock import ManualClock
from tally.kit.metrics import Metrics
from tally.store.api import BatchWrite, Engine
from tests.collect.test_crashes import MAX_WRITES, goal
from tests.collect.test_repository_sessions import session
from tests.collect.worker_harness import (
    ENCRYPTOR,
    Crash,
    CrashingEngine,
    FakeStrava,
    WorkerHarness,
    create_linked_user,
    open_worker,
)

CrashPoint = Literal["before", "after"]


@dataclass
class RevokingStrava(FakeStrava):
    """A Strava that records revocations, and may crash the process that calls it."""

    crash: CrashPoint | None = None
    revoked: list[str] = field(default_factory=list)

    async def revoke(self, refresh_token: str) -> None:
        if self.crash == "before":
            raise Crash
        self.revoked.append(refresh_token)
        if self.crash == "after":
            raise Crash


@dataclass
class Identities:
    """A provider whose identities can be deleted, and may crash the process that calls it."""

    crash: CrashPoint | None = None
    deleted: set[str] = field(default_factory=set)

    async def delete(self, refresh_token: str, keep_token: KeepToken) -> None:
        del keep_token
        if self.crash == "before":
            raise Crash
        self.deleted.add(refresh_token)
        if self.crash == "after":
            raise Crash


def worker_of(harness: WorkerHarness, identities: Identities) -> DeletionWorker:
    services = harness.services
    steps = DeletionSteps(
        services.repository, services.sessions, harness.linking, identities.delete, ENCRYPTOR
    )
    return DeletionWorker(
        services.repository, steps, services.audit, services.clock, DeletionMetrics(Metrics())
    )


async def run_worker(harness: WorkerHarness, identities: Identities) -> None:
    worker = worker_of(harness, identities)
    while await worker.run() is not None:
        pass


async def request(harness: WorkerHarness, current: BrowserSession) -> None:
    services = harness.services
    service = DeletionService(
        services.repository, services.sessions, services.audit, services.clock
    )
    await service.request(current, None)


@dataclass(frozen=True)
class Account:
    """A linked user with a milestone, a workout and two sessions."""

    user_id: str
    athlete_id: int
    sessions: tuple[BrowserSession, BrowserSession]

    @classmethod
    async def create(cls, harness: WorkerHarness) -> "Account":
        user_id, athlete_id = await create_linked_user(harness)
        await goal(harness, user_id)
        expires = harness.services.clock.seconds() + 1000
        encrypted = ENCRYPTOR.encrypt(f"token of {user_id}", user_id)
        current = replace(session(user_id, expires), encrypted_refresh_token=encrypted)
        other = session(user_id, expires)
        for one in (current, other):
            await harness.services.sessions.create(one)
        return cls(user_id, athlete_id, (current, other))

    async def check_deleted(self, harness: WorkerHarness, identities: Identities) -> None:
        repository = harness.services.repository
        assert await repository.deletion(self.user_id) is None
        assert await repository.profile(self.user_id) is None
        assert await repository.connection(self.user_id) is None
        assert await repository.owner(self.athlete_id) is None
        assert await repository.milestones(self.user_id) == []
        assert await repository.delete_items(self.user_id, keeps_connection=False) == 0
        for one in self.sessions:
            assert await harness.services.sessions.find(one.session_hash, 1) is None
        assert f"token of {self.user_id}" in identities.deleted


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_deletion_survives_a_crash_at_any_write(engine: Engine, after: bool) -> None:
    """Of the request or of the worker. The user repeats only a request that was not accepted."""
    for writes in range(MAX_WRITES):
        clock, strava, identities = ManualClock(datetime.now(UTC)), RevokingStrava(), Identities()
        async with open_worker(engine, clock, strava) as harness:
            account = await Account.create(harness)
            crashed = False
            try:
                async with open_worker(
                    CrashingEngine(engine, writes, after=after),
                    clock,
                    strava,
                    model=harness.services.model,
                ) as crashing:
                    await request(crashing, account.sessions[0])
                    await run_worker(crashing, identities)
            except (Crash, BaseExceptionGroup):
                crashed = True
            repository = harness.services.repository
            if await repository.profile(account.user_id) is not None:
                await request(harness, account.sessions[0])
            clock._elapsed += LEASE_SECONDS
            await run_worker(harness, identities)
            await account.check_deleted(harness, identities)
            assert strava.revoked
        if not crashed:
            assert writes > 0
            return
    pytest.fail(f"a deletion takes more than {MAX_WRITES} writes")


@pytest.mark.parametrize("crash", ["before", "after"])
@pytest.mark.parametrize("service", ["strava", "provider"])
async def test_a_deletion_survives_a_crash_at_any_call(
    engine: Engine, service: str, crash: CrashPoint
) -> None:
    """Before or after an external service has done its part."""
    clock, strava, identities = ManualClock(datetime.now(UTC)), RevokingStrava(), Identities()
    async with open_worker(engine, clock, strava) as harness:
        account = await Account.create(harness)
        await request(harness, account.sessions[0])
        target: RevokingStrava | Identities = strava if service == "strava" else identities
        target.crash = crash
        with pytest.raises(Crash):
            await run_worker(harness, identities)
        assert await harness.services.repository.deletion(account.user_id) is not None
        target.crash = None
        await run_worker(harness, identities)
        assert await harness.services.repository.deletion(account.user_id) is not None
        clock._elapsed += LEASE_SECONDS  # until then, the lease protects the deletion
        await run_worker(harness, identities)
        await account.check_deleted(harness, identities)
        assert strava.revoked


async def test_tokens_that_are_refreshed_meanwhile_are_revoked(engine: Engine) -> None:
    """A worker stores new tokens while the old ones are being revoked."""

    @dataclass
    class RefreshingStrava(RevokingStrava):
        async def revoke(self, refresh_token: str) -> None:
            if not self.revoked:
                connection = await repository.connection(account.user_id)
                assert connection is not None
                await harness.linking.access_token(connection)
            await super().revoke(refresh_token)

    clock, strava, identities = ManualClock(datetime.now(UTC)), RefreshingStrava(), Identities()
    async with open_worker(engine, clock, strava) as harness:
        repository = harness.services.repository
        account = await Account.create(harness)
        await request(harness, account.sessions[0])
        await run_worker(harness, identities)
        assert strava.revoked == ["refresh", "refresh'"]
        await account.check_deleted(harness, identities)


async def test_a_large_account_is_deleted_in_one_attempt(engine: Engine) -> None:
    """In several batches, and no other worker may claim it between two of them."""
    clock, strava, identities = ManualClock(datetime.now(UTC)), RevokingStrava(), Identities()
    async with open_worker(engine, clock, strava) as harness:
        account = await Account.create(harness)
        owner = user_pk(account.user_id)
        items = [item_key(owner, f"WORKOUT#{number:06}") for number in range(1_200)]
        for start in range(0, len(items), 25):
            await engine.batch_write(BatchWrite(COMMIT_COLLECT, tuple(items[start : start + 25])))
        await request(harness, account.sessions[0])
        await asyncio.gather(*(run_worker(harness, identities) for _ in range(2)))
        await account.check_deleted(harness, identities)
        assert len(strava.revoked) == 1
