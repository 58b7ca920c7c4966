"""The command line starts fast, and runs without the extras."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tally.cli import COMMANDS
from tally.cli.extras import DISTRIBUTION, EXTRA_MODULES

ROOT = Path(__file__).parent.parent
# Modules of Tally that `tally --help` may import.
LIGHT_MODULES = {"tally", "tally.cli", "tally.cli.lazy", "tally.cli.extras"}
# Runs the command line in a process that cannot import the modules named first.
PROGRAM_WITHOUT = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
sys.argv[1:] = sys.argv[2:]
from tally.cli import main
main()
"""


def run_without(
    modules: tuple[str, ...], *words: str, directory: Path
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM_WITHOUT, ",".join(modules), *words],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_and_version_import_only_light_modules(option: str) -> None:
    """Neither imports more of Tally than the command table, nor a heavy dependency."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tally.cli", option],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert {name for name in imported if name.split(".")[0] == "tally"} <= LIGHT_MODULES
    heavy = {"msgspec", "starlette", "uvicorn", "apsw", "structlog", "pyreqwest", "nicegui"}
    assert imported & heavy == set()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_listed_command_is_implemented(command: object) -> None:
    """Each entry of the table names a command that loads."""
    [entry] = [listed for listed in COMMANDS if listed is command]
    assert entry.load().name == entry.name


def test_command_line_works_without_extras(tmp_path: Path) -> None:
    done = run_without(EXTRA_MODULES["demo"], "settings", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "TALLY_PORT" in done.stdout


@pytest.mark.parametrize(
    ("words", "missing", "feature", "extra"),
    [
        (("up",), EXTRA_MODULES["demo"], "tally up", "demo"),
        (("up",), EXTRA_MODULES["console"], "tally up", "demo"),
        (("sim", "boards"), ("hpack",), "tally sim", "demo"),
        (("serve", "--console"), EXTRA_MODULES["console"], "tally serve --console", "console"),
    ],
)
def test_missing_extra_is_named(
    tmp_path: Path, words: tuple[str, ...], missing: tuple[str, ...], feature: str, extra: str
) -> None:
    """A command that needs an extra names it, exits with 2 and writes nothing."""
    done = run_without(missing, *words, directory=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        f'{feature} needs the extra "{extra}"; '
        f'install it with: pip install "{DISTRIBUTION}[{extra}]"\n'
    )
    assert list(tmp_path.iterdir()) == []


def test_console_does_not_need_the_simulators() -> None:
    """The production image has the extra `console` without `demo`."""
    program = "import sys; sys.modules['hpack'] = None; import tally.console_setup"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr


def test_extras_of_the_error_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    for extra, modules in EXTRA_MODULES.items():
        required = {
            re.split(r"[^\w-]", name)[0] for name in project["optional-dependencies"][extra]
        }
        assert required - {DISTRIBUTION} <= set(modules)
