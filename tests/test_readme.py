"""The README's commands run, its links resolve, and its settings exist."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tally.settings import SETTINGS
from tally.store.collector import _COUNTERS
from tests.needs import need_program
from tests.test_cli import read_until, started
from tests.test_docs import make_targets

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the README's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


MAKE_COMMANDS = re.findall(r"^make (\w+)", "\n".join(blocks("sh")), re.MULTILINE)
SHELL_BLOCKS = [block for block in blocks("sh") if "curl" not in block and "make " not in block]


def test_make_commands_exist() -> None:
    assert {"up", "test"} <= {*MAKE_COMMANDS} <= make_targets()


def test_the_commands_work_in_a_clone(tmp_path: Path) -> None:
    """They run as written, in a directory with the environment of `make`."""
    [commands] = SHELL_BLOCKS
    (tmp_path / ".venv").symlink_to(sys.prefix)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    done = subprocess.run(
        ["sh", "-e", "-x", "-c", commands],
        cwd=tmp_path,
        env=ours | {"TALLY_DATA_DIR": str(tmp_path / "data"), "TALLY_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for words in ("Usage: tally", "data directory:", "TALLY_PORT=0", "ttl-sweep", "api_keys"):
        assert words in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {".venv"}


def test_every_link_and_image_resolves() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert "docs/console.png" in links
    assert [link for link in links if not (ROOT / link.split("#")[0]).is_file()] == []


def test_the_screenshot_is_a_small_png() -> None:
    picture = (ROOT / "docs" / "console.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 300_000


def test_every_mentioned_setting_exists() -> None:
    known = {setting.variable for setting in SETTINGS}
    assert {
        name for name in re.findall(r"TALLY_[A-Z_]+[A-Z]", README) if name not in known
    } == set()


def test_every_metric_in_the_operations_page_exists() -> None:
    """The names in docs/operations.md occur in the source."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    # The store builds its metric names from a prefix and a counter.
    exported = source + " ".join(f"tally_store_operation_{word}" for word in _COUNTERS)
    named = {
        re.sub(r"_(total|count|bucket)$", "", name)
        for name in re.findall(r"tally_[a-z]+_[a-z_]+", page)
    }
    assert len(named) > 10
    assert {name for name in named if name not in exported} == set()


def test_python_snippet_runs(tmp_path: Path) -> None:
    """The snippet runs as it is, and a second run adds to what the first stored."""
    [snippet] = blocks("python")
    for points in (5, 10):
        done = subprocess.run(
            [sys.executable, "-c", snippet],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"'points': {points}" in done.stdout


def test_each_backend_serves_its_request(tmp_path: Path) -> None:
    """The README's requests succeed against `tally up`, with its URLs substituted."""
    need_program("curl", "curl")
    [requests] = [block for block in blocks("sh") if "curl" in block]
    backends = "collect,cricket,devices,scoreboard"
    with started(
        tmp_path, "up", "--port", "0", TALLY_BACKENDS=backends, TALLY_LOG_LEVEL="error"
    ) as program:
        assert program.stdout is not None
        output = read_until(program.stdout, "Press Ctrl-C to stop")
        [url] = re.findall(r"(http://\S+)/health\b", output)[:1]
        [issuer] = re.findall(r"Sign-in for cricket.*?(http://[\d.:]+)", output)
        script = requests.replace("http://127.0.0.1:8080", url).replace(
            "http://127.0.0.1:8104", issuer
        )
        until = time.monotonic() + 60
        while True:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            # The first readings of the demo's boards arrive while a person reads the URLs.
            if '"hardware_id"' in done.stdout or time.monotonic() > until:
                break
    for field in ('"nextCursor"', '"modelId":"fox"', '"total_players"', '"hardware_id"'):
        assert field in done.stdout
