"""Player accounts: registration, login, score history and deletion."""

from dataclasses import dataclass
from datetime import datetime

from tally.errors import Unauthenticated
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.scoreboard.model import ClientInfo, NewUser, Score, ScoreEventPage, User
from tally.scoreboard.repository.accounts import AccountRepository
from tally.scoreboard.repository.events import EventRepository
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.leaderboard_writer import LeaderboardWriter
from tally.scoreboard.service.passwords import ThreadedPasswordHasher
from tally.scoreboard.service.sessions import PlayerSessions, SessionTokens

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
    passwords: ThreadedPasswordHasher
    sessions: PlayerSessions
    leaderboard: Leaderboard
    writer: LeaderboardWriter
    clock: Clock

    async def register(
        self, registration: AccountRegistration, client: ClientInfo
    ) -> tuple[User, SessionTokens]:
        """Create an account with a score of 0 and open a session."""
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
        await self.writer.add_player(Score(user.user_id, user.username, 0, now))
        _log.info("Account created", action="account_created")
        return user, await self.sessions.open(user, client)

    async def login(
        self, login: str, password: str, client: ClientInfo
    ) -> tuple[User, SessionTokens]:
        """Open a session for the account with this username or email.

        An unknown login and a wrong password raise the same error after the same amount of work.
        """
        credentials = await self.accounts.find_credentials(login)
        password_hash = None if credentials is None else credentials.password_hash
        if not await self.passwords.verify(password, password_hash) or credentials is None:
            raise Unauthenticated("Invalid username or password", code="invalid_credentials")
        user = credentials.user
        logs.bind(user_id=user.user_id)
        if self.passwords.needs_rehash(credentials.password_hash):
            await self.accounts.update_password_hash(
                user.user_id, await self.passwords.hash(password), self.clock.now()
            )
        _log.info("Player logged in", action="player_logged_in")
        return user, await self.sessions.open(user, client)

    async def history(
        self, user_id: str, limit: int, after: tuple[datetime, str] | None = None
    ) -> ScoreEventPage:
        """Return a page of the player's score changes, newest first."""
        return await self.events.find_by_user(user_id, limit, after)

    async def delete(self, user_id: str) -> None:
        """Delete the account, its score and its sessions; its score events become anonymous."""
        standing, _ = await self.leaderboard.standing(user_id)
        await self.sessions.revoke_all(user_id)
        await self.accounts.delete(user_id)
        await self.writer.remove_player(user_id, standing.rank)
        _log.info("Account deleted", action="account_deleted")
