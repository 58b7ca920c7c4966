"""PlayerAccounts: signing up, signing in, looking at one's history, and leaving for good."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from tally.errors import Unauthenticated, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.scoreboard.model import NewUser, Score, ScoreEventPage, User
from tally.scoreboard.repository.accounts import AccountRepository
from tally.scoreboard.repository.events import EventRepository
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.broadcaster import LeaderboardBroadcaster
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.passwords import ThreadedPasswordHasher
from tally.scoreboard.service.redis_breaker import RedisBreaker
from tally.scoreboard.service.sessions import (
    AuthenticatedPlayer,
    Client,
    PlayerSessions,
    SessionTokens,
)

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class AccountRegistration:
    """What a new player says of themselves."""

    username: str
    email: str
    password: str
    avatar_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerAccounts:
    """Makes accounts, opens them and deletes them."""

    accounts: AccountRepository
    events: EventRepository
    board: LeaderboardCache
    passwords: ThreadedPasswordHasher
    sessions: PlayerSessions
    leaderboard: Leaderboard
    broadcast: LeaderboardBroadcaster
    backlog: Backlog
    guard: RedisBreaker
    clock: Clock

    async def register(
        self, asked: AccountRegistration, client: Client
    ) -> tuple[User, SessionTokens]:
        """The new account, signed in, at the end of the board."""
        password_hash, now = await self.passwords.hash(asked.password), self.clock.now()
        account = NewUser(new_uuid(), asked.username, asked.email, password_hash, asked.avatar_url)
        user = await self.accounts.create(account, now)
        logs.bind(user_id=user.user_id)
        score = Score(user.user_id, user.username, 0, now)
        try:
            self.broadcast.notify_rank(await self.guard.call(partial(self.board.put, score)))
        except Unavailable:
            self.backlog.add_score(score)
            self.broadcast.notify_change()
        _log.info("Account made", action="register")
        return user, await self.sessions.open(user, client)

    async def login(self, login: str, password: str, client: Client) -> tuple[User, SessionTokens]:
        """The account of that name or address, signed in.

        What was wrong is not told, and all of it takes as long.
        """
        found = await self.accounts.credentials(login)
        password_hash = None if found is None else found.password_hash
        if not await self.passwords.verify(password, password_hash) or found is None:
            raise Unauthenticated("The name or the password is wrong", code="invalid_credentials")
        user = found.user
        logs.bind(user_id=user.user_id)
        if self.passwords.needs_rehash(found.password_hash):
            await self.accounts.change_password_hash(
                user.user_id, await self.passwords.hash(password), self.clock.now()
            )
        _log.info("Signed in", action="login")
        return user, await self.sessions.open(user, client)

    async def history(
        self, identity: AuthenticatedPlayer, limit: int, after: tuple[datetime, str] | None
    ) -> ScoreEventPage:
        """A page of the player's score changes, newest first."""
        return await self.events.of_user(identity.user_id, limit, after)

    async def delete(self, identity: AuthenticatedPlayer) -> None:
        """Delete the account with all that is the player's; the history of scores stays, without a name."""
        user_id = identity.user_id
        standing, _ = await self.leaderboard.place(user_id)
        await self.sessions.end_all(user_id)
        await self.accounts.delete(user_id)
        if not await self.guard.tell(partial(self.board.remove, user_id)):
            self.backlog.add_removed(user_id)
        self.broadcast.notify_rank(standing.rank)
        _log.info("Account deleted", action="user_delete")
