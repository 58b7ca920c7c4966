"""Imports point one way: the layers of `pyproject.toml` hold, there are no cycles, and the rules bite."""

import os
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent


def lint_imports(package_parent: Path) -> subprocess.CompletedProcess[str]:
    """Hold the `tally` found in `package_parent` against the project's contracts."""
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


def test_every_import_contract_is_kept() -> None:
    """A lower layer never imports a higher one."""
    result = lint_imports(ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_module_imports_itself_in_a_circle() -> None:
    """The modules have an order in which each comes after all that it imports, packages' own `__init__` included."""
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
        ("devices/service.py", "tally.cricket"),
        ("errors.py", "tally.settings"),
        ("unheard_of/__init__.py", "tally.kit"),
    ],
)
def test_an_import_against_the_arrows_is_refused(
    tmp_path: Path, importer: str, imported: str
) -> None:
    """The contracts do find an import that goes up, sideways, or stands outside the layers."""
    for name in ("app", "settings", "errors", "cli"):
        write(tmp_path / "tally" / f"{name}.py")
    for name in ("kit", "store", "devices", "cricket"):
        write(tmp_path / "tally" / name / "__init__.py")
    write(tmp_path / "tally" / "__init__.py")
    assert lint_imports(tmp_path).returncode == 0

    write(tmp_path / "tally" / importer, f"import {imported}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout or "unheard_of" in result.stdout


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
