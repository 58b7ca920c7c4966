"""The match that comes with the program: made up, short, and with something of everything.

The Herons bat first in an eight-over match, and win by eleven runs. There are wickets of most
kinds, a hat-trick over two overs, a maiden with a bye in it, a fifty with three sixes in a row,
wides, no-balls, and a batter who retires hurt.
"""

from importlib.resources import files
from typing import Final

from tally.sim.sportmonks.cricsheet import read_match
from tally.sim.sportmonks.match import Match

MATCH_ID: Final = 900_001


def shipped_match(match_id: int = MATCH_ID) -> Match:
    """The match, under this id: with others, it can be played several times at once."""
    content = files("tally.sim.sportmonks").joinpath("matches", "herons-hares.json").read_bytes()
    return read_match(content, str(match_id))
