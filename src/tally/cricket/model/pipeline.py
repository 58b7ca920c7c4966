"""Processes one poll of a match: from the stored state and the feed to new events and content.

    feed → result → ball log → events → new events → event selection → display content per view

A result that two polls confirm is published (see `results`). If play resumes after that, the result
is withdrawn, and the next one is published like the first.

`PipelineState` is all that is stored between two polls besides the ball log. `process_poll` is
pure: the same state and feed give the same result, so a step that a crash interrupted is repeated.
The timestamp of the content is part of the state. It increases with every visible change,
independent of the instance that processes the poll and of its clock.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from tally.cricket.model.ball_log import MAX_GAP_POLLS, BallLog, merge_poll
from tally.cricket.model.cooldowns import (
    EventContext,
    cooldown_key,
    select_event,
    update_cooldowns,
)
from tally.cricket.model.display import build_display
from tally.cricket.model.display_content import content_hash, display_content
from tally.cricket.model.events import AlertChoice, EventKind, KeyEvent
from tally.cricket.model.feed import Ball, MatchFeed
from tally.cricket.model.history import find_new_events, match_events
from tally.cricket.model.laws import balls_in, current_innings
from tally.cricket.model.records import (
    NEUTRAL,
    STALE_MATCH_MS,
    ActiveMatch,
    Fixture,
    PollerState,
)
from tally.cricket.model.results import FINAL_AFTER_MS, ReportedResult, next_result

# An event is displayed for this long, or until another one is displayed.
EVENT_DISPLAY_MS: Final = 15_000
LAST_BALLS: Final = 30
# This attribute of the match record is true once the end of the match has been published.
IS_OVER_ATTRIBUTE: Final = "isOver"
_RESULT_KINDS: Final = frozenset({EventKind.MATCH_END, EventKind.INNINGS_END})


# Without a push for longer, the app and iOS consider a Live Activity stale.
KEEP_ALIVE_MS: Final = 20 * 60_000

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
    result: ReportedResult = ReportedResult()
    withdrawn_results: tuple[str, ...] = ()


_state_decoder: Final = msgspec.json.Decoder(PipelineState)


def pipeline_state(record: ActiveMatch) -> PipelineState:
    """Decode the state stored in `record`; the initial state if there is none."""
    text = record.extra.get("memory")
    return _state_decoder.decode(text) if text else PipelineState()


class PollResult(msgspec.Struct, frozen=True):
    """The result of a poll.

    `contents` maps views to display content and is empty for an outdated poll. `alert` is the event
    that lights up the screen, and `milestone` that for followers of milestones: the same one, or
    the milestone that a wicket in the same poll outranks.
    """

    state: PipelineState
    ball_log: BallLog
    new_events: tuple[KeyEvent, ...]
    contents: dict[str, dict[str, Any]]
    has_changed: bool
    alert: KeyEvent | None
    is_over: bool
    milestone: KeyEvent | None = None


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


def is_keep_alive_due(state: PipelineState, feed: MatchFeed, now: int) -> bool:
    """Whether a break has lasted so long that the unchanged state is pushed once, quietly."""
    is_long = state.timestamp > 0 and now - state.timestamp * 1000 >= KEEP_ALIVE_MS
    return is_long and not (feed.status.is_over or state.progress[0])


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
    progress, result = match_progress(feed), next_result(state.result, feed, now)
    is_outdated = _is_behind(progress, state.progress) and not is_final
    if is_outdated and state.outdated_polls < MAX_GAP_POLLS:
        # Probably a response from an older cache; a correction persists for more polls.
        return _unchanged(state, ball_log, result, state.outdated_polls + 1)
    if feed.status.is_over and not result.is_confirmed:
        return _unchanged(state, ball_log, result)
    ball_log = merge_poll(ball_log, feed, is_final=is_final)
    events = match_events(feed, ball_log)
    state = _with_current_result(state, feed, events)
    found = find_new_events(events, state.published_events)
    new = [msgspec.structs.replace(event, at=now) for event in found]
    balls = ball_log.released_balls
    context = EventContext(
        events, balls, current_innings(feed.innings), is_first_poll=state.received_at == 0
    )
    selected = _after_alert(state, select_event(new, context, state.cooldowns, now), now)
    builder = _ContentBuilder(feed, balls[-LAST_BALLS:], max_bytes)
    displayed, displayed_at, contents = _display(state, selected, builder, now)
    hashes = _hashes(contents)
    has_changed = hashes != state.content_hashes
    is_pushed = has_changed or is_keep_alive_due(state, feed, now)
    timestamp = max(now // 1000, state.timestamp + 1) if is_pushed else state.timestamp
    if is_pushed:
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
        result=result,
        withdrawn_results=state.withdrawn_results,
    )
    is_over = any(event.kind is EventKind.MATCH_END for event in events)
    alert = selected if is_alert(state, selected) else None
    milestones = [event for event in new if AlertChoice.MILESTONES.includes(event.kind)]
    return PollResult(
        next_state,
        ball_log,
        tuple(new),
        contents,
        has_changed,
        alert,
        is_over,
        milestone=select_event(milestones, context, state.cooldowns, now) if alert else None,
    )


def is_new_result(state: PipelineState, feed: MatchFeed) -> bool:
    """Whether `feed` reports a result that differs from the confirmed one.

    It counts even after the end of a match: a Test that left the feed overnight may be abandoned
    the next day, and a result may be corrected.
    """
    is_known = state.result.is_confirmed and state.result.agrees(feed)
    return feed.status.is_over and not is_known


def is_accepted(record: ActiveMatch | None, feed: MatchFeed) -> bool:
    """Whether the pipeline has accepted that the match is over, or not over, as `feed` says."""
    state = PipelineState() if record is None else pipeline_state(record)
    if feed.status.is_over:
        return not is_new_result(state, feed)
    has_ended = record is not None and record.poller_state is PollerState.ENDED
    return has_ended or not state.progress[0]


def is_result_final(record: ActiveMatch | None) -> bool:
    """Whether polls have confirmed the published result for ten minutes."""
    if record is None or record.poller_state is PollerState.ENDED:
        return True
    result = pipeline_state(record).result
    return (
        bool(record.extra.get(IS_OVER_ATTRIBUTE))
        and result.is_confirmed
        and record.last_updated_at >= result.since + FINAL_AFTER_MS
    )


def is_finish_due(fixture: Fixture | None, record: ActiveMatch, now: int) -> bool:
    """Whether to end the Live Activities of a match and to delete its temporary data.

    A match that is polled is archived first, when its result is final or its coverage has ended.
    One without a fixture was deleted, unless it is polled: then the next sync adds the fixture.
    """
    if fixture is None:
        return record.last_updated_at + STALE_MATCH_MS <= now
    if fixture.is_held:
        return False
    if not fixture.status.is_over:
        return fixture.archived_at is not None
    is_unpolled = not fixture.is_polled or fixture.replay_of is not None
    return is_unpolled and pipeline_state(record).result.since + FINAL_AFTER_MS <= now


def _is_behind(progress: Progress, known: Progress) -> bool:
    """Whether a poll is older than the known state; the result follows the last ball."""
    return (*progress[1:], progress[0]) < (*known[1:], known[0])


def _unchanged(
    state: PipelineState, ball_log: BallLog, result: ReportedResult, outdated_polls: int = 0
) -> PollResult:
    """Return the result of a poll that does not count yet."""
    counted = msgspec.structs.replace(state, outdated_polls=outdated_polls, result=result)
    return PollResult(
        counted, ball_log, (), {}, has_changed=False, alert=None, is_over=state.progress[0]
    )


def _withdraw_result(state: PipelineState, events: Sequence[KeyEvent]) -> PipelineState:
    """Forget the events of a wrong result, so that those of the real one are published."""
    current = {event.identity for event in events}
    withdrawn = [
        event
        for event in state.published_events
        if event.kind in _RESULT_KINDS and event.identity not in current
    ]
    keys = {cooldown_key(event) for event in withdrawn}
    displayed = state.displayed_event
    is_withdrawn = displayed is not None and cooldown_key(displayed) in keys
    texts = {event.reason for event in withdrawn if event.kind is EventKind.MATCH_END}
    return msgspec.structs.replace(
        state,
        withdrawn_results=tuple(sorted(texts.union(state.withdrawn_results))),
        published_events=tuple(event for event in state.published_events if event not in withdrawn),
        cooldowns={key: until for key, until in state.cooldowns.items() if key not in keys},
        displayed_event=None if is_withdrawn else displayed,
    )


def _with_current_result(
    state: PipelineState, feed: MatchFeed, events: Sequence[KeyEvent]
) -> PipelineState:
    """Withdraw the result if play has resumed; replace a displayed one that was corrected."""
    if state.progress[0] and not feed.status.is_over:
        return _withdraw_result(state, events)
    displayed, last = state.displayed_event, events[-1] if events else None
    if displayed is None or last is None or displayed.kind is not EventKind.MATCH_END:
        return state
    if last.kind is not EventKind.MATCH_END or last.reason == displayed.reason:
        return state
    current = msgspec.structs.replace(displayed, reason=last.reason, score=last.score)
    return msgspec.structs.replace(state, displayed_event=current)


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


def is_alert(state: PipelineState, selected: KeyEvent | None) -> bool:
    """Whether an event alerts. A result that was withdrawn has alerted followers before."""
    if selected is None or not selected.kind.is_alert:
        return False
    is_result = selected.kind is EventKind.MATCH_END
    return not is_result or selected.reason not in state.withdrawn_results


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
