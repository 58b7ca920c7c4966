"""All services of the backend in one object, for the API, the jobs and the console."""

from dataclasses import dataclass

from tally.scoreboard.repository.rank_bands import RankBandRepository
from tally.scoreboard.service.accounts import PlayerAccounts
from tally.scoreboard.service.actions import Actions
from tally.scoreboard.service.admission import RequestAdmission
from tally.scoreboard.service.board_jobs import BoardMaintenance
from tally.scoreboard.service.boards import Boards
from tally.scoreboard.service.broadcaster import LeaderboardBroadcaster
from tally.scoreboard.service.cache_sync import CacheSync
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.moderation import Moderation
from tally.scoreboard.service.password_resets import PasswordResets
from tally.scoreboard.service.rate_limits import SlidingWindowLimiter
from tally.scoreboard.service.retention import Retention
from tally.scoreboard.service.scores import ScoreUpdates
from tally.scoreboard.service.server_stats import ServerStats
from tally.scoreboard.service.sessions import PlayerSessions


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreboardServices:
    """All services of the backend: one field per use case, so it has more than eight."""

    accounts: PlayerAccounts
    sessions: PlayerSessions
    actions: Actions
    scores: ScoreUpdates
    leaderboard: Leaderboard
    broadcaster: LeaderboardBroadcaster
    cache_sync: CacheSync
    rate_limiter: SlidingWindowLimiter
    admission: RequestAdmission
    retention: Retention
    server_stats: ServerStats
    ranks: RankBandRepository
    moderation: Moderation
    boards: Boards
    board_maintenance: BoardMaintenance
    password_resets: PasswordResets

    async def maintain_ranks(self) -> None:
        """Count recent score changes in the bands of ranks."""
        await self.ranks.maintain()
