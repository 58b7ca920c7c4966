"""The steps of an account deletion. Each is idempotent; `deletions.py` runs them until done."""

from dataclasses import dataclass, replace
from typing import Final

from tally.collect.model.accounts import AccountDeletion, DeletionStep
from tally.collect.model.records import StravaConnection
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.service.linking import LinkingService
from tally.collect.service.ports import DeleteIdentity, KeepToken
from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.encryption import DecryptionError, Encryptor

# Each batch deletes up to 500 items, so this exceeds any account. The next attempt continues.
MAX_DELETE_BATCHES: Final = 1000
MAX_REVOCATIONS: Final = 3
MAX_DEQUEUE_ATTEMPTS: Final = 3

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class DeletionSteps:
    """The steps of a deletion. Each is idempotent."""

    repository: CollectRepository
    sessions: BrowserSessionRepository
    linking: LinkingService
    delete_identity: DeleteIdentity
    encryptor: Encryptor

    async def revoke_strava(self, deletion: AccountDeletion) -> None:
        """Revoke the authorization at Strava, then delete the link. Fails while Strava is down."""
        for _ in range(MAX_REVOCATIONS):
            connection = await self.repository.connection(deletion.user_id)
            if connection is None:
                return
            await self._revoke(connection)
            current = await self.repository.connection(deletion.user_id)
            if current is None or current.version == connection.version:
                # Before the athlete becomes free: later events may be those of another user.
                await self._delete_events(connection.athlete_id)
                await self.linking.forget(connection)
                return
            # A worker has refreshed the tokens: those that were revoked may have been the old ones.
        raise Unavailable("The tokens are being refreshed concurrently", retry_after=5)

    async def _revoke(self, connection: StravaConnection) -> None:
        """Revoke the authorization, unless it is gone: then Strava rejects the refresh token too.

        Otherwise the deletion could wait forever for an athlete who revoked it at Strava.
        """
        try:
            await self.linking.revoke(connection)
        except Unavailable:
            if not connection.needs_relink and not await self.linking.is_rejected(connection):
                raise

    async def _delete_events(self, athlete_id: int) -> None:
        for _ in range(MAX_DELETE_BATCHES):
            if not await self.repository.delete_events(athlete_id):
                return
        raise Unavailable("The athlete has more events to delete; the next attempt continues")

    async def delete_some_items(self, deletion: AccountDeletion) -> bool:
        """Delete a batch of items; return whether there may be more."""
        await self._dequeue_sync(deletion.user_id)
        is_linked = DeletionStep.STRAVA in deletion.remaining
        deleted = await self.repository.delete_items(deletion.user_id, keeps_connection=is_linked)
        return deleted > 0

    async def _dequeue_sync(self, user_id: str) -> None:
        """Remove the user from the queue of syncs, which is another partition."""
        for _ in range(MAX_DEQUEUE_ATTEMPTS):
            sync = await self.repository.sync(user_id)
            if sync is None or sync.due_at is None:
                return
            if await self.repository.put_sync(replace(sync, due_at=None), sync) is not None:
                return
        raise Unavailable("The account is being synced; the next attempt continues", retry_after=5)

    async def delete_some_sessions(self, deletion: AccountDeletion) -> bool:
        return await self.sessions.delete_batch(deletion.user_id) > 0

    async def remove_identity(self, deletion: AccountDeletion, keep_token: KeepToken) -> None:
        """Delete the identity; `keep_token` stores an encrypted token that replaces the first."""
        if deletion.encrypted_refresh_token is None:
            return
        try:
            token = self.encryptor.decrypt(deletion.encrypted_refresh_token, deletion.user_id)
        except DecryptionError:
            # TALLY_COLLECT_SECRET has changed: the token is lost, and a retry cannot help.
            _log.warning("Identity not deleted: its token is unreadable", action="identity_kept")
            return

        async def encrypt_and_keep(new_token: str) -> None:
            await keep_token(self.encryptor.encrypt(new_token, deletion.user_id))

        await self.delete_identity(token, encrypt_and_keep)
