"""docs/simulators.md is correct and complete: its example runs, and it names every path."""

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
ROUTE_PATH = re.compile(r'Route\("(/_sim/[^"]+)"')


async def test_the_example_runs() -> None:
    (source,) = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    names: dict[str, object] = {}
    code = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    coroutine = eval(code, names)  # noqa: S307  our own page
    assert inspect.iscoroutine(coroutine)
    await coroutine
    strava = names["strava"]
    assert isinstance(strava, StravaSimulator)
    assert strava.activities == {}
    sportmonks = names["sportmonks"]
    assert isinstance(sportmonks, SportMonksSimulator)
    assert len(sportmonks.playbacks) == 3


def test_every_token_flaw_is_documented() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [flaw for flaw in TokenFlaw if f"`{flaw}`" not in text] == []


@pytest.mark.parametrize("simulator", ["oidc", "strava", "sportmonks", "apns"])
def test_every_control_path_is_documented(simulator: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    package = ROOT / "src" / "tally" / "sim"
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (package / simulator / "control.py", package / "fault_injection.py")
    )
    normalized = (
        source.replace("{athlete_id:int}", "{id}")
        .replace("{match_id:int}", "{id}")
        .replace("/{activity_id:int}", "")
    )
    paths = set(ROUTE_PATH.findall(normalized))
    assert len(paths) > 5
    assert [path for path in paths if path not in text] == []
