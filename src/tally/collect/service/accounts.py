"""An account: what there is to say about it, and how it goes away, whole, however often the going is interrupted."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tally.collect.model import Connection, Profile, Session
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import SessionRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.linking import Linking
from tally.collect.service.ports import DeleteIdentity
from tally.errors import NotFound, Unauthenticated, Unavailable
from tally.kit.clock import Clock
from tally.kit.encryption import DecryptionError, Encryptor

# Rounds of some hundred items each: more than anyone can have.
MAX_ROUNDS: Final = 100


@dataclass(frozen=True, slots=True)
class Summary:
    """Who somebody is, and how much they have."""

    profile: Profile
    connection: Connection | None
    workouts: int
    milestones: int
    awards: int


@dataclass(frozen=True, slots=True)
class Accounts:
    main: CollectRepository
    sessions: SessionRepository
    linking: Linking
    delete_identity: DeleteIdentity
    sealer: Encryptor
    audit: AuditTrail
    clock: Clock

    async def summary(self, user_id: str) -> Summary:
        profile = await self.main.profile(user_id)
        if profile is None:
            raise Unauthenticated("This account is being deleted", code="invalid_session")
        held = await self.main.milestones(user_id)
        return Summary(
            profile,
            await self.main.connection(user_id),
            await self.main.count_workouts(user_id),
            len(held),
            sum(len(each.awards) for each in held),
        )

    async def delete(self, session: Session, ip: str | None) -> None:
        """Strava, then every item, then every session, then the identity.

        Each step may run again, and a re-run finishes.

        Whoever is interrupted asks again: with the same session while it lasts, or after another
        sign-in.
        """
        user_id = session.user_id
        self.audit.record("ACCOUNT_DELETE_REQUESTED", user_id, ip=ip)
        with suppress(NotFound):  # never linked, or unlinked by an earlier try
            await self.linking.disconnect(user_id)
        await self.main.delete_profile(user_id)
        await self._empty(user_id)
        await self._sign_out_everywhere(user_id)
        await self.sessions.delete(session.session_hash)
        if session.sealed is not None:
            with suppress(
                DecryptionError
            ):  # the key was changed: without it the issuer cannot be asked
                await self.delete_identity(self.sealer.decrypt(session.sealed, user_id))
        self.audit.record("ACCOUNT_DELETED", user_id, ip=ip)

    async def _empty(self, user_id: str) -> None:
        for _ in range(MAX_ROUNDS):
            if not await self.main.remove_some(user_id):
                return
        raise Unavailable("The account is not empty yet; ask again", retry_after=1)

    async def _sign_out_everywhere(self, user_id: str) -> None:
        for _ in range(MAX_ROUNDS):
            if not await self.sessions.delete_some_of(user_id):
                return
        raise Unavailable("Not all sessions have ended yet; ask again", retry_after=1)
