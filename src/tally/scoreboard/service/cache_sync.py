"""Keeps Redis consistent with PostgreSQL: writes queued changes, rebuilds and repairs drift."""

from dataclasses import dataclass
from functools import partial

from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.model.accounts import CachedSession
from tally.scoreboard.model.errors import LeaderboardNotCached, RebuildInProgress
from tally.scoreboard.model.statistics import DriftReport
from tally.scoreboard.repository.cache import SessionCache
from tally.scoreboard.repository.drift import DriftChecker
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.rebuild import LeaderboardRebuilder
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.ports import ChangeListener
from tally.scoreboard.service.redis_breaker import RedisBreaker

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSync:
    """Maintains the data in Redis, for the jobs and for operators."""

    cache: LeaderboardCache
    rebuilder: LeaderboardRebuilder
    drift_checker: DriftChecker
    session_cache: SessionCache
    backlog: Backlog
    breaker: RedisBreaker
    listener: ChangeListener
    clock: Clock

    async def catch_up(self) -> None:
        """Write queued changes and rebuild if needed; also probes whether Redis has recovered."""
        try:
            is_built = await self.breaker.call(self.cache.is_built)
            await self._revoke_queued_tokens()
            if self.backlog.needs_rebuild or not is_built:
                await self._rebuild_unless_in_progress()
            await self._write_queued_changes()
        except Unavailable as error:
            _log.debug(
                "Redis unavailable; changes remain queued",
                action="catch_up_deferred",
                error=error,
                queued=len(self.backlog),
            )

    async def _rebuild_unless_in_progress(self) -> None:
        try:
            players = await self.rebuild()
        except RebuildInProgress:
            return  # the other process' leaderboard includes the changes of this one
        _log.info("Leaderboard rebuilt", action="leaderboard_rebuilt", players=players)

    async def rebuild(self) -> int:
        """Rebuild the leaderboard from PostgreSQL and return the number of players."""
        was_needed, self.backlog.needs_rebuild = self.backlog.needs_rebuild, False
        try:
            players = await self.breaker.call(self.rebuilder.rebuild)
        except BaseException:
            self.backlog.needs_rebuild = self.backlog.needs_rebuild or was_needed
            raise
        self.listener.notify_change()
        return players

    async def check_drift(self, *, repair: bool) -> DriftReport:
        """Compare the leaderboard in Redis with PostgreSQL, and optionally repair it."""
        report = await self.breaker.call(lambda: self.drift_checker.run(repair=repair))
        if report.differences:
            _log.warning(
                "Leaderboard drift detected",
                action="leaderboard_drift_detected",
                differences=report.differences,
                repaired=report.repaired,
            )
        if report.repaired:
            self.listener.notify_change()
        return report

    async def verify(self) -> None:
        """Repair drift, or build the leaderboard if Redis has none."""
        if not await self.repair_drift():
            await self._rebuild_unless_in_progress()

    async def repair_drift(self) -> bool:
        """Repair drift; return False if Redis has no complete leaderboard."""
        try:
            await self.check_drift(repair=True)
        except LeaderboardNotCached:
            return False
        except Unavailable as error:
            _log.warning(
                "Leaderboard verification failed",
                action="leaderboard_verification_failed",
                error=error,
            )
        return True

    async def _revoke_queued_tokens(self) -> None:
        now = self.clock.now()
        for token_hash, until in self.backlog.revoked_tokens():
            revoked = CachedSession("", "", until, is_revoked=True)
            if until > now:
                await self.breaker.call(
                    partial(self.session_cache.revoke, token_hash, revoked, now)
                )
            self.backlog.mark_token_revoked(token_hash)

    async def _write_queued_changes(self) -> None:
        if not self.backlog.has_pending_changes():
            return
        for user_id, revision in self.backlog.removed():
            await self.breaker.call(partial(self.cache.remove, user_id, revision))
            self.backlog.mark_removed(user_id, revision)
        scores = self.backlog.scores()
        for score in scores:
            await self.breaker.call(partial(self.cache.put, score))
            self.backlog.mark_written(score)
        _log.info("Queued changes written to Redis", action="backlog_written", scores=len(scores))
        self.listener.notify_change()
