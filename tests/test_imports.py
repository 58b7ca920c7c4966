"""Imports follow the contracts in `pyproject.toml`, without cycles, and violations are detected."""

import os
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent


def lint_imports(package_parent: Path) -> subprocess.CompletedProcess[str]:
    """Check the `tally` in `package_parent` against the project's contracts."""
    return subprocess.run(
        [
            Path(sys.executable).parent / "lint-imports",
            "--no-logo",
            "--no-cache",
            "--config",
            ROOT / "pyproject.toml",
        ],
        cwd=package_parent,
        env=os.environ | {"PYTHONPATH": str(package_parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_import_contract_holds() -> None:
    """A lower layer never imports a higher one."""
    result = lint_imports(ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr


def test_there_are_no_import_cycles() -> None:
    """The modules, including `__init__` files, can be sorted topologically."""
    graph = grimp.build_graph("tally", cache_dir=None)
    sorter = TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")
    assert sorter.is_active()


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("kit/clock.py", "tally.store"),
        ("store/values.py", "tally.app"),
        ("devices/service/keys.py", "tally.cricket"),
        ("errors.py", "tally.settings"),
        ("unlisted/__init__.py", "tally.kit"),
        ("devices/model/reading.py", "tally.kit.clock"),
        ("collect/repository/profiles.py", "tally.collect.service"),
        ("cricket/service/live.py", "tally.cricket.apns.client"),
        ("scoreboard/service/scores.py", "tally.scoreboard.api.events"),
        ("cricket/api/handlers.py", "tally.cricket.repository"),
        ("cricket/apns/client.py", "tally.cricket.service"),
        ("scoreboard/jobs/cleanup.py", "tally.scoreboard.repository"),
        ("console/home.py", "tally.devices.api"),
        ("sim/core.py", "tally.collect.model"),
    ],
)
def test_a_forbidden_import_breaks_a_contract(tmp_path: Path, importer: str, imported: str) -> None:
    """The contracts report imports that point up, sideways, or into a module without a layer."""
    write_package(tmp_path)
    write(tmp_path / "tally" / importer, f"import {imported}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout or "unlisted" in result.stdout


def test_a_package_without_imports_breaks_no_contract(tmp_path: Path) -> None:
    """So the import that a test adds to it is what breaks one."""
    write_package(tmp_path)
    result = lint_imports(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def write_package(parent: Path) -> None:
    """Write a `tally` with all modules that the contracts name, and no imports."""
    for name in ("app", "settings", "errors", "cli", "dependencies", "kit.clock"):
        write(parent / f"tally/{name.replace('.', '/')}.py")
    for name in ("tally", "tally.kit", "tally.store", *modules_in_contracts()):
        write(parent / name.replace(".", "/") / "__init__.py")
    write(parent / "tally/cricket/apns/client.py")
    write(parent / "tally/scoreboard/api/events.py")


def modules_in_contracts() -> set[str]:
    """Return the packages that the contracts name inside the backends and the console."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    modules = {
        module
        for contract in contracts
        for key in ("source_modules", "forbidden_modules")
        for module in contract.get(key, ())
    } - {"tally.dependencies", "tally.settings"}
    return modules | {module.rpartition(".")[0] for module in modules}


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
