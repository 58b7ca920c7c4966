"""One step of a live match: what was known, and what a poll says, give what is known now and what people should see.

    poll → book → events → what is untold → cooldown and staleness → the one event to show → a display state for each view

`Memory` is all that is kept between two polls besides the balls. The step is pure: from the same
memory and poll comes the same result, so one that was lost in a crash is simply taken again. The
timestamp of a state is decided here and kept with it: it goes up with every change of what people
see and never back, whichever instance takes the step and whatever its clock says.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from tally.cricket.model.ball_log import PATIENCE, BallLog, merge_poll
from tally.cricket.model.cooldowns import EventContext, select_event, update_cooldowns
from tally.cricket.model.display import build_display
from tally.cricket.model.display_content import display_content
from tally.cricket.model.events import EventKind, KeyEvent
from tally.cricket.model.feed import Ball, MatchFeed
from tally.cricket.model.hashing import content_hash
from tally.cricket.model.history import find_new_events, match_events
from tally.cricket.model.laws import balls_in, current_innings
from tally.cricket.model.records import NEUTRAL, ActiveMatch

# An event stays on the screen for this long, or until something else is to be shown.
EVENT_DISPLAY_MS: Final = 15_000
LAST_BALLS: Final = 30


# Whether the match is over, and the number, balls, runs and wickets of the innings that is played.
Progress: TypeAlias = tuple[bool, int, int, int, int]


class PipelineState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a match between two polls.

    `told` are its events in the order in which they were told.
    """

    published_events: tuple[KeyEvent, ...] = msgspec.field(default=(), name="told")
    cooldowns: dict[str, int] = {}
    displayed_event: KeyEvent | None = msgspec.field(default=None, name="shown")
    displayed_at: int = msgspec.field(default=0, name="shown_at")
    timestamp: int = 0
    content_hashes: dict[str, str] = msgspec.field(default_factory=dict, name="fingerprints")
    received_at: int = 0
    progress: Progress = (False, 0, 0, 0, 0)
    outdated_polls: int = msgspec.field(default=0, name="behind")


_state_decoder: Final = msgspec.json.Decoder(PipelineState)


def pipeline_state(record: ActiveMatch) -> PipelineState:
    """Decode the state stored in `record`; the initial state if there is none."""
    text = record.extra.get("memory")
    return _state_decoder.decode(text) if text else PipelineState()


class PollResult(msgspec.Struct, frozen=True):
    """What a poll came to.

    `contents` are the display states by view, `alert` the event that lights the screen, if one
    does.

    A poll that is behind what was known comes to nothing, and has no contents.
    """

    memory: PipelineState
    book: BallLog
    new: tuple[KeyEvent, ...]
    contents: dict[str, dict[str, Any]]
    has_changed: bool
    alert: KeyEvent | None
    is_over: bool


def match_progress(feed: MatchFeed) -> Progress:
    """How far a match has come: it compares."""
    innings = current_innings(feed.innings)
    if innings is None:
        return feed.status.is_over, 0, 0, 0, 0
    return (
        feed.status.is_over,
        innings.number,
        balls_in(innings.overs),
        innings.runs,
        innings.wickets,
    )


def match_views(feed: MatchFeed) -> tuple[str, ...]:
    """Whose eyes a match is seen with: nobody's in particular, and those of the two sides."""
    return (NEUTRAL, *(side.team_id for side in feed.teams))


def process_poll(
    memory: PipelineState,
    book: BallLog,
    feed: MatchFeed,
    *,
    now: int,
    room: int,
    is_final: bool = False,
) -> PollResult:
    """Take one step; `now` in milliseconds, `room` in bytes of JSON for a display state."""
    progress = match_progress(feed)
    if progress < memory.progress and memory.outdated_polls < PATIENCE and not is_final:
        # An answer out of an older cache, most likely; a correction would still be there a few
        # polls later.
        unchanged = msgspec.structs.replace(memory, outdated_polls=memory.outdated_polls + 1)
        return PollResult(
            unchanged, book, (), {}, has_changed=False, alert=None, is_over=memory.progress[0]
        )
    book = merge_poll(book, feed, is_final=is_final)
    events = match_events(feed, book)
    new = find_new_events(events, memory.published_events)
    scene = EventContext(
        events, book.told, current_innings(feed.innings), is_first_sight=memory.received_at == 0
    )
    picked = _shown_over(memory, select_event(new, scene, memory.cooldowns, now), now)
    shown, shown_at = (
        (picked, now) if picked is not None else (memory.displayed_event, memory.displayed_at)
    )
    seen = _Seen(feed, book.told[-LAST_BALLS:], room)
    contents = seen.contents(shown, memory.timestamp)
    if (
        _fingerprints(contents) != memory.content_hashes
        and picked is None
        and _is_worn(shown, shown_at, now)
    ):
        # Something else has changed: the event that was shown makes way. By itself it would not be
        # worth a push.
        shown, shown_at = None, 0
        contents = seen.contents(shown, memory.timestamp)
    fingerprints = _fingerprints(contents)
    has_changed = fingerprints != memory.content_hashes
    timestamp = max(now // 1000, memory.timestamp + 1) if has_changed else memory.timestamp
    if has_changed:
        contents = {view: content | {"timestamp": timestamp} for view, content in contents.items()}
    after = PipelineState(
        (*memory.published_events, *new),
        update_cooldowns(memory.cooldowns, picked, now),
        shown,
        shown_at,
        timestamp,
        fingerprints,
        feed.received_at,
        progress,
    )
    is_over = any(event.kind is EventKind.MATCH_END for event in events)
    alert = picked if picked is not None and picked.kind.is_alert else None
    return PollResult(after, book, tuple(new), contents, has_changed, alert, is_over)


class _Seen(msgspec.Struct, frozen=True):
    feed: MatchFeed
    balls: Sequence[Ball]
    room: int

    def contents(self, shown: KeyEvent | None, timestamp: int) -> dict[str, dict[str, Any]]:
        return {
            view: display_content(
                build_display(
                    self.feed, view, timestamp=timestamp, key_event=shown, balls=self.balls
                ),
                self.room,
            )
            for view in match_views(self.feed)
        }


def _fingerprints(contents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {view: content_hash(content) for view, content in contents.items()}


def _shown_over(memory: PipelineState, picked: KeyEvent | None, now: int) -> KeyEvent | None:
    """A wicket is not taken off the screen for a single four: quiet events wait until an alert has had its time."""
    shown = memory.displayed_event
    is_in_the_way = (
        shown is not None and shown.kind.is_alert and not _is_worn(shown, memory.displayed_at, now)
    )
    return None if picked is not None and not picked.kind.is_alert and is_in_the_way else picked


def _is_worn(shown: KeyEvent | None, shown_at: int, now: int) -> bool:
    return (
        shown is not None
        and shown.kind is not EventKind.MATCH_END
        and now - shown_at >= EVENT_DISPLAY_MS
    )
