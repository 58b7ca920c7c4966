"""User accounts: the summary, the workouts, and complete deletion that survives interruptions."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tally.collect.model.records import (
    BrowserSession,
    PageKey,
    Profile,
    StravaConnection,
    Workout,
)
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.linking import LinkingService
from tally.collect.service.ports import DeleteIdentity
from tally.errors import NotFound, Unauthenticated, Unavailable
from tally.kit.encryption import DecryptionError, Encryptor

# Each batch deletes up to 500 items, so this exceeds any account.
MAX_DELETE_BATCHES: Final = 100


@dataclass(frozen=True, slots=True)
class AccountSummary:
    """A profile with its Strava connection and the number of its items."""

    profile: Profile
    connection: StravaConnection | None
    workouts: int
    milestones: int
    awards: int


@dataclass(frozen=True, slots=True)
class AccountService:
    """Reads and deletes accounts."""

    repository: CollectRepository
    sessions: BrowserSessionRepository
    linking: LinkingService
    delete_identity: DeleteIdentity
    encryptor: Encryptor
    audit: AuditTrail

    async def summary(self, user_id: str) -> AccountSummary:
        profile = await self.repository.profile(user_id)
        if profile is None:
            raise Unauthenticated("The account is being deleted", code="invalid_session")
        milestones = await self.repository.milestones(user_id)
        return AccountSummary(
            profile,
            await self.repository.connection(user_id),
            await self.repository.count_workouts(user_id),
            len(milestones),
            sum(len(milestone.awards) for milestone in milestones),
        )

    async def workouts(
        self, user_id: str, limit: int, start: PageKey | None
    ) -> tuple[list[Workout], PageKey | None]:
        """Return a page of workouts, newest first, and the start key of the next page.

        A page is shorter than `limit` where workouts were deleted.
        """
        return await self.repository.workouts(user_id, limit, start)

    async def delete(self, session: BrowserSession, ip: str | None) -> None:
        """Delete the Strava link, all items, all sessions and the identity, in this order.

        Every step is idempotent. After an interruption the user repeats the request, with the same
        session or after signing in again.
        """
        user_id = session.user_id
        self.audit.record("ACCOUNT_DELETE_REQUESTED", user_id, ip=ip)
        with suppress(NotFound):  # never linked, or unlinked by an earlier attempt
            await self.linking.disconnect(user_id)
        await self.repository.delete_profile(user_id)
        await self._delete_items(user_id)
        await self._delete_sessions(user_id)
        await self.sessions.delete(session.session_hash)
        if session.encrypted_refresh_token is not None:
            # After a change of the secret, the token for the provider cannot be decrypted.
            with suppress(DecryptionError):
                await self.delete_identity(
                    self.encryptor.decrypt(session.encrypted_refresh_token, user_id)
                )
        self.audit.record("ACCOUNT_DELETED", user_id, ip=ip)

    async def _delete_items(self, user_id: str) -> None:
        for _ in range(MAX_DELETE_BATCHES):
            if not await self.repository.delete_items(user_id):
                return
        raise Unavailable("The account has more items to delete; retry", retry_after=1)

    async def _delete_sessions(self, user_id: str) -> None:
        for _ in range(MAX_DELETE_BATCHES):
            if not await self.sessions.delete_batch(user_id):
                return
        raise Unavailable("The account has more sessions to delete; retry", retry_after=1)
