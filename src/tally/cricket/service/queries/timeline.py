"""Reads the scorecard and the timeline of a match, before, during and after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tally.cricket.model.events import KeyEvent
from tally.cricket.model.pipeline import pipeline_state
from tally.cricket.model.records import MatchTimeline
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.timelines import TimelineRepository
from tally.cricket.service.queries.matches import MatchService
from tally.kit.clock import Clock

# As long as the scorecard is cached.
TIMELINE_TTL_SECONDS: Final = 30 * 86_400

_decoder: Final = msgspec.json.Decoder(tuple[KeyEvent, ...])


@dataclass(frozen=True, slots=True)
class TimelineService:
    """The key events of matches, in order of publication."""

    matches: MatchService
    active: ActiveMatchRepository
    timelines: TimelineRepository
    clock: Clock

    async def page(
        self, match_id: str, limit: int, start: int
    ) -> tuple[Sequence[KeyEvent], int | None]:
        """Return up to `limit` events from `start`, and the start of the next page."""
        events = await self.events((await self.matches.fixture(match_id)).match_id)
        end = start + limit
        return events[start:end], end if end < len(events) else None

    async def events(self, match_id: str) -> Sequence[KeyEvent]:
        """Return all events of a match so far."""
        record = await self.active.get(match_id)
        if record is not None and (events := pipeline_state(record).published_events):
            return events
        timeline = await self.timelines.get(match_id, self.clock.seconds())
        return () if timeline is None else _decoder.decode(timeline.content)


def finished_timeline(match_id: str, events: Sequence[KeyEvent], clock: Clock) -> MatchTimeline:
    """Return the timeline of a finished match."""
    return MatchTimeline(
        match_id,
        msgspec.json.encode(events).decode(),
        clock.seconds() + TIMELINE_TTL_SECONDS,
    )
