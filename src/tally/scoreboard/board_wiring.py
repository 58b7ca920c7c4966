"""Builds the services of named boards."""

from dataclasses import dataclass

from tally.dependencies import Dependencies
from tally.scoreboard.api.events import BoardHubPublisher
from tally.scoreboard.model.boards import Board
from tally.scoreboard.repository.board_scores import BoardScoreRepository
from tally.scoreboard.repository.boards import BoardRepository
from tally.scoreboard.repository.cache import SessionCache
from tally.scoreboard.repository.channel import UpdateChannel
from tally.scoreboard.repository.database import Database
from tally.scoreboard.repository.drift import DriftChecker
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.rebuild import LeaderboardRebuilder
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.board_broadcaster import CHANNEL, BoardBroadcaster, BoardListener
from tally.scoreboard.service.board_jobs import season_name
from tally.scoreboard.service.board_seasons import BoardSeasons, OpenSeason
from tally.scoreboard.service.boards import Boards
from tally.scoreboard.service.cache_sync import CacheSync
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.leaderboard_writer import LeaderboardWriter
from tally.scoreboard.service.redis_breaker import RedisBreaker


@dataclass(frozen=True, slots=True)
class SeasonFactory:
    """Builds what reads and writes the scores of a season."""

    dependencies: Dependencies
    database: Database
    redis: InstrumentedRedis
    breaker: RedisBreaker
    broadcaster: BoardBroadcaster

    def open(self, board: Board) -> OpenSeason:
        backlog, name = Backlog(), season_name(board)
        scores = BoardScoreRepository(self.database, board.board_id, board.season)
        cache = LeaderboardCache(self.redis, name)
        leaderboard = Leaderboard(cache, scores, self.breaker, backlog)
        listener = BoardListener(self.broadcaster, board.board_id)
        writer = LeaderboardWriter(
            cache=cache,
            leaderboard=leaderboard,
            listener=listener,
            backlog=backlog,
            breaker=self.breaker,
        )
        sync = CacheSync(
            cache=cache,
            rebuilder=LeaderboardRebuilder(self.redis, scores, name),
            drift_checker=DriftChecker(cache, scores),
            session_cache=SessionCache(self.redis),
            backlog=backlog,
            breaker=self.breaker,
            listener=listener,
            clock=self.dependencies.clock,
        )
        return OpenSeason(board, leaderboard, writer, sync)


def build_boards(
    dependencies: Dependencies,
    database: Database,
    redis: InstrumentedRedis,
    breaker: RedisBreaker,
) -> Boards:
    """Return the services of boards, and connect their broadcaster to them."""
    clock, repository = dependencies.clock, BoardRepository(database)
    broadcaster = BoardBroadcaster(
        UpdateChannel(redis, clock, CHANNEL), breaker, BoardHubPublisher(dependencies.hub), clock
    )
    factory = SeasonFactory(dependencies, database, redis, breaker, broadcaster)
    boards = Boards(
        repository, database, BoardSeasons(repository, factory.open, broadcaster, clock)
    )
    broadcaster.read_top = boards.top
    return boards
