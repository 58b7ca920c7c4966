"""The score poller: one look at all live matches, every few seconds while anything is live.

Every instance polls, and takes of what it finds the matches that nobody else sees to at the moment
(see `workers`). A match that has not begun is only noted, with its toss. While the score service is
away nothing is taken: what was last known is still served, and marked as old by those who serve it.
Replays are taken as if the service told of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.records import Fixture, epoch_ms
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.live.pipeline import says_the_same
from tally.cricket.service.live.reconciliation import Reconciliation
from tally.cricket.service.live.replays import ReplayService
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.ports import LiveScores
from tally.cricket.service.queries.feeds import FeedCache
from tally.errors import RateLimited, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock

LIVE_SECONDS: Final = 2.5
IDLE_SECONDS: Final = 60.0
# A match that is about to start is as good as live.
SOON_MS: Final = 600_000
# The fixture says that it is live at least this often.
MARKED_MS: Final = 10_000

_log = logs.logger()


@dataclass(slots=True)
class Noted:
    """What a fixture was last told of its match."""

    feed: MatchFeed
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveScore:
    """The job: polls, and says when it wants to again.

    `tossed` hears of a toss until the fixture has it told.

    `enrich` adds to the cached fixture what our own tables know of the match.
    """

    scores: LiveScores
    workers: MatchWorkers
    reconciliation: Reconciliation
    fixtures: FixtureRepository
    feeds: FeedCache
    replays: ReplayService
    clock: Clock
    live_seconds: float = LIVE_SECONDS
    idle_seconds: float = IDLE_SECONDS
    tossed: Callable[[MatchFeed], Awaitable[None]] | None = None
    enrich: Callable[[MatchFeed], Awaitable[object]] | None = None
    _noted: dict[str, Noted] = field(default_factory=dict)

    async def run(self) -> float:
        """One poll; the seconds until the next one.

        Returns when all matches have been taken, not when all devices are told.
        """
        live = await self.fixtures.live()
        try:
            poll = await self.scores.live()
        except (Unavailable, RateLimited) as trouble:
            _log.warning("No scores", action="live_scores", error=trouble)
            await self._see(await self.replays.running(live))
            return max(self.live_seconds, trouble.retry_after or 0) if live else self.idle_seconds
        feeds = [*poll.feeds, *await self.replays.running(live)]
        await self._see(feeds)
        await self.reconciliation.run(live, poll.match_ids)
        self._forget_all_but(feeds)
        return (
            self.live_seconds if any(self._is_live(feed) for feed in feeds) else self.idle_seconds
        )

    async def _see(self, feeds: Iterable[MatchFeed]) -> None:
        results = await asyncio.gather(*(self._one(feed) for feed in feeds), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                _log.error("A match could not be seen to", action="live_scores", error=result)
            elif isinstance(result, BaseException):
                raise result

    async def _one(self, feed: MatchFeed) -> None:
        if feed.innings or feed.status.is_over or feed.is_live:
            await self.workers.take(feed)
        await self._note(feed)

    async def _note(self, feed: MatchFeed) -> None:
        """Tell the fixture how its match stands, and that it is live."""
        now, noted = self.clock.milliseconds(), self._noted.get(feed.match_id)
        has_changed = noted is None or _standing(noted.feed) != _standing(feed)
        if noted is not None and not has_changed and now - noted.at < MARKED_MS:
            return
        if (
            not feed.is_live
            and not feed.status.is_over
            and not says_the_same(noted.feed if noted else None, feed)
        ):
            await self.feeds.put(feed)
        changes: dict[str, object] = {
            "status": feed.status,
            "note": feed.note,
            "winner_team_id": feed.winner_team_id,
        }
        if feed.is_live:
            changes |= {"live_updated_at": now, "archived_at": None}
        if feed.toss is not None:
            changes |= {"toss_team_id": feed.toss.team_id, "elected": feed.toss.elected}
        fixture: Fixture | None = await self.fixtures.update(
            feed.match_id, updated_at=now, **changes
        )
        if fixture is None:
            return  # it is not synced yet: until it is, every poll tells it anew
        self._noted[feed.match_id] = Noted(feed, now)
        if self.enrich is not None:
            await self.enrich(feed)
        if feed.toss is not None and fixture.toss_notified_at is None and self.tossed is not None:
            # Beside the poll, which does not wait until a hundred thousand people have heard of the
            # toss.
            self.workers.beside(f"toss {feed.match_id}", partial(self.tossed, feed))

    def _is_live(self, feed: MatchFeed) -> bool:
        if feed.is_live:
            return True
        return (
            not feed.status.is_over
            and epoch_ms(feed.starts_at) - self.clock.milliseconds() < SOON_MS
        )

    def _forget_all_but(self, feeds: Iterable[MatchFeed]) -> None:
        kept = {feed.match_id for feed in feeds}
        for match_id in [match_id for match_id in self._noted if match_id not in kept]:
            del self._noted[match_id]
            self.workers.forget(match_id)


def _standing(feed: MatchFeed) -> tuple[object, ...]:
    return feed.status, feed.note, feed.toss, feed.winner_team_id, feed.is_live
