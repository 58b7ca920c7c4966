"""Display states: event selection, texts, size limits and change detection."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.cricket.model.ball_log import MAX_GAP_POLLS, BallLog
from tally.cricket.model.cooldowns import (
    COOLDOWN_SECONDS,
    EventContext,
    cooldown_key,
    is_stale,
    select_event,
    update_cooldowns,
)
from tally.cricket.model.display import ball_symbol, build_display
from tally.cricket.model.display_content import (
    DROP_STEPS,
    content_hash,
    display_content,
    json_size,
    sanitize_text,
)
from tally.cricket.model.event_texts import event_sentence, event_title
from tally.cricket.model.events import EventKind, KeyEvent
from tally.cricket.model.feed import MatchFeed, MatchStatus, Side, Toss
from tally.cricket.model.payloads import Alert, max_content_bytes, update_payload
from tally.cricket.model.pipeline import (
    EVENT_DISPLAY_MS,
    PipelineState,
    PollResult,
    match_views,
    process_poll,
)
from tests.cricket.match_script import AWAY, HOME, MatchScript, feed_of

MAX_BYTES = max_content_bytes("update")
HOSTILE = st.text(
    st.one_of(st.characters(), st.sampled_from('👨‍👩‍👧‍👦🏏é\u0301\x00\x1f"\\\ud800\udfff\u202e')),
    max_size=4000,
)


def event(kind: EventKind, subject: str = "p1.1", **details: Any) -> KeyEvent:
    return KeyEvent(kind=kind, innings=1, subject=subject, team_id=HOME.team_id, **details)


def test_the_latest_event_with_the_highest_rank_is_selected() -> None:
    """Two wickets and a four in one poll: the second wicket."""
    new = [event(EventKind.WICKET, "a"), event(EventKind.FOUR), event(EventKind.WICKET, "b")]
    assert select_event(new, EventContext(new), {}, 0) == new[2]


def test_the_first_six_kinds_alert() -> None:
    """No other kind alerts; the rest update the screen silently."""
    assert [kind.value for kind in EventKind if kind.is_alert] == [
        "match_end",
        "innings_end",
        "hat_trick",
        "hundred",
        "wicket",
        "fifty",
    ]


@pytest.mark.parametrize(
    ("old", "newer"),
    [
        (EventKind.FIFTY, EventKind.HUNDRED),
        (EventKind.NINETIES, EventKind.HUNDRED),
        (EventKind.NINETIES, EventKind.WICKET),
        (EventKind.BATTER_ON_FIRE, EventKind.WICKET),
        (EventKind.SIX, EventKind.MATCH_END),
        (EventKind.INNINGS_END, EventKind.MATCH_END),
    ],
)
def test_a_superseded_event_is_stale(old: EventKind, newer: EventKind) -> None:
    """A fifty is stale after the hundred; another batter's fifty is not."""
    assert is_stale(event(old), EventContext([event(old), event(newer)]))
    if newer is not EventKind.MATCH_END:
        assert not is_stale(event(old), EventContext([event(old), event(newer, "p1.2")]))


def test_a_four_is_stale_after_an_over_and_a_wicket_after_two() -> None:
    """Events after a long gap are recorded, but not displayed."""
    balls = MatchScript().innings(1, "4 . . . . . . . . . . . . .").balls
    four, wicket = (
        event(EventKind.FOUR, ball_id=balls[0].id),
        event(EventKind.WICKET, ball_id=balls[0].id),
    )
    assert [is_stale(four, EventContext([four], balls[:count])) for count in (6, 7)] == [
        False,
        True,
    ]
    assert [is_stale(wicket, EventContext([wicket], balls[:count])) for count in (12, 13)] == [
        False,
        True,
    ]


def test_an_event_is_not_displayed_again_during_its_cooldown() -> None:
    """The cooldown is per batter: another batter's six is displayed."""
    six = event(EventKind.SIX)
    left = update_cooldowns({"old": 5}, six, 1000)
    assert left == {cooldown_key(six): 1000 + COOLDOWN_SECONDS[EventKind.SIX] * 1000}
    assert select_event([six], EventContext([six]), left, 2000) is None
    assert select_event([event(EventKind.SIX, "p1.2")], EventContext([six]), left, 2000) is not None
    assert select_event([six], EventContext([six]), left, left[cooldown_key(six)]) == six


def test_views_differ_only_in_their_texts() -> None:
    """A team's view lists it first, phrases the chase for it and rates the event."""
    feed = feed_of(MatchScript().innings(1, "6 6 6").innings(2, "1 W").balls)
    out = KeyEvent(
        kind=EventKind.WICKET,
        innings=2,
        subject="p2.1",
        team_id=AWAY.team_id,
        runs=1,
        balls=2,
        reason="bowled",
    )
    neutral, home, away = (
        build_display(feed, view, timestamp=1, key_event=out) for view in match_views(feed)
    )
    assert [team.id for team in neutral.teams] == [team.id for team in home.teams] == ["10", "20"]
    assert [team.id for team in away.teams] == ["20", "10"]
    assert [update.key_event.mood for update in (neutral, home, away) if update.key_event] == [
        "neutral",
        "for",
        "against",
    ]
    assert neutral.need == away.need == "WAN need 18 off 118"
    assert home.need == "must defend 18 off 118"
    assert neutral.batters == home.batters == away.batters


def test_a_state_describes_the_score() -> None:
    """It has scores, overs, batters, balls and rates, and a line per presentation."""
    balls = MatchScript().innings(1, "1 4 wd W").balls
    state = build_display(feed_of(balls), timestamp=7, balls=balls)
    assert state.teams[0].score == "6/1"
    assert state.teams[0].overs == "0.3"
    assert state.last_balls == ("1", "4", "wd", "W")
    assert state.run_rate == "12.00"
    assert [(shown.name, shown.runs) for shown in state.batters] == [("Name p1.1", 1)]
    assert state.lines.compact_leading == "ROV 6/1"
    assert state.lines.minimal == "6/1"
    assert "ROV 6/1" in state.lines.lock_screen


def test_before_the_first_ball_the_state_describes_the_toss() -> None:
    """Before the toss, it names the teams."""
    feed = msgspec.structs.replace(feed_of([]), toss=Toss("10", "batting"))
    assert (
        "Rovers won the toss and chose to bat" in build_display(feed, timestamp=1).lines.lock_screen
    )
    undecided = msgspec.structs.replace(feed, toss=Toss("10"))
    assert build_display(undecided, timestamp=1).lines.lock_screen.endswith("Rovers won the toss")
    assert build_display(feed_of([]), timestamp=1).lines.lock_screen == "ROV v WAN"


@pytest.mark.parametrize(
    ("word", "symbol"),
    [
        ("wd", "wd"),
        ("wd2", "2wd"),
        ("nb", "nb"),
        ("nb4", "5nb"),
        ("b4", "4b"),
        ("lb1", "1lb"),
        (".", "."),
        ("H", "."),
    ],
)
def test_ball_symbols_are_those_of_scorers(word: str, symbol: str) -> None:
    """Extras have letters; a ball without runs is a dot."""
    (ball,) = MatchScript().innings(1, word).balls
    assert ball_symbol(ball) == symbol


def test_every_kind_has_texts() -> None:
    """Every kind has a title and a sentence for any set of fields."""
    for kind in EventKind:
        details = event(
            kind,
            player="Ann",
            other="Bob",
            runs=50,
            balls=30,
            count=3,
            reason="bowled",
            score="1/1",
        )
        assert event_title(details)
        assert event_sentence(details)


def hostile_feed(names: list[str]) -> MatchFeed:
    feed = feed_of(MatchScript().innings(1, "6 6 6").innings(2, "1 4 1").balls)
    sides = (Side("10", names[0], names[1]), Side("20", names[2], names[3]))
    innings = tuple(
        msgspec.structs.replace(
            card,
            batters=tuple(msgspec.structs.replace(line, name=names[4]) for line in card.batters),
            bowlers=tuple(
                msgspec.structs.replace(line, name=names[5], is_bowling=True)
                for line in card.bowlers
            ),
        )
        for card in feed.innings
    )
    return msgspec.structs.replace(
        feed, teams=sides, innings=innings, status_text=names[6], note=names[7]
    )


@settings(max_examples=60)
@given(
    st.lists(HOSTILE, min_size=10, max_size=10),
    st.sampled_from([400, 800, 1500, MAX_BYTES]),
    st.sampled_from(MatchStatus),
)
def test_content_with_any_names_is_valid_json_and_fits(
    names: list[str], room: int, status: MatchStatus
) -> None:
    """Emoji, surrogates, control characters and long texts never exceed the limit."""
    feed = msgspec.structs.replace(hostile_feed(names), status=status)
    shown = event(
        EventKind.WICKET, player=names[8], other=names[9], reason=names[8], score=names[9]
    )
    for view in match_views(feed):
        content = display_content(
            build_display(feed, view, timestamp=9_999_999_999, key_event=shown, balls=()), room
        )
        assert json_size(content) <= max(room, 640)
        assert msgspec.json.decode(msgspec.json.encode(content)) == content
        assert content["teams"][0]["score"]
    payload = update_payload(
        timestamp=9_999_999_999,
        content=display_content(build_display(feed, timestamp=1), MAX_BYTES),
        alert=Alert(names[8], names[9]),
    )
    assert len(payload) <= 4096


def test_parts_are_dropped_in_the_documented_order() -> None:
    """The expanded line is dropped first, the event last, and no more than necessary."""
    feed = feed_of(MatchScript().innings(1, "6 6 6").innings(2, "1 4 1").balls)
    content = msgspec.to_builtins(
        build_display(
            feed, timestamp=1, key_event=event(EventKind.SIX, player="Ann"), balls=feed.balls or ()
        )
    )
    sizes = [json_size(content)]
    for drop in DROP_STEPS:
        content = drop(content)
        sizes.append(json_size(content))
    assert sizes == sorted(sizes, reverse=True)
    assert set(content) >= {"matchId", "teams", "timestamp", "lines"}
    state = build_display(feed, timestamp=1, balls=feed.balls or ())
    assert "expanded" not in display_content(state, sizes[1])["lines"]


def test_truncated_text_never_splits_a_grapheme() -> None:
    """A joined emoji is preserved or removed as a whole."""
    family = "👨‍👩‍👧‍👦"
    assert sanitize_text(family * 10, 8).rstrip("…") in {"", family}
    assert sanitize_text("a\ud800b\x00c") == "a�b c"


def test_the_hash_covers_visible_content_only() -> None:
    """It ignores the timestamp and detects a change of a single ball."""
    balls = MatchScript().innings(1, "1 4 1").balls
    first = display_content(build_display(feed_of(balls), timestamp=1, balls=balls), MAX_BYTES)
    later = display_content(build_display(feed_of(balls), timestamp=99, balls=balls), MAX_BYTES)
    other = display_content(
        build_display(feed_of(balls[:2]), timestamp=1, balls=balls[:2]), MAX_BYTES
    )
    assert content_hash(first) == content_hash(later) != content_hash(other)
    assert content_hash(first) != content_hash(first | {"isStale": True})


def process(
    memory: PipelineState,
    book: BallLog,
    words: str,
    now: int,
    status: MatchStatus = MatchStatus.IN_PLAY,
) -> PollResult:
    return process_poll(
        memory,
        book,
        feed_of(MatchScript().innings(1, words).balls, status, received_at=now),
        now=now,
        max_bytes=MAX_BYTES,
    )


def test_an_unchanged_poll_changes_nothing() -> None:
    """Content and timestamp stay the same until the keep-alive."""
    first = process(PipelineState(), BallLog(), "1 4", 1_000_000)
    again = process(first.state, first.ball_log, "1 4", 2_199_000)
    assert first.has_changed
    assert not again.has_changed
    assert again.new_events == ()
    assert again.contents == first.contents


def test_the_timestamp_never_decreases() -> None:
    """It increases even if another instance's clock is behind."""
    first = process(PipelineState(), BallLog(), "1 4", 1_000_000)
    second = process(first.state, first.ball_log, "1 4 1", 500_000)
    third = process(second.state, second.ball_log, "1 4 1 1", 500_000)
    assert [view.state.timestamp for view in (first, second, third)] == [1000, 1001, 1002]


def test_an_event_is_displayed_until_the_next_change_after_its_time() -> None:
    """Its removal alone causes no push."""
    first = process(PipelineState(), BallLog(), "1 W", 1_000_000)
    assert first.alert is not None
    kept = process(first.state, first.ball_log, "1 W .", 1_000_000 + EVENT_DISPLAY_MS - 1)
    assert kept.contents["neutral"]["keyEvent"]["kind"] == "wicket"
    assert kept.alert is None
    same = process(kept.state, kept.ball_log, "1 W .", 1_000_000 + 10 * EVENT_DISPLAY_MS)
    assert not same.has_changed
    gone = process(same.state, same.ball_log, "1 W . 1", 1_000_000 + 10 * EVENT_DISPLAY_MS)
    assert "keyEvent" not in gone.contents["neutral"]


def test_the_end_of_a_match_stays_displayed() -> None:
    """It is the last published event."""
    unconfirmed = process(PipelineState(), BallLog(), "1 W", 997_500, MatchStatus.FINISHED)
    assert (unconfirmed.is_over, unconfirmed.contents) == (False, {})
    first = process(unconfirmed.state, BallLog(), "1 W", 1_000_000, MatchStatus.FINISHED)
    assert first.is_over
    assert first.new_events[-1].kind is EventKind.MATCH_END
    assert first.alert == first.new_events[-1]
    again = process(first.state, first.ball_log, "1 W", 9_000_000, MatchStatus.FINISHED)
    assert again.is_over
    assert not again.has_changed
    assert again.contents["neutral"]["keyEvent"]["kind"] == "match_end"


def test_an_outdated_poll_is_ignored() -> None:
    """Content never goes back; a change that persists for some polls is a correction."""
    first = process(PipelineState(), BallLog(), "1 4 6", 1_000_000)
    old = process(first.state, first.ball_log, "1 4", 1_002_500)
    assert (old.has_changed, old.contents, old.new_events) == (False, {}, ())
    fresh = process(old.state, old.ball_log, "1 4 6 1", 1_005_000)
    assert fresh.has_changed
    memory, book = fresh.state, fresh.ball_log
    for _ in range(MAX_GAP_POLLS):
        memory = process(memory, book, "1 4 6", 1_007_500).state
    corrected = process(memory, book, "1 4 6", 1_010_000)
    assert corrected.has_changed
    assert corrected.contents["neutral"]["teams"][0]["score"] == "11/0"
