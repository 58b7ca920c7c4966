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

DIRECTORY: Final = Path(__file__).parent.parent.parent / "shared" / "data" / "cricsheet"
RARE_DIRECTORY: Final = DIRECTORY.with_name("cricsheet-rare")
# Ten matches chosen for their edge cases; tests are parametrised by name even without the files.
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
# Four matches that ended early under D/L, or with an absent batter.
RARE_NAMES: Final = ("1175358", "336022", "392186", "980943")

# Event kinds that only one of the two lists has, and one that differs in name.
ONLY_OURS: Final = frozenset({"bowler_on_fire", "batter_on_fire", "new_batter"})
ONLY_EXPECTED: Final = frozenset({"consecutive_sixes_innings", "five_wicket_haul"})
# Events without a player.
TEAM_EVENTS: Final = frozenset({"innings_end", "match_end"})
RENAMED: Final = {"on_a_hat_trick": "on_hat_trick"}


def need_recorded() -> None:
    """Skip the running test if the recorded matches are missing."""
    if not DIRECTORY.is_dir():
        pytest.skip("the recorded matches (shared/data/cricsheet) are missing")


def _path(name: str) -> Path:
    directory = RARE_DIRECTORY if name in RARE_NAMES else DIRECTORY
    if not directory.is_dir():
        pytest.skip(f"the recorded matches (shared/data/{directory.name}) are missing")
    return directory / f"{name}.json"


@cache
def recorded(name: str) -> Match:
    return read_match(_path(name).read_bytes(), name)


@cache
def expected(name: str) -> Any:
    """Return the expected scorecards and events, computed independently."""
    path = _path(name)
    return msgspec.json.decode((path.parent / "expected" / path.name).read_bytes())


def expected_events(name: str) -> list[tuple[str, int, str]]:
    """Return the expected events of a match: kind, innings and score."""
    return [
        (RENAMED.get(event["type"], event["type"]), event["innings"], event["score"])
        for event in expected(name)["events"]
        if event["type"] not in ONLY_EXPECTED
    ]


def event_summaries(events: Iterable[KeyEvent]) -> list[tuple[str, int, str]]:
    """Summarise published events in the form of `expected_events`."""
    return [
        (event.kind.value, event.innings, event.score)
        for event in events
        if event.kind.value not in ONLY_OURS
    ]


def expected_player_events(name: str) -> Counter[tuple[str, int, str]]:
    """Count expected events by kind, innings and player.

    The counts do not depend on corrections of earlier balls.
    """
    found = Counter[tuple[str, int, str]]()
    for event in expected(name)["events"]:
        if event["type"] not in ONLY_EXPECTED | TEAM_EVENTS:
            who = event.get("player_out") or event.get("batter") or event.get("bowler")
            found[RENAMED.get(event["type"], event["type"]), event["innings"], who] += 1
    return found


def count_player_events(events: Iterable[KeyEvent]) -> Counter[tuple[str, int, str]]:
    """Count published events in the form of `expected_player_events`."""
    player_events = (event for event in events if event.kind.value not in ONLY_OURS | TEAM_EVENTS)
    return Counter((event.kind.value, event.innings, event.player) for event in player_events)


def expect_scorecards(feed: MatchFeed, name: str) -> None:
    """Check every line of every scorecard against the expected one."""
    result = expected(name)
    assert feed.note == result["result"]
    for card, expected_card in zip(feed.innings, result["innings"], strict=True):
        assert [card.number, card.runs, card.wickets, str(card.overs)] == _fields(
            expected_card, "innings", "runs", "wickets", "overs"
        )
        batting = [
            [line.name, line.runs, line.balls, line.fours, line.sixes, _how(line)]
            for line in card.batters
        ]
        assert batting == [
            _fields(line, "name", "runs", "balls", "fours", "sixes", "how_out")
            for line in expected_card["batters"]
        ]
        bowling = [
            [line.name, line.wickets, line.runs, f"{line.overs}.{line.balls}", line.maidens]
            for line in card.bowlers
        ]
        assert bowling == [
            _fields(line, "name", "wickets", "runs", "overs", "maidens")
            for line in expected_card["bowlers"]
        ]


def _fields(line: Mapping[str, Any], *names: str) -> list[Any]:
    return [line[name] for name in names]


def _how(line: BatterLine) -> str:
    return "not out" if line.how_out is None else line.how_out.value
