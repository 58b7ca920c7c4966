"""Follows matches to their end after the score service no longer lists them, then archives them.

A match may be missing from a response by mistake, and may leave the feed as soon as it is over. So
its state is requested by id until its result is confirmed, and from time to time after that. It is
archived when its result is final, or when it has not been live for ten minutes, such as a Test
overnight. A match that an operator holds is not archived. Expired replays are deleted.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.pipeline import is_accepted, is_result_final
from tally.cricket.model.records import Fixture
from tally.cricket.model.results import FINAL_AFTER_MS, correct_feed
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.ports import LiveScores
from tally.errors import RateLimited, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock

# A match is requested by id this long after the last poll that listed it as live, and then at this
# interval.
GONE_AFTER_MS: Final = 20_000
REQUEST_INTERVAL_MS: Final = 30_000

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Compares the polled fixtures with the matches that the score service lists."""

    scores: LiveScores
    workers: MatchWorkers
    fixtures: FixtureRepository
    matches: ActiveMatchRepository
    clock: Clock
    _next_request: dict[str, int] = field(default_factory=dict)
    _unconfirmed: set[str] = field(default_factory=set)

    async def run(self, polled: Iterable[Fixture], listed: Collection[str]) -> None:
        now = self.clock.milliseconds()
        gone: set[str] = set()
        for fixture in polled:
            idle_ms = now - (fixture.live_updated_at or 0)
            if fixture.replay_of is not None:
                await self._delete_if_expired(fixture, now)
                continue
            if fixture.match_id not in listed and idle_ms >= GONE_AFTER_MS:
                gone.add(fixture.match_id)
                await self._request_if_due(fixture, now)
            if idle_ms >= FINAL_AFTER_MS:
                await self._archive_if_final(fixture.match_id, now)
        for match_id in self._next_request.keys() - gone:
            del self._next_request[match_id]
        self._unconfirmed.intersection_update(gone.union(listed))

    @property
    def is_waiting(self) -> bool:
        """Whether the next poll may confirm the result of a match."""
        return bool(self._unconfirmed)

    async def is_accepted(self, feed: MatchFeed) -> bool:
        """Whether the pipeline agrees with a feed on whether the match is over, and how."""
        if is_accepted(await self.matches.get(feed.match_id), feed):
            self._unconfirmed.discard(feed.match_id)
            return True
        self._unconfirmed.add(feed.match_id)
        return False

    async def _delete_if_expired(self, replay: Fixture, now: int) -> None:
        if replay.replay_expires_at is not None and replay.replay_expires_at <= now:
            await self.fixtures.delete_replay(replay.match_id)
            self.workers.forget(replay.match_id)

    async def _request_if_due(self, fixture: Fixture, now: int) -> None:
        if now < self._next_request.get(fixture.match_id, 0):
            return
        self._next_request[fixture.match_id] = now + REQUEST_INTERVAL_MS
        try:
            received = await self.scores.match(fixture.match_id)
        except (Unavailable, RateLimited) as error:
            _log.warning(
                "State of a match that is no longer listed is not available yet",
                action="match_request_failed",
                match=fixture.match_id,
                error=error,
            )
            return
        if received is not None:
            await self._process(correct_feed(received, fixture), now)
        elif (record := await self.matches.get(fixture.match_id)) is not None:
            # The score service has deleted the match, so nothing will contradict its result.
            await self.matches.renew(fixture.match_id, record.owner, now)

    async def _process(self, feed: MatchFeed, now: int) -> None:
        await self.workers.process(feed, is_final=feed.status.is_over)
        if not await self.is_accepted(feed):
            del self._next_request[feed.match_id]  # The next poll may confirm it.
            return
        changes: dict[str, object] = {
            "status": feed.status,
            "note": feed.note,
            "winner_team_id": feed.winner_team_id,
        }
        # A listing without a running match is wrong; at stumps it is right.
        if feed.is_live and feed.status is not MatchStatus.BREAK:
            changes["live_updated_at"] = now
        await self.fixtures.update(feed.match_id, **changes)

    async def _archive_if_final(self, match_id: str, now: int) -> None:
        fixture = await self.fixtures.get(match_id)
        if fixture is None or fixture.is_held or not fixture.is_polled:
            return
        if now - (fixture.live_updated_at or 0) < FINAL_AFTER_MS:
            return
        if fixture.status.is_over and not is_result_final(await self.matches.get(match_id)):
            return
        if await self.fixtures.archive(match_id, now):
            _log.info("Match archived", action="match_archived", match=match_id)
