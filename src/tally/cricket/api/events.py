"""SSE: the display state of a match (a state) and its key events, from the change logs.

Key events are replayed exactly. The display state is sent on every connect and after every change.
The pipeline persists key events before the display state that they lead to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tally.cricket.model.events import KeyEvent
from tally.cricket.service.queries.display import DisplayService
from tally.cricket.service.queries.timeline import TimelineService
from tally.instance.change_feed import Change, ChangeFeed, ChangeLog, EventSource
from tally.kit.clock import Clock
from tally.kit.event_stream import ReadState
from tally.kit.hub import Hub, encode_event

EVENT: Final = "event"
DISPLAY: Final = "display"


@dataclass(frozen=True, slots=True)
class MatchLogs:
    """The change logs behind the streams, and what their changes mean."""

    key_events: ChangeLog
    displays: ChangeLog
    decode_events: Callable[[Change], Sequence[KeyEvent]]
    decode_display: Callable[[Change], tuple[str, str] | None]


class MatchStreams:
    """Builds streams of matches."""

    def __init__(
        self,
        logs: MatchLogs,
        displays: DisplayService,
        timelines: TimelineService,
        hub: Hub,
        clock: Clock,
    ) -> None:
        self._logs = logs
        self._displays = displays
        self._timelines = timelines
        self._hub = hub
        self._feeds = (
            ChangeFeed(logs.key_events, self._publish_events, hub, clock),
            ChangeFeed(logs.displays, self._publish_display, hub, clock),
        )

    def source(self, match_id: str, view: str, display: ReadState) -> EventSource:
        """Return the stream of a match; its snapshot contains all key events so far."""

        async def snapshot() -> object:
            return {"matchId": match_id, "events": await self._timelines.events(match_id)}

        return EventSource(
            topic=f"{_prefix(match_id)}{view}",
            feeds=self._feeds,
            log=self._logs.key_events,
            partition=match_id,
            encode=self._encode,
            snapshot=snapshot,
            state=display,
        )

    async def _publish_events(self, change: Change) -> None:
        for topic in self._hub.active_topics(_prefix(change.key["matchId"])):
            self._hub.publish(topic, change.sequence, self._encode(change))

    async def _publish_display(self, change: Change) -> None:
        key = self._logs.decode_display(change)
        if key is None or not self._hub.is_active(topic := f"{_prefix(key[0])}{key[1]}"):
            return
        content = await self._displays.cached_content(*key)
        if content is not None:
            self._hub.publish_state(
                topic, DISPLAY, {"matchId": key[0], "teamId": key[1], "display": content}
            )

    def _encode(self, change: Change) -> bytes:
        """Encode the events of a change; the id is complete with the last one."""
        events = self._logs.decode_events(change)
        return b"".join(
            encode_event(EVENT, event, change.position if number == len(events) else None)
            for number, event in enumerate(events, start=1)
        )


def _prefix(match_id: str) -> str:
    return f"cricket:{match_id}:"
