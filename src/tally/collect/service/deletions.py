"""Account deletion: a durable request, and the worker that carries it out.

`DELETE /account` stores the request and deletes the profile in one transaction, which ends every
session. The worker then revokes the Strava authorization and deletes the items, the sessions and
the identity. Every step is idempotent and is retried with back-off until it succeeds. A lease keeps
two instances from working on the same deletion, and expires after a crash. A step that fails does
not delay the others, but items count as deleted only after the Strava link is gone, because a
linked athlete's workouts may arrive until then.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from tally.collect.model.accounts import AccountDeletion, DeletionRetry, DeletionStep
from tally.collect.model.records import BrowserSession, PageKey
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.deletion_steps import MAX_DELETE_BATCHES, DeletionSteps
from tally.collect.service.metrics import DeletionMetrics
from tally.errors import TallyError, Unauthenticated, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.ids import new_uuid

LEASE_SECONDS: Final = 120
PAGE_SIZE: Final = 100
MAX_CONCURRENT_DELETIONS: Final = 4
# The next run follows soon while there are deletions that this run has not looked at.
BUSY_INTERVAL_SECONDS: Final = 0.05
INITIAL_BACKOFF_SECONDS: Final = 5
MAX_BACKOFF_SECONDS: Final = 3600

_log = logs.logger()


class _ClaimLost(Exception):
    """The lease expired, and another instance has taken over the deletion."""


@dataclass(frozen=True, slots=True)
class DeletionService:
    """Accepts requests to delete an account, and lists those in progress."""

    repository: CollectRepository
    sessions: BrowserSessionRepository
    audit: AuditTrail
    clock: Clock

    async def request(self, session: BrowserSession, ip: str | None) -> AccountDeletion:
        """Request the deletion of the user's account. When this returns, the request is durable.

        All sessions of the user have ended then.
        """
        user_id = session.user_id
        connection = await self.repository.connection(user_id)
        has_token = session.encrypted_refresh_token is not None
        deletion = AccountDeletion(
            user_id=user_id,
            requested_at=rfc3339(self.clock.now()),
            correlation_id=logs.current_context().correlation_id or new_uuid(),
            remaining=tuple(
                step for step in DeletionStep if has_token or step is not DeletionStep.IDENTITY
            ),
            athlete_id=None if connection is None else connection.athlete_id,
            encrypted_refresh_token=session.encrypted_refresh_token,
        )
        if not await self.repository.request_deletion(deletion):
            return await self._requested_before(user_id)
        self.audit.record("ACCOUNT_DELETE_REQUESTED", user_id, ip=ip)
        with suppress(Unavailable):  # invalid already; the worker deletes those that it finds
            await self.sessions.delete(session.session_hash)
        return deletion

    async def _requested_before(self, user_id: str) -> AccountDeletion:
        """Return the deletion that a concurrent request has started."""
        deletion = await self.repository.deletion(user_id)
        if deletion is None:
            raise Unauthenticated("The account is deleted", code="invalid_session")
        return deletion

    async def page(
        self, limit: int, start: PageKey | None
    ) -> tuple[list[AccountDeletion], PageKey | None]:
        """Return a page of the deletions in progress, and the start key of the next page."""
        return await self.repository.deletions(limit, start)


@dataclass(slots=True)
class _Backlog:
    """What a pass over all deletions has found so far, and where it continues."""

    start: PageKey | None = None
    pending: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeletionWorker:
    """Carries out deletions. Any number of workers may run in any number of processes."""

    repository: CollectRepository
    steps: DeletionSteps
    audit: AuditTrail
    clock: Clock
    metrics: DeletionMetrics
    rng: random.Random = field(default_factory=random.SystemRandom)
    _backlog: _Backlog = field(default_factory=_Backlog)

    async def run(self) -> float | None:
        """Process the due deletions of the next page; return the delay if there are more pages.

        Each run continues where the last one ended, so that no deletion waits for others.
        """
        found, next_key = await self.repository.deletions(PAGE_SIZE, self._backlog.start)
        self._count(found, is_last=next_key is None)
        self._backlog.start = next_key
        slots = asyncio.Semaphore(MAX_CONCURRENT_DELETIONS)
        now = self.clock.seconds()

        async def process(deletion: AccountDeletion) -> None:
            async with slots:
                await self._process(deletion.user_id)

        outcomes = await asyncio.gather(
            *(process(deletion) for deletion in found if deletion.retry.not_before <= now),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # the store is unavailable; the leases expire
        return None if next_key is None else BUSY_INTERVAL_SECONDS

    def _count(self, found: list[AccountDeletion], *, is_last: bool) -> None:
        """Update the metrics at the end of each pass over all deletions."""
        backlog = self._backlog
        backlog.pending += len(found)
        times = [datetime.fromisoformat(deletion.requested_at) for deletion in found]
        backlog.oldest = min([*times, *([backlog.oldest] if backlog.oldest else [])], default=None)
        if is_last:
            now = self.clock.now()
            self.metrics.pending.set(backlog.pending)
            self.metrics.oldest.set((now - (backlog.oldest or now)).total_seconds())
            backlog.pending, backlog.oldest = 0, None

    async def _process(self, user_id: str) -> None:
        token = new_uuid()
        deletion = await self.repository.claim_deletion(
            user_id, token, self.clock.seconds(), LEASE_SECONDS
        )
        if deletion is None:
            return
        with (
            logs.bound(
                service="collect",
                correlation_id=deletion.correlation_id,
                user_id=user_id,
                action="account_deletion",
            ),
            suppress(_ClaimLost),
        ):
            await self._attempt(deletion, token)

    async def _attempt(self, deletion: AccountDeletion, token: str) -> None:
        """Run the remaining steps, then finish the deletion or schedule the next attempt."""
        failure: tuple[DeletionStep, Exception] | None = None
        for step in deletion.remaining:
            try:
                await self._run_step(step, deletion, token)
            except _ClaimLost:
                raise
            except Exception as error:  # noqa: BLE001  (any failure leads to a retry of the step)
                failure = failure or (step, error)
                self.metrics.failures.labels(step.value).inc()
                continue
            if step is DeletionStep.ITEMS and DeletionStep.STRAVA in deletion.remaining:
                continue  # the link still exists, so workouts may arrive
            remaining = tuple(other for other in deletion.remaining if other is not step)
            deletion = replace(deletion, remaining=remaining)
            await self._record_progress(deletion, token)
        if failure is not None:
            await self._schedule_retry(deletion, token, *failure)
        elif await self.repository.finish_deletion(deletion.user_id, token):
            self.metrics.completed.inc()
            self.audit.record("ACCOUNT_DELETED", deletion.user_id)
            _log.info("Account deleted", action="account_deleted")

    async def _run_step(self, step: DeletionStep, deletion: AccountDeletion, token: str) -> None:
        if step is DeletionStep.STRAVA:
            await self.steps.revoke_strava(deletion)
            if deletion.athlete_id is not None:
                facts: dict[str, str | int] = {"athlete": deletion.athlete_id}
                self.audit.record("STRAVA_DISCONNECTED", deletion.user_id, facts)
            return
        if step is DeletionStep.IDENTITY:

            async def keep_token(encrypted: str) -> None:
                kept = replace(deletion, encrypted_refresh_token=encrypted)
                await self._record_progress(kept, token)

            await self.steps.remove_identity(deletion, keep_token)
            return
        is_items = step is DeletionStep.ITEMS
        delete = self.steps.delete_some_items if is_items else self.steps.delete_some_sessions
        for _ in range(MAX_DELETE_BATCHES):
            if not await delete(deletion):
                return
            await self._record_progress(deletion, token)
        raise Unavailable("The account has more to delete; the next attempt continues")

    async def _record_progress(self, deletion: AccountDeletion, token: str) -> None:
        """Store the remaining steps with what they need, and renew the lease."""
        lease_until = self.clock.seconds() + LEASE_SECONDS
        if not await self.repository.record_deletion_progress(deletion, token, lease_until):
            raise _ClaimLost

    async def _schedule_retry(
        self, deletion: AccountDeletion, token: str, step: DeletionStep, error: Exception
    ) -> None:
        attempts = deletion.retry.attempts
        backoff = min(MAX_BACKOFF_SECONDS, INITIAL_BACKOFF_SECONDS * 2.0 ** min(attempts, 20))
        delay = backoff * self.rng.uniform(0.5, 1)
        delay = min(MAX_BACKOFF_SECONDS, max(delay, getattr(error, "retry_after", None) or 0))
        reason = error.code if isinstance(error, TallyError) else type(error).__name__
        _log.warning(
            "Account deletion delayed",
            action="account_deletion_delayed",
            step=step.value,
            retry_seconds=round(delay),
            error=error,
        )
        not_before = self.clock.seconds() + round(delay)
        retry = DeletionRetry(attempts + 1, not_before, f"{step.value}: {reason}")
        await self.repository.postpone_deletion(deletion.user_id, token, retry)
