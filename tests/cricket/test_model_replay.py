"""Recorded matches have the expected events and scorecards, however they are polled."""

import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tally.cricket.model.ball_log import BallLog
from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import MatchFeed, Overs
from tally.cricket.model.history import find_new_events, match_events
from tally.cricket.model.pipeline import PipelineState, process_poll
from tally.cricket.model.scorecard import scorecards
from tally.cricket.sportmonks import payloads
from tally.cricket.sportmonks.conversions import parse_overs
from tally.cricket.sportmonks.translation import translate_match
from tally.kit.clock import ManualClock
from tally.sim.sportmonks.mistakes import Mistakes, random_mistakes
from tally.sim.sportmonks.playback import MatchPlayback
from tests.recorded import NAMES, RARE_NAMES, expected, recorded

OTHER_NAMES = {"on_a_hat_trick": "on_hat_trick"}
# Kinds that only one of the two lists contains.
ONLY_TALLY = {"bowler_on_fire", "batter_on_fire", "new_batter"}
ONLY_REFERENCE = {"consecutive_sixes_innings", "five_wicket_haul"}


class Replay:
    """A playback of a match, and the state that polls lead to."""

    def __init__(self, name: str) -> None:
        self.broadcast = MatchPlayback(recorded(name), ManualClock())
        self.state = PipelineState()
        self.ball_log = BallLog()
        self.now = 1_767_225_600_000
        self.feed: MatchFeed | None = None
        self.timestamps: list[int] = []

    def poll(self, *, is_final: bool = False) -> None:
        self.now += 2500
        payload = msgspec.json.encode(self.broadcast.poll())
        self.feed = translate_match(
            msgspec.json.decode(payload, type=payloads.SportMonksFixture, strict=False), self.now
        )
        taken = process_poll(
            self.state, self.ball_log, self.feed, now=self.now, max_bytes=3000, is_final=is_final
        )
        # Encode and decode the state, as after a restart.
        self.state = msgspec.json.decode(msgspec.json.encode(taken.state), type=PipelineState)
        self.ball_log = msgspec.json.decode(msgspec.json.encode(taken.ball_log), type=BallLog)
        if taken.has_changed:
            self.timestamps.append(self.state.timestamp)

    def play(self, rng: random.Random, max_deliveries: int) -> None:
        while not self.broadcast.progress.is_over:
            self.broadcast.step(rng.randint(0, max_deliveries))
            self.poll()
        for _ in range(5):
            self.poll()

    @property
    def events(self) -> list[KeyEvent]:
        assert self.feed is not None
        return match_events(self.feed, self.ball_log)


def expected_events(name: str) -> Iterator[tuple[str, int, str, str]]:
    for event in expected(name)["events"]:
        if event["type"] not in ONLY_REFERENCE:
            kind = OTHER_NAMES.get(event["type"], event["type"])
            yield kind, event["innings"], event["score"], str(event.get("reason", ""))


def comparable(events: list[KeyEvent]) -> Iterator[tuple[str, int, str, str]]:
    for event in events:
        if event.kind not in ONLY_TALLY:
            yield (
                event.kind.value,
                event.innings,
                event.score,
                event.reason if event.kind == "innings_end" else "",
            )


def expect_scorecards(replay: Replay, name: str) -> None:
    assert replay.feed is not None
    cards: list[dict[str, Any]] = expected(name)["innings"]
    by_balls = scorecards(
        replay.ball_log.balls,
        frozenset(entry.number for entry in replay.feed.innings if entry.is_super_over),
    )
    assert len(replay.feed.innings) == len(cards) == len(by_balls)
    for reported, counted, card in zip(replay.feed.innings, by_balls, cards, strict=True):
        for innings in (reported, counted):
            assert (innings.runs, innings.wickets, str(innings.overs)) == (
                card["runs"],
                card["wickets"],
                card["overs"],
            )
            bowling = {
                (
                    bowler.name,
                    bowler.wickets,
                    bowler.runs,
                    Overs(bowler.overs, bowler.balls),
                    bowler.maidens,
                )
                for bowler in innings.bowlers
            }
            assert bowling == {
                (
                    line["name"],
                    line["wickets"],
                    line["runs"],
                    parse_overs(Decimal(line["overs"])),
                    line["maidens"],
                )
                for line in card["bowlers"]
            }
        batting = {
            (
                line.name,
                line.runs,
                line.balls,
                line.fours,
                line.sixes,
                line.how_out.value if line.how_out else "not out",
            )
            for line in reported.batters
        }
        assert batting == {
            (
                line["name"],
                line["runs"],
                line["balls"],
                line["fours"],
                line["sixes"],
                line["how_out"],
            )
            for line in card["batters"]
        }


@pytest.mark.parametrize("name", [*NAMES[::2], *RARE_NAMES])
def test_a_recorded_match_has_its_events_and_scorecards(name: str) -> None:
    """Each event happens once and in order, regardless of what changes between two polls."""
    replay = Replay(name)
    replay.play(random.Random(name), 16)
    assert list(comparable(list(replay.state.published_events))) == list(expected_events(name))
    assert replay.events[-1].reason
    expect_scorecards(replay, name)
    assert replay.timestamps == sorted(set(replay.timestamps))


@pytest.mark.parametrize("name", NAMES[::5])
def test_late_and_repeated_balls_change_nothing(name: str) -> None:
    """Outdated responses change nothing either."""
    rng = random.Random(name)
    replay = Replay(name)
    deliveries = replay.broadcast.deliveries
    late = {place: rng.randint(1, 3) for place in range(deliveries) if rng.random() < 0.1}
    replay.broadcast.mistakes = Mistakes(late=late, twice=frozenset(range(0, deliveries, 7)))
    replay.broadcast.lags.extend(rng.choice([0, 0, 0, 2, 9]) for _ in range(40))
    replay.play(rng, 8)
    assert sorted(comparable(list(replay.state.published_events))) == sorted(expected_events(name))
    assert list(comparable(replay.events)) == list(expected_events(name))
    expect_scorecards(replay, name)


@pytest.mark.parametrize("name", NAMES[1::5])
def test_wrong_balls_are_corrected(name: str) -> None:
    """The final events are those of the real match, and no valid event is repeated."""
    rng = random.Random(name)
    replay = Replay(name)
    replay.broadcast.mistakes = random_mistakes(rng, replay.broadcast.deliveries, 0.1)
    replay.play(rng, 8)
    assert list(comparable(replay.events)) == list(expected_events(name))
    assert find_new_events(replay.events, replay.state.published_events) == []
    assert len({(event.identity, event.ball_id) for event in replay.state.published_events}) == len(
        replay.state.published_events
    )
    expect_scorecards(replay, name)
