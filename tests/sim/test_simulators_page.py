"""What docs/simulators.md says of the simulators is so: its example runs, and it leaves nothing out."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from tally.sim.oidc.flaws import TokenFlaw
from tally.sim.sportmonks.simulator import SportMonksSimulator
from tally.sim.strava.simulator import StravaSimulator

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "simulators.md"
DECLARED = re.compile(r'Route\("(/_sim/[^"]+)"')


async def test_the_example_runs_as_it_stands() -> None:
    (source,) = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    names: dict[str, object] = {}
    running = eval(compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307  our own page
    assert inspect.iscoroutine(running)
    await running
    strava = names["strava"]
    assert isinstance(strava, StravaSimulator)
    assert strava.activities == {}
    sportmonks = names["sportmonks"]
    assert isinstance(sportmonks, SportMonksSimulator)
    assert len(sportmonks.playbacks) == 3


def test_every_flaw_is_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [flaw for flaw in TokenFlaw if f"`{flaw}`" not in text] == []


@pytest.mark.parametrize("simulator", ["oidc", "strava", "sportmonks", "apns"])
def test_every_path_of_the_control_apis_is_named(simulator: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    source = (ROOT / "src" / "tally" / "sim" / simulator / "control.py").read_text(encoding="utf-8")
    plain = (
        source.replace("{athlete_id:int}", "{id}")
        .replace("{match_id:int}", "{id}")
        .replace("/{activity_id:int}", "")
    )
    paths = set(DECLARED.findall(plain))
    assert len(paths) > 5
    assert [path for path in paths if path not in text] == []
