"""The score poller: requests the scores of all live matches every few seconds.

One instance polls at a time; another takes over when its lease expires. The remaining quota of the
score service limits the rate. A lock protects each match while the instances change (see
`workers`). For a match that has not begun only the fixture is updated, including its toss. While
the score service is unavailable nothing is processed; clients get the last known state, marked as
stale. Replays are processed like matches of the score service.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.records import Fixture, epoch_ms
from tally.cricket.model.results import correct_feed
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.live.metrics import FeedMetrics
from tally.cricket.service.live.pipeline import is_same_poll
from tally.cricket.service.live.reconciliation import Reconciliation
from tally.cricket.service.live.replays import ReplayService
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.ports import LiveScores
from tally.cricket.service.queries.feeds import FeedCache
from tally.errors import RateLimited, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.locks import Lease, LockedElsewhere, LockLost

LIVE_INTERVAL_SECONDS: Final = 2.5
IDLE_INTERVAL_SECONDS: Final = 60.0
# A match that starts within this time is polled like a live one.
STARTING_SOON_MS: Final = 600_000
# The fixture of a live match is marked as live at least this often.
FIXTURE_REFRESH_MS: Final = 10_000
LEASE_NAME: Final = "live-score-poller"
LEASE_SECONDS: Final = 10.0
# An instance that does not poll tries to take over after this many poll intervals.
STANDBY_INTERVALS: Final = 2
# A longer wait for the next poll is split: the lease of a crashed instance must expire soon.
MAX_LEASE_WAIT_SECONDS: Final = 60.0

_log = logs.logger()

OnPoll = Callable[[MatchFeed], Awaitable[object]]


@dataclass(slots=True)
class FixtureUpdate:
    """The last poll that was written to a fixture, and when."""

    feed: MatchFeed
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PollIntervals:
    """Seconds between polls, with and without live matches."""

    live: float = LIVE_INTERVAL_SECONDS
    idle: float = IDLE_INTERVAL_SECONDS


@dataclass(slots=True, kw_only=True)
class ScorePoller:
    """The live score job: polls, and returns when to poll again.

    `enrich` adds reference data to the cached fixture. `notify_toss` is called for a match with a
    toss until the fixture records the notification. The other fields are collaborators.
    """

    scores: LiveScores
    workers: MatchWorkers
    reconciliation: Reconciliation
    fixtures: FixtureRepository
    feeds: FeedCache
    replays: ReplayService
    lease: Lease
    metrics: FeedMetrics
    clock: Clock
    intervals: PollIntervals = PollIntervals()
    notify_toss: Callable[[MatchFeed], Awaitable[None]] | None = None
    enrich: OnPoll | None = None
    _updates: dict[str, FixtureUpdate] = field(default_factory=dict)
    # When the next poll is due, if that is later than the next run.
    _due_at: float = 0.0

    async def run(self) -> float:
        """Poll once, unless another instance does; return the seconds until the next attempt.

        Returns when all matches are processed; their fan-outs may still be running.
        """
        was_polling = self.lease.is_held
        try:
            if was_polling and (wait := self._due_at - self.clock.monotonic()) > 0:
                seconds = wait
            else:
                seconds = await self.lease.run(self._poll if was_polling else self._start)
            seconds = self._split_wait(seconds)
            await self.lease.keep(seconds)
        except (LockedElsewhere, LockLost):
            self._forget_all_but(())
            self.metrics.record_stop()
            if was_polling:
                _log.warning("Another instance polls live scores", action="poller_stopped")
            return STANDBY_INTERVALS * self.intervals.live
        if not was_polling:
            _log.info("This instance polls live scores", action="poller_started")
        return seconds

    def _split_wait(self, seconds: float) -> float:
        """Return the seconds until the next run, and record when a later poll is due."""
        is_split = seconds > MAX_LEASE_WAIT_SECONDS
        self._due_at = self.clock.monotonic() + seconds if is_split else 0.0
        return min(seconds, MAX_LEASE_WAIT_SECONDS)

    async def _start(self) -> float:
        self.metrics.record_start()
        await self.workers.hydrate(fixture.match_id for fixture in await self.fixtures.live())
        return await self._poll()

    async def _poll(self) -> float:
        live = await self.fixtures.live()
        try:
            poll = await self.scores.live()
        except (Unavailable, RateLimited) as error:
            _log.warning("Live score request failed", action="live_scores_failed", error=error)
            await self._process_all(await self.replays.running(live))
            wait = max(self.intervals.live, self.scores.live_interval(), error.retry_after or 0)
            return min(wait, self.intervals.idle) if live else self.intervals.idle
        self.metrics.record_poll(sum(feed.is_live for feed in poll.feeds))
        known = {fixture.match_id: fixture for fixture in live}
        known |= await self.fixtures.get_many(
            feed.match_id
            for feed in poll.feeds
            if feed.status.is_over and feed.match_id not in known
        )
        corrected = (correct_feed(feed, known.get(feed.match_id)) for feed in poll.feeds)
        feeds = [*corrected, *await self.replays.running(live)]
        await self._process_all(feeds)
        await self.reconciliation.run(live, poll.match_ids)
        self._forget_all_but(feeds)
        # A response may lack a live match by mistake.
        is_expected = any(fixture.is_live for fixture in live)
        has_live = any(map(self._is_live, feeds)) or is_expected or self.reconciliation.is_waiting
        interval = self.intervals.live if has_live else self.intervals.idle
        return max(interval, self.scores.live_interval())

    async def _process_all(self, feeds: Iterable[MatchFeed]) -> None:
        results = await asyncio.gather(
            *(self._process(feed) for feed in feeds), return_exceptions=True
        )
        for result in results:
            if isinstance(result, Exception):
                _log.error("Match processing failed", action="match_failed", error=result)
            elif isinstance(result, BaseException):
                raise result

    async def _process(self, feed: MatchFeed) -> None:
        if feed.innings or feed.status.is_over or feed.is_live:
            await self.workers.process(feed)
        await self._update_fixture(feed)

    async def _update_fixture(self, feed: MatchFeed) -> None:
        """Write the status of a match to its fixture, if it changed or a refresh is due."""
        now, last = self.clock.milliseconds(), self._updates.get(feed.match_id)
        has_changed = last is None or _status(last.feed) != _status(feed)
        if last is not None and not has_changed and now - last.at < FIXTURE_REFRESH_MS:
            return
        if not await self.reconciliation.is_accepted(feed):
            return
        if (
            not feed.is_live
            and not feed.status.is_over
            and not is_same_poll(last.feed if last else None, feed)
        ):
            await self.feeds.put(feed)
        fixture: Fixture | None = await self.fixtures.update(
            feed.match_id, updated_at=now, **_fixture_changes(feed, now)
        )
        if fixture is None:
            return  # The fixture is not synced yet: every poll tries again until it is.
        self._updates[feed.match_id] = FixtureUpdate(feed, now)
        if self.enrich is not None:
            await self.enrich(feed)
        if (
            feed.toss is not None
            and fixture.toss_notified_at is None
            and self.notify_toss is not None
        ):
            # In the background: the poll does not wait for a hundred thousand notifications.
            self.workers.run_in_background(f"toss {feed.match_id}", partial(self.notify_toss, feed))

    def _is_live(self, feed: MatchFeed) -> bool:
        if feed.is_live:
            return True
        return (
            not feed.status.is_over
            and feed.status is not MatchStatus.POSTPONED
            and epoch_ms(feed.starts_at) - self.clock.milliseconds() < STARTING_SOON_MS
        )

    def _forget_all_but(self, feeds: Iterable[MatchFeed]) -> None:
        retained = {feed.match_id for feed in feeds}
        for match_id in [match_id for match_id in self._updates if match_id not in retained]:
            del self._updates[match_id]
            self.workers.forget(match_id)


def _fixture_changes(feed: MatchFeed, now: int) -> dict[str, object]:
    changes: dict[str, object] = {
        "status": feed.status,
        "note": feed.note,
        "winner_team_id": feed.winner_team_id,
    }
    if feed.is_live:
        changes |= {"live_updated_at": now, "archived_at": None}
    if feed.toss is not None:
        changes |= {"toss_team_id": feed.toss.team_id, "elected": feed.toss.elected}
    return changes


def _status(feed: MatchFeed) -> tuple[object, ...]:
    return feed.status, feed.note, feed.toss, feed.winner_team_id, feed.is_live
