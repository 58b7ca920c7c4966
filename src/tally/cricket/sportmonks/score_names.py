"""Reads SportMonks' scores: what `1 No Ball + 4 Runs` or `1 Bye + Run Out` means in runs, extras and wickets.

The name is what counts, since the figures beside it leave penalty runs out and count the runs off a
no-ball now one way, now another. Its parts are joined with " + ". Where a part is not understood,
the figures are taken instead.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

from tally.cricket.model.feed import WicketKind
from tally.cricket.sportmonks.payloads import SportMonksScore

# By words in a name; the first that is found counts, so the more special come first.
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
    ("absent", WicketKind.OTHER),
)
NOT_OUT: Final = ("not out", "batting", "no run", "")
RUNS: Final = {"four": 4, "six": 6, "no run": 0, "dot": 0, "dot ball": 0, "not out": 0}

SORTS: Final = {
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
    """What a score comes to."""

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
    """A ball's score. There are some hundreds of them, and every poll has the same ones again."""
    sums = _sums(score.name)
    if sums is None:
        sums = _by_figures(score)
    bat = sums["run"]
    is_illegal = bool(sums["wide"] or sums["noball"])
    return DeliveryScore(
        runs_bat=bat,
        wides=sums["wide"],
        noballs=sums["noball"],
        byes=sums["bye"],
        leg_byes=sums["legbye"],
        penalty=sums["penalty"],
        is_four=bool(score.four) and bat == 4,
        is_six=bool(score.six) and bat == 6,
        kind=wicket_kind_for(score.name) or (WicketKind.OTHER if score.is_wicket else None),
        is_delivery=is_illegal or score.ball is not False,
    )


def wicket_kind_for(name: str) -> WicketKind | None:
    """How a batter went, by the name of a score; None for one who is in."""
    lowered = name.strip().lower()
    if lowered in NOT_OUT:
        return None
    return next((kind for words, kind in KINDS if words in lowered), None)


def _sums(name: str) -> dict[str, int] | None:
    """Runs by sort, added up over the parts of a name; None if a part is not understood."""
    sums = dict.fromkeys(("wide", "noball", "bye", "legbye", "penalty", "run"), 0)
    for part in (part.strip().lower() for part in name.split("+")):
        if part in RUNS:
            sums["run"] += RUNS[part]
        elif found := _counted(part):
            sort, count = found
            sums[sort] += count
        elif wicket_kind_for(part) is None:
            return None
    _settle(sums)
    return sums


def _counted(part: str) -> tuple[str, int] | None:
    matched = _part.fullmatch(part)
    if matched is None or not part:
        return None
    number, word = matched.groups()
    if word is None:
        return "run", int(number)  # as in "Run Out + 1"
    sort = next(sort for beginning, sort in SORTS.items() if word.startswith(beginning))
    return sort, int(number) if number is not None else 1


def _settle(sums: dict[str, int]) -> None:
    """Whatever is run off a wide is wides, and what is run after a leg-bye or a bye, as overthrows, is more of the same."""
    if sums["wide"]:
        sums["wide"] += sums["run"] + sums["bye"] + sums["legbye"]
        sums["run"] = sums["bye"] = sums["legbye"] = 0
    elif sums["noball"]:
        return
    elif sums["legbye"] or sums["bye"]:
        sums["legbye" if sums["legbye"] else "bye"] += sums["run"]
        sums["run"] = 0


def _by_figures(score: SportMonksScore) -> dict[str, int]:
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
