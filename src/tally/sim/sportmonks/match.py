"""A cricket match as recorded in a file: names and every delivery in order."""

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import msgspec

# SportMonks' ids of leagues, so that settings for the real service work with the simulator.
KNOWN_LEAGUES: Final = {"Indian Premier League": 1}


def derived_id(text: str) -> int:
    """A stable id derived from a text, where the file has no id."""
    return 100_000 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) // 4


class BallExtras(msgspec.Struct, frozen=True):
    """Runs that are not scored off the bat."""

    wides: int = 0
    noballs: int = 0
    byes: int = 0
    leg_byes: int = 0
    penalty: int = 0

    @property
    def total(self) -> int:
        return self.wides + self.noballs + self.byes + self.leg_byes + self.penalty


class Dismissal(msgspec.Struct, frozen=True):
    """A batter who is out or retires, with Cricsheet's kind of dismissal."""

    player_out: str
    kind: str
    fielders: tuple[str, ...] = ()

    @property
    def is_wicket(self) -> bool:
        return self.kind not in {"retired hurt", "retired not out"}

    @property
    def is_credited_to_bowler(self) -> bool:
        return self.kind in {
            "bowled",
            "caught",
            "caught and bowled",
            "lbw",
            "stumped",
            "hit wicket",
        }


class Replacement(msgspec.Struct, frozen=True):
    """A substitution: an impact player or a concussion substitute."""

    team: str
    player_in: str
    player_out: str


class Delivery(msgspec.Struct, frozen=True):
    """One ball; its number within the over follows from the deliveries before it.

    The fields are those of Cricsheet's format.
    """

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
    """An innings; the fields are those of Cricsheet's format."""

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
    """The result of a match; all fields are empty if it is unknown."""

    winner: str = ""
    runs: int = 0
    wickets: int = 0
    innings: int = 0
    result: str = ""
    method: str = ""
    eliminator: str = ""
    bowl_out: str = ""

    @property
    def winning_team(self) -> str:
        """The winner, including by super over or bowl-out."""
        return self.winner or self.eliminator or self.bowl_out

    @property
    def note(self) -> str:
        """The result as a text."""
        method = f" ({self.method} method)" if self.method in {"D/L", "DLS", "VJD"} else ""
        if self.winner:
            suffix = method or (f" ({self.method})" if self.method else "")
            return f"{self.winner} won{self._margin}{suffix}"
        if self.eliminator:
            return f"Match tied ({self.eliminator} won the Super Over)"
        if self.bowl_out:
            return f"Match tied ({self.bowl_out} won the bowl-out)"
        texts = {"tie": f"Match tied{method}", "draw": "Match drawn", "no result": "No result"}
        return texts.get(
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
    """A match from the toss to the result; the fields are those of Cricsheet's format."""

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
        """The id from Cricsheet's register, so that a player has the same id in every match."""
        register_id = self.people.get(name, "")
        try:
            return int(register_id, 16) or derived_id(f"player {name}")
        except ValueError:
            return derived_id(f"player {name}")

    def opponent(self, team: str) -> str:
        return self.teams[1] if team == self.teams[0] else self.teams[0]

    @cached_property
    def lineups(self) -> dict[str, tuple[str, ...]]:
        """The players of each team: those listed in the file and everyone who bats or bowls."""
        lineups = {team: dict.fromkeys(self.players.get(team, ())) for team in self.teams}
        everyone = {name for names in lineups.values() for name in names}
        for team, name in self._participants():
            if name and name not in everyone:
                lineups[team][name] = None
                everyone.add(name)
        return {team: tuple(names) for team, names in lineups.items()}

    def _participants(self) -> Iterator[tuple[str, str]]:
        for innings in self.innings:
            for delivery in innings.deliveries:
                yield innings.team, delivery.batter
                yield innings.team, delivery.non_striker
                yield self.opponent(innings.team), delivery.bowler
                for replacement in delivery.replacements:
                    if replacement.team in self.teams:
                        yield replacement.team, replacement.player_in
