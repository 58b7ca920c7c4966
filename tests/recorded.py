"""Recorded matches, ball by ball, from Cricsheet (cricsheet.org), with expected results.

The files are not part of the project; tests that need them are skipped if they are missing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import BatterLine, MatchFeed
from tally.sim.sportmonks.cricsheet import read_match
from tally.sim.sportmonks.match import Match

PLACE: Final = Path(__file__).parent.parent.parent / "shared" / "data" / "cricsheet"
# The ten that were chosen for their oddities; the tests have a name for each, whether the files are
# there or not.
NAMES: Final = (
    "1082625",
    "1175368",
    "1181766",
    "1254073",
    "1304076",
    "1359519",
    "1370353",
    "419107",
    "501255",
    "729309",
)

# Kinds that only one of the two lists of events has, and one that has two names.
OURS_ALONE: Final = frozenset({"bowler_on_fire", "batter_on_fire", "new_batter"})
THEIRS_ALONE: Final = frozenset({"consecutive_sixes_innings", "five_wicket_haul"})
# Of no player.
SIDES_DOINGS: Final = frozenset({"innings_end", "match_end"})
OTHER_NAMES: Final = {"on_a_hat_trick": "on_hat_trick"}


def need_recorded() -> None:
    """End the running test where there are no recorded matches."""
    if not PLACE.is_dir():
        pytest.skip("the recorded matches (shared/data/cricsheet) are not beside the project")


@cache
def recorded(name: str) -> Match:
    need_recorded()
    return read_match((PLACE / f"{name}.json").read_bytes(), name)


@cache
def expected(name: str) -> Any:
    """What the match comes to: scorecards and events, worked out by others."""
    need_recorded()
    return msgspec.json.decode((PLACE / "expected" / f"{name}.json").read_bytes())


def expected_events(name: str) -> list[tuple[str, int, str]]:
    """The events of a match in order: kind, innings, and how the side stood."""
    return [
        (OTHER_NAMES.get(event["type"], event["type"]), event["innings"], event["score"])
        for event in expected(name)["events"]
        if event["type"] not in THEIRS_ALONE
    ]


def told_events(events: Iterable[KeyEvent]) -> list[tuple[str, int, str]]:
    """The same of events that the pipeline has told."""
    return [
        (event.kind.value, event.innings, event.score)
        for event in events
        if event.kind.value not in OURS_ALONE
    ]


def expected_doings(name: str) -> Counter[tuple[str, int, str]]:
    """How often who did what, in which innings: what stays the same though a ball before was told wrongly at the time."""
    found = Counter[tuple[str, int, str]]()
    for event in expected(name)["events"]:
        if event["type"] not in THEIRS_ALONE | SIDES_DOINGS:
            who = event.get("player_out") or event.get("batter") or event.get("bowler")
            found[OTHER_NAMES.get(event["type"], event["type"]), event["innings"], who] += 1
    return found


def told_doings(events: Iterable[KeyEvent]) -> Counter[tuple[str, int, str]]:
    """The same of events that the pipeline has told."""
    kept = (event for event in events if event.kind.value not in OURS_ALONE | SIDES_DOINGS)
    return Counter((event.kind.value, event.innings, event.player) for event in kept)


def expect_scorecards(feed: MatchFeed, name: str) -> None:
    """Every line of every scorecard is as others have worked it out."""
    wanted = expected(name)
    assert feed.note == wanted["result"]
    for card, told in zip(feed.innings, wanted["innings"], strict=True):
        assert [card.number, card.runs, card.wickets, str(card.overs)] == _fields(
            told, "innings", "runs", "wickets", "overs"
        )
        batting = [
            [line.name, line.runs, line.balls, line.fours, line.sixes, _how(line)]
            for line in card.batters
        ]
        assert batting == [
            _fields(line, "name", "runs", "balls", "fours", "sixes", "how_out")
            for line in told["batters"]
        ]
        bowling = [
            [line.name, line.wickets, line.runs, f"{line.overs}.{line.balls}", line.maidens]
            for line in card.bowlers
        ]
        assert bowling == [
            _fields(line, "name", "wickets", "runs", "overs", "maidens") for line in told["bowlers"]
        ]


def _fields(told: Mapping[str, Any], *names: str) -> list[Any]:
    return [told[name] for name in names]


def _how(line: BatterLine) -> str:
    return "not out" if line.how_out is None else line.how_out.value
