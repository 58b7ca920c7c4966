"""The score poller: requests the scores of all live matches every few seconds.

Every instance polls, and processes the matches that no other instance processes at the moment (see
`workers`). For a match that has not begun only the fixture is updated, including its toss. While
the score service is unavailable nothing is processed; clients get the last known state, marked as
stale. Replays are processed like matches of the score service.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.records import Fixture, epoch_ms
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.live.pipeline import is_same_poll
from tally.cricket.service.live.reconciliation import Reconciliation
from tally.cricket.service.live.replays import ReplayService
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.ports import LiveScores
from tally.cricket.service.queries.feeds import FeedCache
from tally.errors import RateLimited, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock

LIVE_INTERVAL_SECONDS: Final = 2.5
IDLE_INTERVAL_SECONDS: Final = 60.0
# A match that starts within this time is polled like a live one.
STARTING_SOON_MS: Final = 600_000
# The fixture of a live match is marked as live at least this often.
FIXTURE_REFRESH_MS: Final = 10_000

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    clock: Clock
    intervals: PollIntervals = PollIntervals()
    notify_toss: Callable[[MatchFeed], Awaitable[None]] | None = None
    enrich: OnPoll | None = None
    _updates: dict[str, FixtureUpdate] = field(default_factory=dict)

    async def run(self) -> float:
        """Poll once; return the seconds until the next poll.

        Returns when all matches are processed; their fan-outs may still be running.
        """
        live = await self.fixtures.live()
        try:
            poll = await self.scores.live()
        except (Unavailable, RateLimited) as error:
            _log.warning("Live score request failed", action="live_scores_failed", error=error)
            await self._process_all(await self.replays.running(live))
            if not live:
                return self.intervals.idle
            return max(self.intervals.live, error.retry_after or 0)
        feeds = [*poll.feeds, *await self.replays.running(live)]
        await self._process_all(feeds)
        await self.reconciliation.run(live, poll.match_ids)
        self._forget_all_but(feeds)
        has_live = any(self._is_live(feed) for feed in feeds)
        return self.intervals.live if has_live else self.intervals.idle

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
