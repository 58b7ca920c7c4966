"""Keeps named boards in Redis complete and correct, and drops those of old seasons."""

from dataclasses import dataclass, field
from typing import Final

from tally.errors import Unavailable
from tally.kit import logs
from tally.scoreboard.model.boards import Board
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.service.board_seasons import BoardSeasons, OpenSeason
from tally.scoreboard.service.redis_breaker import RedisBreaker

# The names of the leaderboards that Redis may have, so that those of old seasons are found.
CACHED_SEASONS: Final = "leaderboard:seasons"

_log = logs.logger()


def season_name(board: Board) -> str:
    """Return the name of the sorted set of a board's open season."""
    return f"leaderboard:{board.board_id}:{board.season}"


@dataclass(frozen=True, slots=True)
class BoardMaintenance:
    """The work of the jobs on named boards.

    Only `catch_up` builds copies. `names` are those that it may have built in its last run, maybe
    after another process had closed the season and dropped the copy.
    """

    seasons: BoardSeasons
    redis: InstrumentedRedis
    breaker: RedisBreaker
    names: set[str] = field(default_factory=set)

    async def catch_up(self) -> None:
        """Close seasons that are over, write queued changes, and build missing copies."""
        await self.seasons.close_all_due()
        try:
            await self.breaker.call(self._record_and_drop)
        except Unavailable as error:
            _log.debug("Seasons remain in Redis", action="season_drop_deferred", error=error)
            return
        for season in self.seasons.known():
            await season.sync.catch_up()

    async def verify(self) -> None:
        """Compare every board in Redis with PostgreSQL, and repair differences."""
        for season in self.seasons.known():
            await season.sync.repair_drift()

    async def _record_and_drop(self) -> None:
        """Record the seasons before they are built, and drop those that have closed."""
        known = self.seasons.known()
        names = {season_name(season.board) for season in known}
        async with self.redis.use("season_names") as client:
            if names:
                await client.sadd(CACHED_SEASONS, *sorted(names))
            recorded = await client.smembers(CACHED_SEASONS)
        for name in sorted(({text.decode() for text in recorded} | self.names) - names):
            if _is_old(name, known):
                await LeaderboardCache(self.redis, name).drop()
                async with self.redis.use("season_names") as client:
                    await client.srem(CACHED_SEASONS, name)
        self.names.clear()
        self.names.update(names)


def _is_old(name: str, known: list[OpenSeason]) -> bool:
    """Return whether a later season of the board is open; another process may be ahead."""
    board_id, _, number = name.removeprefix("leaderboard:").rpartition(":")
    return any(
        season.board.board_id == board_id and int(number) < season.board.season for season in known
    )
