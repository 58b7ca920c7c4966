"""Real matches, ball by ball, from Cricsheet (cricsheet.org), which lie beside the project, with what each comes to.

They are not part of the project. A test that wants them is skipped where they are not.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tally.sim.sportmonks.cricsheet import read_match
from tally.sim.sportmonks.match import Match

PLACE: Final = Path(__file__).parent.parent.parent / "shared" / "data" / "cricsheet"
# The ten that were chosen for their oddities; the tests have a name for each, whether the files are there or not.
NAMES: Final = (
    *("1082625", "1175368", "1181766", "1254073", "1304076"),
    *("1359519", "1370353", "419107", "501255", "729309"),
)


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
