"""Recorded matches, told as the score service tells them, end in their scorecards and give their events, however polled."""

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
from tests.recorded import NAMES, expected, recorded

OTHER_NAMES = {"on_a_hat_trick": "on_hat_trick"}
# Kinds that one of the two lists does not have.
OURS = {"bowler_on_fire", "batter_on_fire", "new_batter"}
THEIRS = {"consecutive_sixes_innings", "five_wicket_haul"}


class Replay:
    """A match on the air, and what the pipeline's rules make of it."""

    def __init__(self, name: str) -> None:
        self.broadcast = MatchPlayback(recorded(name), ManualClock())
        self.memory = PipelineState()
        self.book = BallLog()
        self.now = 1_767_225_600_000
        self.feed: MatchFeed | None = None
        self.timestamps: list[int] = []

    def poll(self, *, is_final: bool = False) -> None:
        self.now += 2500
        told = msgspec.json.encode(self.broadcast.poll())
        self.feed = translate_match(
            msgspec.json.decode(told, type=payloads.SportMonksFixture, strict=False), self.now
        )
        taken = process_poll(
            self.memory, self.book, self.feed, now=self.now, max_bytes=3000, is_final=is_final
        )
        # As after a restart: all that is known has been through the store.
        self.state = msgspec.json.decode(msgspec.json.encode(taken.state), type=PipelineState)
        self.ball_log = msgspec.json.decode(msgspec.json.encode(taken.ball_log), type=BallLog)
        if taken.has_changed:
            self.timestamps.append(self.memory.timestamp)

    def play(self, chance: random.Random, most: int) -> None:
        while not self.broadcast.progress.is_over:
            self.broadcast.step(chance.randint(0, most))
            self.poll()
        for _ in range(5):
            self.poll()

    @property
    def events(self) -> list[KeyEvent]:
        assert self.feed is not None
        return match_events(self.feed, self.book)


def wanted(name: str) -> Iterator[tuple[str, int, str, str]]:
    for event in expected(name)["events"]:
        if event["type"] not in THEIRS:
            kind = OTHER_NAMES.get(event["type"], event["type"])
            yield kind, event["innings"], event["score"], str(event.get("reason", ""))


def given_by(events: list[KeyEvent]) -> Iterator[tuple[str, int, str, str]]:
    for event in events:
        if event.kind not in OURS:
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
        replay.book.balls,
        frozenset(each.number for each in replay.feed.innings if each.is_super_over),
    )
    assert len(replay.feed.innings) == len(cards) == len(by_balls)
    for told, counted, card in zip(replay.feed.innings, by_balls, cards, strict=True):
        for innings in (told, counted):
            assert (innings.runs, innings.wickets, str(innings.overs)) == (
                card["runs"],
                card["wickets"],
                card["overs"],
            )
            bowling = {
                (each.name, each.wickets, each.runs, Overs(each.overs, each.balls), each.maidens)
                for each in innings.bowlers
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
            for line in told.batters
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


@pytest.mark.parametrize("name", NAMES[::2])
def test_a_recorded_match_gives_its_events_and_scorecards(name: str) -> None:
    """Each event once and in order, whatever lies between two polls."""
    replay = Replay(name)
    replay.play(random.Random(name), 16)
    assert list(given_by(list(replay.memory.published_events))) == list(wanted(name))
    assert replay.events[-1].reason
    expect_scorecards(replay, name)
    assert replay.timestamps == sorted(set(replay.timestamps))


@pytest.mark.parametrize("name", NAMES[::5])
def test_balls_that_come_late_or_twice_change_nothing(name: str) -> None:
    """Nor do answers out of an old cache."""
    chance = random.Random(name)
    replay = Replay(name)
    deliveries = replay.broadcast.deliveries
    late = {place: chance.randint(1, 3) for place in range(deliveries) if chance.random() < 0.1}
    replay.broadcast.mistakes = Mistakes(late=late, twice=frozenset(range(0, deliveries, 7)))
    replay.broadcast.lags.extend(chance.choice([0, 0, 0, 2, 9]) for _ in range(40))
    replay.play(chance, 8)
    assert sorted(given_by(list(replay.memory.published_events))) == sorted(wanted(name))
    assert list(given_by(replay.events)) == list(wanted(name))
    expect_scorecards(replay, name)


@pytest.mark.parametrize("name", NAMES[1::5])
def test_balls_that_were_told_wrongly_are_put_right(name: str) -> None:
    """The history in the end is that of the match as it was, and of what is true nothing was told twice."""
    chance = random.Random(name)
    replay = Replay(name)
    replay.broadcast.mistakes = random_mistakes(chance, replay.broadcast.deliveries, 0.1)
    replay.play(chance, 8)
    assert list(given_by(replay.events)) == list(wanted(name))
    assert find_new_events(replay.events, replay.memory.published_events) == []
    assert len(
        {(event.identity, event.ball_id) for event in replay.memory.published_events}
    ) == len(replay.memory.published_events)
    expect_scorecards(replay, name)
