"""A virtual player: plays games, redeems action tokens and sometimes replays or cheats."""

import random
import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.retry import RetryPolicy
from tally.sim.http_client import ServerRejection
from tally.sim.players.scoreboard_client import (
    PlayerAccount,
    PlayerTokens,
    ScoreboardClient,
    ScoreUpdate,
)

T = TypeVar("T")

PLAYER_RETRY_POLICY: Final = RetryPolicy(attempts=100, base=0.2, cap=10, deadline=300)
GAMES: Final = ("chess", "kart", "maze", "tetra", "quiz")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerBehaviour:
    """The behaviour of players. Times are in seconds; probabilities are per game."""

    interval: float = 8.0
    replay_probability: float = 0.1
    cheat_probability: float = 0.05
    boards: tuple[str, ...] = ("global",)
    retry_policy: RetryPolicy = PLAYER_RETRY_POLICY


@dataclass(slots=True)
class VirtualPlayer:
    """A player with credentials and an IP address.

    The account, the connection and the game state of one player, hence more than eight fields.
    """

    username: str
    password: str
    address: str
    scoreboard: ScoreboardClient
    clock: Clock
    rng: random.Random
    behaviour: PlayerBehaviour
    account: PlayerAccount | None = None
    tokens: PlayerTokens | None = None
    score: int = 0
    rank: int = 0

    async def run(self) -> None:
        """Register and play until cancelled."""
        await self.register()
        await self.clock.sleep(self.rng.uniform(0, self.behaviour.interval))
        while True:
            await self.play()
            await self.clock.sleep(self.behaviour.interval * self.rng.uniform(0.75, 1.5))

    async def register(self) -> None:
        session = await self._with_retries(
            lambda: self.scoreboard.register(self.username, self.password, self.address)
        )
        self.account, self.tokens = session.user, session.tokens

    async def play(self) -> None:
        """Play one game; sometimes replay the token or try a tampered one."""
        if self.account is None:
            return
        user_id, action_id = self.account.user_id, f"{self.rng.choice(GAMES)}-{new_uuid()}"
        max_score = self.rng.randint(10, 500)
        points = self.rng.randint(1, max_score)
        metadata = {
            "level": self.rng.randint(1, 50),
            "duration_ms": self.rng.randint(5_000, 300_000),
        }
        token = await self._with_retries(
            lambda: self.scoreboard.complete_action(
                action_id, user_id, max_score, metadata, self.behaviour.boards
            )
        )
        if self.rng.random() < self.behaviour.cheat_probability:
            await self._cheat(token, max_score)
        update = await self._redeem(token, points)
        self.score, self.rank = update.new_score, update.rank
        stats = self.scoreboard.stats
        stats.games += 1
        stats.points += update.score_added
        if self.rng.random() < self.behaviour.replay_probability:
            replay = await self._redeem(token, points)
            stats.replays += 1
            stats.violations += replay != update

    async def _cheat(self, token: str, max_score: int) -> None:
        """Send a request that must be rejected: a tampered token or too many points."""
        position = self.rng.randrange(len(token))
        letter = self.rng.choice([char for char in string.ascii_letters if char != token[position]])
        tampered = token[:position] + letter + token[position + 1 :]
        attempts = ((tampered, 1), (token, min(max_score + 1, 10_000)))
        cheat_token, points = self.rng.choice(attempts)
        stats = self.scoreboard.stats
        stats.cheats += 1
        try:
            await self._redeem(cheat_token, points)
        except ServerRejection:
            return
        stats.violations += 1

    async def _redeem(self, token: str, points: int) -> ScoreUpdate:
        async def attempt() -> ScoreUpdate:
            try:
                return await self.scoreboard.update_score(self._access_token(), token, points)
            except ServerRejection as error:
                if error.code != "token_expired" or self.tokens is None:
                    raise
            self.tokens = await self.scoreboard.refresh(self.tokens.refresh_token, self.address)
            return await self.scoreboard.update_score(self._access_token(), token, points)

        return await self._with_retries(attempt)

    def _access_token(self) -> str:
        return "" if self.tokens is None else self.tokens.access_token

    async def _with_retries(self, call: Callable[[], Awaitable[T]]) -> T:
        """Retry transient errors; action tokens make this idempotent."""
        return await self.behaviour.retry_policy.call(call, self.clock)
