"""Parses score names such as `1 No Ball + 4 Runs` into runs, extras and the kind of wicket.

The parser prefers the name to the numeric fields of a score: those omit penalty runs and count runs
off a no-ball inconsistently. A name consists of parts joined with " + ". If a part is unknown, the
numeric fields are used.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

from tally.cricket.model.feed import WicketKind
from tally.cricket.sportmonks.payloads import SportMonksScore

# Wicket kinds by words in a name. The first match counts, so specific words come first.
KINDS: Final = (
    ("run out", WicketKind.RUN_OUT),
    ("stump", WicketKind.STUMPED),
    ("lbw", WicketKind.LBW),
    ("leg before", WicketKind.LBW),
    ("hit wicket", WicketKind.HIT_WICKET),
    ("bowled", WicketKind.BOWLED),
    ("catch", WicketKind.CAUGHT),
    ("caught", WicketKind.CAUGHT),
    ("obstruct", WicketKind.OBSTRUCTING),
    ("handled", WicketKind.HANDLED_BALL),
    ("twice", WicketKind.HIT_TWICE),
    ("timed", WicketKind.TIMED_OUT),
    ("retired hurt", WicketKind.RETIRED_HURT),
    ("retired not out", WicketKind.RETIRED_NOT_OUT),
    ("retired out", WicketKind.RETIRED_OUT),
    ("retired", WicketKind.RETIRED_OUT),
    ("absent", WicketKind.ABSENT),
)
NOT_OUT: Final = ("not out", "batting", "no run", "")
RUNS: Final = {"four": 4, "six": 6, "no run": 0, "dot": 0, "dot ball": 0, "not out": 0}

RUN_KINDS: Final = {
    "wide": "wide",
    "no": "noball",
    "leg": "legbye",
    "bye": "bye",
    "penalty": "penalty",
    "run": "run",
}

_part = re.compile(
    r"(?:(\d+)\s*)?(wides?|no[ -]?balls?|leg[ -]?byes?|byes?|penalty(?: runs?)?|runs?)?"
)


class DeliveryScore(msgspec.Struct, frozen=True):
    """The parsed score of a ball; one field per kind of run or wicket."""

    runs_bat: int = 0
    wides: int = 0
    noballs: int = 0
    byes: int = 0
    leg_byes: int = 0
    penalty: int = 0
    is_four: bool = False
    is_six: bool = False
    kind: WicketKind | None = None
    is_delivery: bool = True


@lru_cache(4096)
def parse_score(score: SportMonksScore) -> DeliveryScore:
    """Parse the score of a ball. Cached, because every poll repeats a few hundred scores."""
    runs_by_kind = _parse_runs(score.name)
    if runs_by_kind is None:
        runs_by_kind = _numeric_runs(score)
    bat = runs_by_kind["run"]
    is_illegal = bool(runs_by_kind["wide"] or runs_by_kind["noball"])
    return DeliveryScore(
        runs_bat=bat,
        wides=runs_by_kind["wide"],
        noballs=runs_by_kind["noball"],
        byes=runs_by_kind["bye"],
        leg_byes=runs_by_kind["legbye"],
        penalty=runs_by_kind["penalty"],
        is_four=bool(score.four) and bat == 4,
        is_six=bool(score.six) and bat == 6,
        kind=wicket_kind_for(score.name) or (WicketKind.OTHER if score.is_wicket else None),
        is_delivery=is_illegal or score.ball is not False,
    )


def wicket_kind_for(name: str) -> WicketKind | None:
    """Return the kind of wicket that a score name describes; None if the batter is not out."""
    lowered = name.strip().lower()
    if lowered in NOT_OUT:
        return None
    return next((kind for words, kind in KINDS if words in lowered), None)


def _parse_runs(name: str) -> dict[str, int] | None:
    """Add up the runs of all parts by kind; None if a part is unknown."""
    runs_by_kind = dict.fromkeys(("wide", "noball", "bye", "legbye", "penalty", "run"), 0)
    for part in (part.strip().lower() for part in name.split("+")):
        if part in RUNS:
            runs_by_kind["run"] += RUNS[part]
        elif found := _counted(part):
            kind, count = found
            runs_by_kind[kind] += count
        elif wicket_kind_for(part) is None:
            return None
    _reassign_runs(runs_by_kind)
    return runs_by_kind


def _counted(part: str) -> tuple[str, int] | None:
    matched = _part.fullmatch(part)
    if matched is None or not part:
        return None
    number, word = matched.groups()
    if word is None:
        return "run", int(number)  # as in "Run Out + 1"
    kind = next(kind for beginning, kind in RUN_KINDS.items() if word.startswith(beginning))
    return kind, int(number) if number is not None else 1


def _reassign_runs(runs_by_kind: dict[str, int]) -> None:
    """Count runs off a wide as wides, and overthrows after a bye or leg-bye as byes or leg-byes."""
    if runs_by_kind["wide"]:
        runs_by_kind["wide"] += runs_by_kind["run"] + runs_by_kind["bye"] + runs_by_kind["legbye"]
        runs_by_kind["run"] = runs_by_kind["bye"] = runs_by_kind["legbye"] = 0
    elif runs_by_kind["noball"]:
        return
    elif runs_by_kind["legbye"] or runs_by_kind["bye"]:
        runs_by_kind["legbye" if runs_by_kind["legbye"] else "bye"] += runs_by_kind["run"]
        runs_by_kind["run"] = 0


def _numeric_runs(score: SportMonksScore) -> dict[str, int]:
    runs, noballs = score.runs or 0, min(score.noball or 0, 1)
    is_wide = score.ball is False and not noballs and not score.is_wicket
    return {
        "wide": max(1, runs) if is_wide else 0,
        "noball": noballs,
        "bye": score.bye or 0,
        "legbye": score.leg_bye or 0,
        "penalty": 0,
        "run": 0 if is_wide else max(0, runs - noballs),
    }
