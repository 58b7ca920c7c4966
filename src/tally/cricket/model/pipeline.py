"""Processes one poll of a match: from the stored state and the feed to new events and content.

    feed → ball log → events → new events → event selection → display content per view

`PipelineState` is all that is stored between two polls besides the ball log. `process_poll` is
pure: the same state and feed give the same result, so a step that a crash interrupted is repeated.
The timestamp of the content is part of the state. It increases with every visible change,
independent of the instance that processes the poll and of its clock.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from tally.cricket.model.ball_log import MAX_GAP_POLLS, BallLog, merge_poll
from tally.cricket.model.cooldowns import EventContext, select_event, update_cooldowns
from tally.cricket.model.display import build_display
from tally.cricket.model.display_content import content_hash, display_content
from tally.cricket.model.events import EventKind, KeyEvent
from tally.cricket.model.feed import Ball, MatchFeed
from tally.cricket.model.history import find_new_events, match_events
from tally.cricket.model.laws import balls_in, current_innings
from tally.cricket.model.records import NEUTRAL, ActiveMatch

# An event is displayed for this long, or until another one is displayed.
EVENT_DISPLAY_MS: Final = 15_000
LAST_BALLS: Final = 30


# Whether the match is over, and number, balls, runs and wickets of the current innings.
Progress: TypeAlias = tuple[bool, int, int, int, int]


class PipelineState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a match between two polls, with one field per stored value.

    `published_events` is in order of publication. `outdated_polls` counts consecutive polls that
    were older than the state. The encoded names are part of the stored format.
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
    """The result of a poll.

    `contents` maps views to display content and is empty for an outdated poll. `alert` is the event
    that lights up the screen.
    """

    state: PipelineState
    ball_log: BallLog
    new_events: tuple[KeyEvent, ...]
    contents: dict[str, dict[str, Any]]
    has_changed: bool
    alert: KeyEvent | None
    is_over: bool


def match_progress(feed: MatchFeed) -> Progress:
    """Return a comparable value for how far the match has progressed."""
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
    """Return the views of a match: neutral, and one per team."""
    return (NEUTRAL, *(side.team_id for side in feed.teams))


def process_poll(
    state: PipelineState,
    ball_log: BallLog,
    feed: MatchFeed,
    *,
    now: int,
    max_bytes: int,
    is_final: bool = False,
) -> PollResult:
    """Process a poll. `now` is in milliseconds; `max_bytes` limits the JSON of a display state."""
    progress = match_progress(feed)
    if progress < state.progress and state.outdated_polls < MAX_GAP_POLLS and not is_final:
        # Probably a response from an older cache; a correction persists for more polls.
        counted = msgspec.structs.replace(state, outdated_polls=state.outdated_polls + 1)
        return PollResult(
            counted, ball_log, (), {}, has_changed=False, alert=None, is_over=state.progress[0]
        )
    ball_log = merge_poll(ball_log, feed, is_final=is_final)
    events = match_events(feed, ball_log)
    new = find_new_events(events, state.published_events)
    balls = ball_log.released_balls
    context = EventContext(
        events, balls, current_innings(feed.innings), is_first_poll=state.received_at == 0
    )
    selected = _after_alert(state, select_event(new, context, state.cooldowns, now), now)
    builder = _ContentBuilder(feed, balls[-LAST_BALLS:], max_bytes)
    displayed, displayed_at, contents = _display(state, selected, builder, now)
    hashes = _hashes(contents)
    has_changed = hashes != state.content_hashes
    timestamp = max(now // 1000, state.timestamp + 1) if has_changed else state.timestamp
    if has_changed:
        contents = {view: content | {"timestamp": timestamp} for view, content in contents.items()}
    next_state = PipelineState(
        (*state.published_events, *new),
        update_cooldowns(state.cooldowns, selected, now),
        displayed,
        displayed_at,
        timestamp,
        hashes,
        feed.received_at,
        progress,
    )
    is_over = any(event.kind is EventKind.MATCH_END for event in events)
    alert = selected if selected is not None and selected.kind.is_alert else None
    return PollResult(next_state, ball_log, tuple(new), contents, has_changed, alert, is_over)


def _display(
    state: PipelineState, selected: KeyEvent | None, builder: "_ContentBuilder", now: int
) -> tuple[KeyEvent | None, int, dict[str, dict[str, Any]]]:
    """Return the event to display, the time since when it is displayed, and the content."""
    if selected is not None:
        return selected, now, builder.contents(selected, state.timestamp)
    displayed, displayed_at = state.displayed_event, state.displayed_at
    contents = builder.contents(displayed, state.timestamp)
    if _hashes(contents) != state.content_hashes and _is_display_over(displayed, displayed_at, now):
        # Something else has changed, so remove the old event. Alone, it is not worth a push.
        return None, 0, builder.contents(None, state.timestamp)
    return displayed, displayed_at, contents


class _ContentBuilder(msgspec.Struct, frozen=True):
    feed: MatchFeed
    balls: Sequence[Ball]
    max_bytes: int

    def contents(self, event: KeyEvent | None, timestamp: int) -> dict[str, dict[str, Any]]:
        return {
            view: display_content(
                build_display(
                    self.feed, view, timestamp=timestamp, key_event=event, balls=self.balls
                ),
                self.max_bytes,
            )
            for view in match_views(self.feed)
        }


def _hashes(contents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {view: content_hash(content) for view, content in contents.items()}


def _after_alert(state: PipelineState, selected: KeyEvent | None, now: int) -> KeyEvent | None:
    """Return the event unless it is quiet and would replace an alert too early."""
    displayed = state.displayed_event
    is_alert_displayed = (
        displayed is not None
        and displayed.kind.is_alert
        and not _is_display_over(displayed, state.displayed_at, now)
    )
    if selected is not None and not selected.kind.is_alert and is_alert_displayed:
        return None
    return selected


def _is_display_over(displayed: KeyEvent | None, displayed_at: int, now: int) -> bool:
    return (
        displayed is not None
        and displayed.kind is not EventKind.MATCH_END
        and now - displayed_at >= EVENT_DISPLAY_MS
    )
