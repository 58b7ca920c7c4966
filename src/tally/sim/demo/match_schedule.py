"""Keeps matches live: when one ends, the next one starts, and another is always upcoming.

The demo repeats the bundled match. To play your own files in Cricsheet's format, set
`TALLY_SIM_MATCHES` to their directory.
"""

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from tally.kit.clock import Clock
from tally.sim.sportmonks.cricsheet import bundled_match, read_match
from tally.sim.sportmonks.match import Match
from tally.sim.sportmonks.playback import MatchPlayback
from tally.sim.sportmonks.simulator import SportMonksSimulator

MATCHES_VARIABLE: Final = "TALLY_SIM_MATCHES"
# A match of three and a half hours takes about twenty minutes.
SPEED: Final = 10.0
START_DELAY_SECONDS: Final = 120
CHECK_SECONDS: Final = 5.0
UPCOMING_COUNT: Final = 12
# Score services keep finished matches, and Tally confirms a result for ten minutes.
RETAINED_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class MatchSchedule:
    """The matches to play and the simulator that serves them."""

    sportmonks: SportMonksSimulator
    matches: tuple[Match, ...]
    clock: Clock
    # Ids from before a restart belong to stored matches that are over.
    _match_ids: Iterator[int] = field(init=False)
    _finished_at: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_match_ids", itertools.count(self.clock.seconds()))

    def start(self) -> None:
        """Add a match in progress, one that starts within two minutes, and scheduled ones."""
        first = self._add(timedelta())
        first.deliver(first.deliveries // 3)
        first.set_speed(SPEED)
        self._add(timedelta(seconds=START_DELAY_SECONDS))
        self.sportmonks.schedule(
            UPCOMING_COUNT,
            league_name=self.matches[0].league,
            first=self.clock.now() + timedelta(hours=3),
            apart=5 * 3600,
        )

    async def run(self) -> None:
        """Replace finished matches until cancelled; remove each some minutes later."""
        while True:
            await self.clock.sleep(CHECK_SECONDS)
            now = self.clock.monotonic()
            for match_id, playback in list(self.sportmonks.playbacks.items()):
                if playback.position < len(playback.steps):
                    continue
                if match_id not in self._finished_at:
                    self._finished_at[match_id] = now
                    self._add(timedelta(seconds=START_DELAY_SECONDS))
                elif now - self._finished_at[match_id] >= RETAINED_SECONDS:
                    self.sportmonks.remove(match_id)
                    del self._finished_at[match_id]

    def _add(self, delay: timedelta) -> MatchPlayback:
        # One sequence for all: a reused id would replace the other match while it is played.
        match_id = next(self._match_ids)
        match = replace(self.matches[match_id % len(self.matches)], id=match_id)
        starting_at = self.clock.now() + delay + timedelta(minutes=30) / SPEED
        return self.sportmonks.add(match, speed=SPEED, starting_at=starting_at)


def marquee_leagues(matches: tuple[Match, ...]) -> str:
    """The league ids for the setting that enables ball-by-ball updates."""
    return ",".join(sorted({str(match.league_id) for match in matches}))


def load_matches(environ: Mapping[str, str] = os.environ) -> tuple[Match, ...]:
    """The matches in the directory named by the environment, by name; default: the bundled one."""
    directory = environ.get(MATCHES_VARIABLE, "")
    files = sorted(Path(directory).glob("*.json")) if directory else []
    found = tuple(read_match(path.read_bytes(), path.stem) for path in files if path.stem.isdigit())
    return found or (bundled_match(),)
