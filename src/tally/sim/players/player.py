"""One player: plays level after level, trades what the game server vouches for, and now and then tries more than is allowed."""

import random
import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.retry import RetryPolicy
from tally.sim.http_client import RequestRejected
from tally.sim.players.scoreboard_client import (
    PlayerAccount,
    ScoreboardClient,
    ScoreUpdate,
    SessionTokens,
)

T = TypeVar("T")

PLAYER_RETRY_POLICY: Final = RetryPolicy(attempts=100, base=0.2, cap=10, deadline=300)
GAMES: Final = ("chess", "kart", "maze", "tetra", "quiz")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerBehaviour:
    """How players live. Times are in seconds, shares are of all games played."""

    interval: float = 8.0
    replays: float = 0.1
    cheats: float = 0.05
    retry_policy: RetryPolicy = PLAYER_RETRY_POLICY


@dataclass(slots=True)
class VirtualPlayer:
    """Somebody with a name, a password, an address and some skill."""

    username: str
    password: str
    address: str
    server: ScoreboardClient
    clock: Clock
    rng: random.Random
    behaviour: PlayerBehaviour
    user: PlayerAccount | None = None
    tokens: SessionTokens | None = None
    score: int = 0
    rank: int = 0

    async def live(self) -> None:
        """Sign up, and play for ever."""
        await self.join()
        await self.clock.sleep(self.rng.uniform(0, self.behaviour.interval))
        while True:
            await self.play()
            await self.clock.sleep(self.behaviour.interval * self.rng.uniform(0.75, 1.5))

    async def join(self) -> None:
        signed_in = await self._patiently(
            lambda: self.server.sign_up(self.username, self.password, self.address)
        )
        self.user, self.tokens = signed_in.user, signed_in.tokens

    async def play(self) -> None:
        """One game: the points, and sometimes the same token again, or one that was tampered with."""
        if self.user is None:
            return
        user_id, action_id = self.user.user_id, f"{self.rng.choice(GAMES)}-{new_uuid()}"
        worth = self.rng.randint(10, 500)
        won = self.rng.randint(1, worth)
        metadata = {
            "level": self.rng.randint(1, 50),
            "duration_ms": self.rng.randint(5_000, 300_000),
        }
        token = await self._patiently(
            lambda: self.server.vouch(action_id, user_id, worth, metadata)
        )
        if self.rng.random() < self.behaviour.cheats:
            await self._cheat(token, worth)
        traded = await self._trade(token, won)
        self.score, self.rank = traded.new_score, traded.rank
        stats = self.server.stats
        stats.trades += 1
        stats.points += traded.score_added
        if self.rng.random() < self.behaviour.replays:
            again = await self._trade(token, won)
            stats.replays += 1
            stats.broken += again != traded

    async def _cheat(self, token: str, worth: int) -> None:
        """What must be refused: a letter changed, or more points than the action is worth."""
        place = self.rng.randrange(len(token))
        letter = self.rng.choice([each for each in string.ascii_letters if each != token[place]])
        tampered = token[:place] + letter + token[place + 1 :]
        attempts = ((tampered, 1), (token, min(worth + 1, 10_000)))
        text, points = self.rng.choice(attempts)
        stats = self.server.stats
        stats.cheats += 1
        try:
            await self._trade(text, points)
        except RequestRejected:
            return
        stats.broken += 1

    async def _trade(self, token: str, points: int) -> ScoreUpdate:
        async def once() -> ScoreUpdate:
            try:
                return await self.server.trade(self._access_token(), token, points)
            except RequestRejected as refused:
                if refused.code != "TOKEN_EXPIRED" or self.tokens is None:
                    raise
            self.tokens = await self.server.refresh(self.tokens.refresh_token, self.address)
            return await self.server.trade(self._access_token(), token, points)

        return await self._patiently(once)

    def _access_token(self) -> str:
        return "" if self.tokens is None else self.tokens.access_token

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again for as long as the server says that it may work later; a token makes that harmless."""
        return await self.behaviour.retry_policy.call(ask, self.clock)
