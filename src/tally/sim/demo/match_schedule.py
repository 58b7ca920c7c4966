"""Matches on the air, all day: when one is over, the next begins, and there is always one that starts soon.

The made-up match of the project is played again and again; whoever has match files from Cricsheet
names their folder in `TALLY_SIM_MATCHES`, and those are played instead.
"""

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from tally.kit.clock import Clock
from tally.sim.sportmonks.cricsheet import bundled_match, read_match
from tally.sim.sportmonks.match import Match
from tally.sim.sportmonks.playback import MatchPlayback
from tally.sim.sportmonks.simulator import SportMonksSimulator

VARIABLE: Final = "TALLY_SIM_MATCHES"
# Three hours and a half of cricket in about twenty minutes.
SPEED: Final = 10.0
APART_SECONDS: Final = 120
LOOK_SECONDS: Final = 5.0
COMING: Final = 12


@dataclass(frozen=True, slots=True)
class MatchSchedule:
    """Which matches there are to play, and the simulator that shows them."""

    sportmonks: SportMonksSimulator
    matches: tuple[Match, ...]
    clock: Clock

    def begin(self) -> None:
        """The first match is well under way, the next one starts in a minute or two, and others are announced."""
        numbers = self._numbers()
        first = self._put_on(next(numbers), timedelta())
        first.deliver(first.deliveries // 3)
        first.set_speed(SPEED)
        self._put_on(next(numbers), timedelta(seconds=APART_SECONDS))
        league = self.matches[0].league
        self.sportmonks.schedule(
            COMING, league_name=league, first=self.clock.now() + timedelta(hours=3), apart=5 * 3600
        )

    async def go_on(self) -> None:
        """For ever: take off what is over, and put on what comes next."""
        numbers = self._numbers()
        while True:
            await self.clock.sleep(LOOK_SECONDS)
            for match_id, broadcast in list(self.sportmonks.playbacks.items()):
                if broadcast.position >= len(broadcast.steps):
                    self.sportmonks.remove(match_id)
                    self._put_on(next(numbers), timedelta(seconds=APART_SECONDS))

    def _numbers(self) -> Iterator[int]:
        # Never one that was used before a restart: what is stored of that match is over.
        return itertools.count(self.clock.seconds())

    def _put_on(self, number: int, later: timedelta) -> MatchPlayback:
        match = replace(self.matches[number % len(self.matches)], id=number)
        starts = self.clock.now() + later + timedelta(minutes=30) / SPEED
        return self.sportmonks.add(match, speed=SPEED, starting_at=starts)


def marquee_leagues(matches: tuple[Match, ...]) -> str:
    """The leagues of these matches, as the setting wants them: everything is followed ball by ball."""
    return ",".join(sorted({str(match.league_id) for match in matches}))


def load_matches(environ: Mapping[str, str] = os.environ) -> tuple[Match, ...]:
    """Those in the folder that the environment names, in the order of their names, or the made-up one."""
    folder = environ.get(VARIABLE, "")
    files = sorted(Path(folder).glob("*.json")) if folder else []
    found = tuple(read_match(path.read_bytes(), path.stem) for path in files if path.stem.isdigit())
    return found or (bundled_match(),)
