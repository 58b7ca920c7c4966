"""Replays a recorded match as a live one, so that an operator can watch the pipeline process it.

A replay is a separate fixture that is live immediately. The poller reads its feed from here, like
that of other matches from the score service. The reconciliation deletes expired replays.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from tally.cricket.model.ball_log import decode_ball_log
from tally.cricket.model.errors import match_not_found, no_recording
from tally.cricket.model.feed import Ball, MatchFeed, MatchStatus
from tally.cricket.model.records import Fixture, epoch_ms, format_start_time
from tally.cricket.model.replay import balls_at, feed_at, replay_seconds
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.processing import ProcessingRepository
from tally.cricket.service.queries.feeds import FeedCache
from tally.kit.clock import Clock
from tally.kit.ids import SortableIds
from tally.kit.ttl_cache import TTLCache

RECORDING_CACHE_SECONDS: Final = 60.0


class Recording(msgspec.Struct, frozen=True):
    """The final state of a match and all its balls."""

    feed: MatchFeed
    balls: tuple[Ball, ...]


@dataclass(frozen=True, slots=True)
class ReplayService:
    """Starts replays and computes their current feeds; `recordings` caches what is replayed."""

    fixtures: FixtureRepository
    processing: ProcessingRepository
    feeds: FeedCache
    clock: Clock
    ids: SortableIds
    recordings: TTLCache[str, Recording]

    async def start(self, match_id: str, speed: int, keep_minutes: int) -> Fixture:
        """Create the fixture of a replay, which is live from now on.

        It is deleted `keep_minutes` after its end.
        """
        source = await self.fixtures.get(match_id)
        if source is None or source.replay_of is not None:
            raise match_not_found()
        recording = await self._recording(match_id)
        if recording is None:
            raise no_recording()
        now = self.clock.milliseconds()
        ends_at = now + round(1000 * replay_seconds(len(recording.balls), speed))
        replay = replace(
            source,
            match_id=f"replay-{self.ids.next()}",
            start_time=format_start_time(now),
            status=MatchStatus.IN_PLAY,
            note="",
            winner_team_id=None,
            live_updated_at=now,
            archived_at=None,
            toss_notified_at=now,
            updated_at=now,
            replay_of=match_id,
            replay_expires_at=ends_at + keep_minutes * 60_000,
            replay_speed=speed,
        )
        await self.fixtures.write_batch([replay])
        return replay

    async def running(self, live: Iterable[Fixture]) -> list[MatchFeed]:
        """Return the current feed of each replay among the live fixtures."""
        feeds = [
            await self._current_feed(fixture) for fixture in live if fixture.replay_of is not None
        ]
        return [feed for feed in feeds if feed is not None]

    async def _current_feed(self, fixture: Fixture) -> MatchFeed | None:
        recording = await self._recording(fixture.replay_of or "")
        if recording is None:
            return None
        now = self.clock.milliseconds()
        seconds = (now - epoch_ms(fixture.start_time)) / 1000
        count = balls_at(seconds, fixture.replay_speed or 1, len(recording.balls))
        return feed_at(recording.feed, recording.balls, count, fixture.match_id, now)

    async def _recording(self, match_id: str) -> Recording | None:
        recording = self.recordings.get(match_id)
        if recording is None:
            cached = await self.feeds.get(match_id)
            state = await self.processing.get(match_id, self.clock.seconds())
            balls = decode_ball_log(state.content).balls if state is not None else ()
            if cached is None or not cached.feed.status.is_over or not balls:
                return None
            recording = Recording(cached.feed, balls)
            self.recordings.put(match_id, recording)
        return recording
