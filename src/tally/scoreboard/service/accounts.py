"""Player accounts: registration, login, change of password, score history and deletion."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from tally.errors import Conflict, Forbidden, NotFound, Unauthenticated
from tally.kit import logs
from tally.kit.addresses import NO_ADDRESS, counted_address
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.scoreboard.model.accounts import (
    ClientInfo,
    NewUser,
    PasswordChange,
    ProfileChange,
    User,
    UserCredentials,
)
from tally.scoreboard.model.scores import Score, ScoreEventPage
from tally.scoreboard.repository.accounts import AccountRepository
from tally.scoreboard.repository.cache import ResponseCache
from tally.scoreboard.repository.events import EventRepository
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.service.account_throttle import (
    AccountThrottle,
    password_change_subject,
    sign_in_subject,
)
from tally.scoreboard.service.boards import Boards
from tally.scoreboard.service.leaderboard_writer import LeaderboardWriter
from tally.scoreboard.service.passwords import ThreadedPasswordHasher
from tally.scoreboard.service.redis_breaker import RedisBreaker
from tally.scoreboard.service.sessions import (
    AuthenticatedPlayer,
    PlayerSessions,
    SessionTokens,
)

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class AccountRegistration:
    """The data that a new player submits."""

    username: str
    email: str
    password: str
    avatar_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerAccounts:
    """Creates, authenticates and deletes accounts."""

    accounts: AccountRepository
    events: EventRepository
    scores: ScoreRepository
    passwords: ThreadedPasswordHasher
    throttle: AccountThrottle
    sessions: PlayerSessions
    responses: ResponseCache
    breaker: RedisBreaker
    writer: LeaderboardWriter
    boards: Boards
    clock: Clock

    async def register(
        self, registration: AccountRegistration, client: ClientInfo
    ) -> tuple[User, SessionTokens]:
        """Create an account with a score of 0 and open a session."""
        await self.passwords.check_strength(registration.password, registration.username)
        password_hash = await self.passwords.hash(registration.password)
        now = self.clock.now()
        account = NewUser(
            new_uuid(),
            registration.username,
            registration.email,
            password_hash,
            registration.avatar_url,
        )
        user = await self.accounts.create(account, now)
        logs.bind(user_id=user.user_id)
        await self.writer.put_player(
            Score(user.user_id, user.username, 0, now, avatar_url=user.avatar_url)
        )
        _log.info("Account created", action="account_created")
        return user, await self.sessions.open(user, client)

    async def login(
        self, login: str, password: str, client: ClientInfo
    ) -> tuple[User, SessionTokens]:
        """Open a session for the account with this username or email.

        An unknown login and a wrong password raise the same error after the same amount of work.
        """
        address = counted_address(client.ip_address)
        credentials = await self.accounts.find_credentials(
            login, None if address == NO_ADDRESS else address
        )
        if credentials is not None:
            logs.bind(user_id=credentials.user.user_id)
        subject = sign_in_subject(login, credentials, address)
        await self.throttle.admit(subject)
        password_hash = None if credentials is None else credentials.password_hash
        if not await self.passwords.verify(password, password_hash) or credentials is None:
            self.throttle.record_failure(address)
            raise Unauthenticated("Invalid username or password", code="invalid_credentials")
        tokens = await self.sessions.open(
            credentials.user, client, await self._current_hash(credentials, password)
        )
        await self.throttle.record_success(subject)
        _log.info("Player logged in", action="player_logged_in")
        return credentials.user, tokens

    async def _current_hash(self, credentials: UserCredentials, password: str) -> str:
        """Return the hash of the verified password, after renewing one with old parameters."""
        old_hash = credentials.password_hash
        if not self.passwords.needs_rehash(old_hash):
            return old_hash
        new_hash = await self.passwords.hash(password)
        await self.accounts.update_password_hash(
            credentials.user.user_id, old_hash, new_hash, self.clock.now()
        )
        return new_hash

    async def change_password(
        self, player: AuthenticatedPlayer, current: str, new: str, client: ClientInfo
    ) -> None:
        """Replace the password and end the player's other sessions."""
        credentials = await self._confirm_password(player.user_id, current, client)
        await self.passwords.check_strength(new, credentials.user.username, "new_password")
        change = PasswordChange(
            player.user_id,
            player.session_id,
            credentials.password_hash,
            await self.passwords.hash(new),
        )
        if not await self.sessions.change_password(change):
            raise Conflict("The password was changed meanwhile", code="password_changed")
        _log.info("Password changed", action="password_changed")

    async def search(self, text: str, limit: int) -> list[User]:
        """Find accounts for an operator, the one with exactly this username first."""
        return await self.accounts.search(text, limit)

    async def _confirm_password(
        self, user_id: str, current: str, client: ClientInfo
    ) -> UserCredentials:
        """Return the credentials of a player who knows the password; raises Forbidden."""
        credentials = await self.accounts.find_credentials_by_id(user_id)
        subject = password_change_subject(user_id)
        await self.throttle.admit(subject)
        if not await self.passwords.verify(current, credentials.password_hash):
            self.throttle.record_failure(counted_address(client.ip_address))
            raise Forbidden(
                "current_password is wrong", code="wrong_password", field="current_password"
            )
        await self.throttle.record_success(subject)
        return credentials

    async def find(self, user_id: str) -> User:
        """Return the player's account; raises NotFound."""
        user = await self.accounts.find(user_id)
        if user is None:
            raise NotFound("User does not exist", code="user_not_found")
        return user

    async def change_email(
        self, user_id: str, change: ProfileChange, current: str, client: ClientInfo
    ) -> User:
        """Change the profile with its email address, to which password resets are sent.

        Without the password, a copied access token would be enough to take over the account.
        """
        await self._confirm_password(user_id, current, client)
        return await self.update(user_id, change)

    async def update(self, user_id: str, change: ProfileChange) -> User:
        """Change the profile, also on the leaderboard."""
        user = await self.boards.after_due_seasons(
            partial(self.accounts.update, user_id, change, self.clock.now())
        )
        score = await self.scores.find(user_id)
        if score is not None:
            await self.writer.put_player(score)
        await self.boards.refresh(user_id)
        _log.info("Account changed", action="account_changed")
        return user

    async def history(
        self, user_id: str, limit: int, after: tuple[datetime, str] | None = None
    ) -> ScoreEventPage:
        """Return a page of the player's score changes, newest first."""
        return await self.events.find_by_user(user_id, limit, after)

    async def delete(self, user_id: str) -> None:
        """Delete the account, its scores and its sessions; its score events become anonymous.

        The sessions end with the account, so that the request can be repeated if it fails.
        """
        deleted = await self.boards.after_due_seasons(
            partial(self.accounts.delete, user_id, self.clock.now())
        )
        if deleted is None:
            raise NotFound("User does not exist", code="user_not_found")
        await self.sessions.revoke_tokens(deleted.access_token_hashes)
        # Without Redis, they expire an hour after their token.
        await self.breaker.try_call(partial(self.responses.forget, deleted.action_token_hashes))
        await self.writer.remove_player(user_id)
        await self.boards.remove(user_id, deleted.places, is_deleted=True)
        _log.info("Account deleted", action="account_deleted")
