"""Builds balls and feeds of a match from a short script.

A ball is one word: `.` `1` `4` `6` runs off the bat (`a4` an all-run four), `W` bowled, `C` caught,
`R` run out, `S` stumped off a wide, `H` retired hurt, `wd` `wd2` `nb` `nb4` extras, `b1` `lb2`
byes, `p5` penalty runs. Overs change automatically, bowlers alternate, and an innings ends after
ten wickets or twenty overs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tally.cricket.model.feed import (
    Ball,
    InningsFeed,
    MatchFeed,
    MatchStatus,
    Side,
    Target,
    Wicket,
    WicketKind,
)
from tally.cricket.model.scorecard import scorecards

HOME = Side("10", "Rovers", "ROV")
AWAY = Side("20", "Wanderers", "WAN")
WICKETS = {
    "W": WicketKind.BOWLED,
    "C": WicketKind.CAUGHT,
    "R": WicketKind.RUN_OUT,
    "S": WicketKind.STUMPED,
    "H": WicketKind.RETIRED_HURT,
}


@dataclass
class MatchScript:
    """Adds innings to a match; ids increase by ten, so that tests can insert balls."""

    balls: list[Ball] = field(default_factory=list)
    bowlers: Sequence[str] = ("b1", "b2")

    def innings(
        self, number: int, words: str | Iterable[str], *, bowlers: Sequence[str] | None = None
    ) -> "MatchScript":
        side = HOME if number % 2 else AWAY
        by = bowlers or [f"{name}of{number % 2}" for name in self.bowlers]
        striker, other, batters_seen = f"p{number}.1", f"p{number}.2", 2
        over, legal, wickets = 0, 0, 0
        for word in words.split() if isinstance(words, str) else words:
            if wickets == 10 or (over, legal) == (19, 6):
                break
            if legal == 6:
                over, legal, striker, other = over + 1, 0, other, striker
            position = Position(self._next_id(), number, side.team_id, over, legal + 1)
            ball = _ball(word, position, striker, other, by[over % len(by)])
            self.balls.append(ball)
            legal += ball.is_legal
            wickets += ball.wicket is not None and ball.wicket.counts
            if ball.wicket is not None:
                batters_seen += 1
                striker = f"p{number}.{batters_seen}"
            elif (ball.runs_bat + ball.byes + ball.leg_byes) % 2:
                striker, other = other, striker
        return self

    def _next_id(self) -> int:
        return self.balls[-1].id + 10 if self.balls else 1000


class Position(NamedTuple):
    identity: int
    innings: int
    team: str
    over: int
    number: int


def _ball(word: str, position: Position, striker: str, other: str, bowler: str) -> Ball:
    kind = word.rstrip("0123456789") or "bat"
    count = (
        int(word[len(kind) :])
        if kind != "bat" and word[len(kind) :]
        else int(word)
        if kind == "bat"
        else 0
    )
    runs = count if kind in {"bat", "a", "nb"} else 0
    wides = max(1, count) if kind == "wd" else 1 if kind == "S" else 0
    noballs = 1 if kind == "nb" else 0
    byes, leg_byes = (count if kind == "b" else 0), (count if kind == "lb" else 0)
    penalty = count if kind == "p" else 0
    wicket = Wicket(striker, f"Name {striker}", WICKETS[kind]) if kind in WICKETS else None
    return Ball(
        position.identity,
        position.innings,
        position.over,
        position.number,
        position.team,
        striker,
        f"Name {striker}",
        other,
        bowler,
        f"Name {bowler}",
        runs,
        runs + wides + noballs + byes + leg_byes + penalty,
        wides,
        noballs,
        byes,
        leg_byes,
        penalty,
        runs == 4 and kind != "a",
        runs == 6 and kind != "a",
        wicket,
    )


def feed_of(
    balls: Sequence[Ball],
    status: MatchStatus = MatchStatus.IN_PLAY,
    *,
    scored: Sequence[Ball] | None = None,
    with_balls: bool = True,
    received_at: int = 1,
    super_overs: frozenset[int] = frozenset(),
    total_overs: int | None = 20,
    target: Target | None = None,
    note: str = "",
    innings: tuple[InningsFeed, ...] | None = None,
) -> MatchFeed:
    """Build a feed with these balls; its scores count `scored` instead if given."""
    cards = (
        innings
        if innings is not None
        else scorecards(scored if scored is not None else balls, super_overs)
    )
    return MatchFeed(
        "501",
        "1",
        "2026",
        "T20",
        total_overs,
        (HOME, AWAY),
        "2026-11-15T14:00:00Z",
        status,
        "1st Innings",
        True,
        received_at,
        innings=cards,
        note=note,
        target=target,
        is_super_over=bool(super_overs),
        balls=tuple(balls) if with_balls else None,
    )
