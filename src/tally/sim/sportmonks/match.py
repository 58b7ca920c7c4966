"""A cricket match as a file tells it: names instead of ids, and every delivery in order."""

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import msgspec

# What SportMonks calls the best known league, so that a marquee league set for the real service
# also fits here.
KNOWN_LEAGUES: Final = {"Indian Premier League": 1}


def derived_id(text: str) -> int:
    """A number that a text always has: what stands for an id where the file has none."""
    return 100_000 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) // 4


class BallExtras(msgspec.Struct, frozen=True):
    """Runs that nobody hit."""

    wides: int = 0
    noballs: int = 0
    byes: int = 0
    leg_byes: int = 0
    penalty: int = 0

    @property
    def total(self) -> int:
        return self.wides + self.noballs + self.byes + self.leg_byes + self.penalty


class Dismissal(msgspec.Struct, frozen=True):
    """Who went, and how in Cricsheet's words."""

    player_out: str
    kind: str
    fielders: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        return self.kind not in {"retired hurt", "retired not out"}

    @property
    def is_bowlers(self) -> bool:
        return self.kind in {
            "bowled",
            "caught",
            "caught and bowled",
            "lbw",
            "stumped",
            "hit wicket",
        }


class Replacement(msgspec.Struct, frozen=True):
    """Somebody who plays from now on in place of another: an impact player, a concussion substitute."""

    team: str
    comes: str
    goes: str


class Delivery(msgspec.Struct, frozen=True):
    """One ball. Its number within the over follows from those before it."""

    over: int
    batter: str
    non_striker: str
    bowler: str
    runs_bat: int = 0
    extras: BallExtras = BallExtras()
    is_boundary: bool = True
    wickets: tuple[Dismissal, ...] = ()
    replacements: tuple[Replacement, ...] = ()

    @property
    def runs(self) -> int:
        return self.runs_bat + self.extras.total

    @property
    def is_legal(self) -> bool:
        return not self.extras.wides and not self.extras.noballs

    @property
    def is_four(self) -> bool:
        return self.runs_bat == 4 and self.is_boundary

    @property
    def is_six(self) -> bool:
        return self.runs_bat == 6 and self.is_boundary


class Innings(msgspec.Struct, frozen=True):
    team: str
    deliveries: tuple[Delivery, ...] = ()
    is_super_over: bool = False
    is_declared: bool = False
    is_forfeited: bool = False
    penalty_before: int = 0
    penalty_after: int = 0
    target_runs: int | None = None
    target_overs: str | None = None
    absent_hurt: tuple[str, ...] = ()


class MatchOutcome(msgspec.Struct, frozen=True):
    """How it ended. All empty: nobody knows yet, or the file does not say."""

    winner: str = ""
    runs: int = 0
    wickets: int = 0
    innings: int = 0
    result: str = ""
    method: str = ""
    eliminator: str = ""
    bowl_out: str = ""

    @property
    def victor(self) -> str:
        """Who won, be it in the end by a super over or a bowl-out."""
        return self.winner or self.eliminator or self.bowl_out

    @property
    def note(self) -> str:
        """The result as a sentence."""
        method = f" ({self.method} method)" if self.method in {"D/L", "DLS", "VJD"} else ""
        if self.winner:
            return f"{self.winner} won{self._margin}{method or (f' ({self.method})' if self.method else '')}"
        if self.eliminator:
            return f"Match tied ({self.eliminator} won the Super Over)"
        if self.bowl_out:
            return f"Match tied ({self.bowl_out} won the bowl-out)"
        known = {"tie": f"Match tied{method}", "draw": "Match drawn", "no result": "No result"}
        return known.get(
            self.result, "Match ended" if not self.result else self.result.capitalize()
        )

    @property
    def _margin(self) -> str:
        parts = []
        if self.innings:
            parts.append("an innings")
        if self.runs:
            parts.append(f"{self.runs} run{'s' if self.runs != 1 else ''}")
        if self.wickets:
            parts.append(f"{self.wickets} wicket{'s' if self.wickets != 1 else ''}")
        return f" by {' and '.join(parts)}" if parts else ""


class Match(msgspec.Struct, frozen=True, dict=True):
    """A whole match, from the toss to the result."""

    id: int
    teams: tuple[str, str]
    kind: str
    overs: int | None
    balls_per_over: int
    date: str
    league: str
    season: str
    round: str
    venue: str
    toss_winner: str
    toss_bats: bool
    players: Mapping[str, tuple[str, ...]]
    people: Mapping[str, str]
    player_of_match: str
    innings: tuple[Innings, ...]
    outcome: MatchOutcome

    @property
    def league_id(self) -> int:
        return KNOWN_LEAGUES.get(self.league) or derived_id(f"league {self.league}")

    @property
    def season_id(self) -> int:
        return derived_id(f"season {self.league} {self.season}")

    def team_id(self, team: str) -> int:
        return derived_id(f"team {team}")

    def player_id(self, name: str) -> int:
        """By Cricsheet's register where the file has it, so that a person has the same id in every match."""
        known = self.people.get(name, "")
        try:
            return int(known, 16) or derived_id(f"player {name}")
        except ValueError:
            return derived_id(f"player {name}")

    def other(self, team: str) -> str:
        return self.teams[1] if team == self.teams[0] else self.teams[0]

    @cached_property
    def lineups(self) -> dict[str, tuple[str, ...]]:
        """Who plays: those whom the file lists, and whoever else bats or bowls."""
        found = {team: dict.fromkeys(self.players.get(team, ())) for team in self.teams}
        everyone = {name for names in found.values() for name in names}
        for team, name in self._seen():
            if name and name not in everyone:
                found[team][name] = None
                everyone.add(name)
        return {team: tuple(names) for team, names in found.items()}

    def _seen(self) -> Iterator[tuple[str, str]]:
        for innings in self.innings:
            for delivery in innings.deliveries:
                yield innings.team, delivery.batter
                yield innings.team, delivery.non_striker
                yield self.other(innings.team), delivery.bowler
                for replacement in delivery.replacements:
                    if replacement.team in self.teams:
                        yield replacement.team, replacement.comes
