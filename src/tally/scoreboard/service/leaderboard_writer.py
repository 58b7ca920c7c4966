"""Writes score changes through to Redis, queues them while Redis is unavailable, and notifies."""

from dataclasses import dataclass
from functools import partial

from tally.errors import Unavailable
from tally.scoreboard.model.scores import MAX_SCORE, Score
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.ports import ChangeListener
from tally.scoreboard.service.redis_breaker import RedisBreaker


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardWriter:
    """Applies to the cached leaderboard what PostgreSQL has committed."""

    cache: LeaderboardCache
    leaderboard: Leaderboard
    listener: ChangeListener
    backlog: Backlog
    breaker: RedisBreaker

    async def put_score(self, score: Score) -> int:
        """Write the score and return the player's rank, from PostgreSQL if Redis has none."""
        try:
            rank = await self.breaker.call(partial(self.cache.put, score))
        except Unavailable:
            self.backlog.add_score(score)
            rank = None
        if rank is None:
            standing, _ = await self.leaderboard.standing(score.user_id)
            rank = standing.rank
        self.listener.notify_rank(rank)
        return rank

    async def put_player(self, score: Score) -> None:
        """Write the score of a player who is new, changed or unbanned."""
        if not await self.breaker.try_call(partial(self.cache.put, score)):
            self.backlog.add_score(score)
        self.listener.notify_change()

    async def remove_player(self, user_id: str, revision: int = MAX_SCORE) -> None:
        """Remove a deleted player, or one who was banned after this revision of the score."""
        if not await self.breaker.try_call(partial(self.cache.remove, user_id, revision)):
            self.backlog.add_removed(user_id, revision)
        self.listener.notify_change()
