"""Bringing Redis up to date: telling it what it missed, building the board where there is none, and healing what has drifted."""

from dataclasses import dataclass
from functools import partial

from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.model import (
    CachedSession,
    DriftReport,
    LeaderboardNotCached,
    RebuildInProgress,
)
from tally.scoreboard.repository.cache import SessionCache
from tally.scoreboard.repository.drift import DriftChecker
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.rebuild import LeaderboardRebuilder
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.broadcaster import LeaderboardBroadcaster
from tally.scoreboard.service.redis_breaker import RedisBreaker

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSync:
    """What jobs do for Redis, and operators too."""

    board: LeaderboardCache
    builder: LeaderboardRebuilder
    check: DriftChecker
    sessions: SessionCache
    backlog: Backlog
    guard: RedisBreaker
    broadcast: LeaderboardBroadcaster
    clock: Clock

    async def run(self) -> None:
        """Tell Redis what it missed, if it is there; this is also the call that finds out that it is back."""
        try:
            is_built = await self.guard.call(self.board.is_built)
            await self._make_void()
            if self.backlog.needs_rebuild or not is_built:
                await self._rebuild_for_all()
            await self._catch_up()
        except Unavailable as away:
            _log.debug(
                "Redis is away; it is told later",
                action="catch_up",
                error=away,
                waiting=len(self.backlog),
            )

    async def _rebuild_for_all(self) -> None:
        try:
            players = await self.rebuild()
        except RebuildInProgress:
            return  # by another process, whose board will have what this one has put since
        _log.info("The board was built anew", action="board_rebuilt", players=players)

    async def rebuild(self) -> int:
        """Build the board anew from PostgreSQL, and say how many players it has."""
        was_due, self.backlog.needs_rebuild = self.backlog.needs_rebuild, False
        try:
            players = await self.guard.call(self.builder.rebuild)
        except BaseException:
            self.backlog.needs_rebuild = self.backlog.needs_rebuild or was_due
            raise
        self.broadcast.notify_change()
        return players

    async def drift(self, *, repair: bool) -> DriftReport:
        """How the board differs from PostgreSQL, set right if so wished."""
        found = await self.guard.call(lambda: self.check.run(repair=repair))
        if found.found:
            _log.warning(
                "The board in Redis had drifted",
                action="board_drift",
                found=found.found,
                repaired=found.repaired,
            )
        if found.repaired:
            self.broadcast.notify_change()
        return found

    async def verify(self) -> None:
        """Find drift and heal it; without a board, one is built."""
        try:
            await self.drift(repair=True)
        except LeaderboardNotCached:
            await self._rebuild_for_all()
        except Unavailable as away:
            _log.warning("The board could not be verified", action="board_verify", error=away)

    async def _make_void(self) -> None:
        now = self.clock.now()
        for token_hash, until in self.backlog.void():
            gone = CachedSession("", "", until, revoked=True)
            if until > now:
                await self.guard.call(partial(self.sessions.revoke, token_hash, gone, now))
            self.backlog.mark_token_revoked(token_hash)

    async def _catch_up(self) -> None:
        if not self.backlog.has_pending_changes():
            return
        for user_id in self.backlog.removed():
            await self.guard.call(partial(self.board.remove, user_id))
            self.backlog.mark_removed(user_id)
        scores = self.backlog.scores()
        for score in scores:
            await self.guard.call(partial(self.board.put, score))
            self.backlog.mark_written(score)
        _log.info("Redis was told what it missed", action="catch_up", scores=len(scores))
        self.broadcast.notify_change()
