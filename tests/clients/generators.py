"""Generates clients with openapi-python-client, openapi-typescript and openapi-fetch.

`package-lock.json` pins the npm packages by hash; they are installed once per version of that file
into the user's cache.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.needs import need_program, skip_or_fail

FOLDER: Final = Path(__file__).parent
INSTALL_SECONDS: Final = 200
RUN_SECONDS: Final = 120
TSCONFIG: Final = """{
  "compilerOptions": {
    "strict": true,
    "exactOptionalPropertyTypes": true,
    "noUncheckedIndexedAccess": true,
    "target": "es2022",
    "module": "nodenext",
    "types": ["node"]
  },
  "files": ["program.ts", "schema.d.ts"]
}
"""
# The generator's own file, which is the same for every document, fails the strict check.
MYPY_SETTINGS: Final = """[mypy]
strict = True
[mypy-tally_client.client]
ignore_errors = True
"""


def run(command: list[str], folder: Path, **variables: str) -> str:
    """Run a program, which must succeed, and return its output."""
    result = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:]
    return result.stdout


def generate_python(document: Path, folder: Path) -> str:
    """Generate the package `tally_client` and return the output; a warning is an error."""
    scripts = Path(sys.executable).parent
    command = [str(scripts / "openapi-python-client"), "generate", "--fail-on-warning"]
    command += ["--path", str(document), "--output-path", "tally_client", "--meta", "none"]
    # The generator formats its output with ruff.
    return run(command, folder, PATH=f"{scripts}{os.pathsep}{os.environ['PATH']}", COLUMNS="200")


def check_python(folder: Path) -> None:
    """Check the types of the generated package and of the program that uses it."""
    (folder / "mypy.ini").write_text(MYPY_SETTINGS, encoding="utf-8")
    program = str(FOLDER / "python_program.py")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini"]
    run([*command, "-p", "tally_client"], folder)
    run([*command, program], folder, MYPYPATH=str(folder))


def generate_typescript(document: Path, folder: Path) -> str:
    """Generate `schema.d.ts`, and return the output."""
    modules = node_modules()
    (folder / "node_modules").symlink_to(modules)
    tool = str(modules / ".bin" / "openapi-typescript")
    return run([tool, str(document), "--output", "schema.d.ts"], folder, NO_COLOR="1")


def compile_typescript(folder: Path) -> None:
    """Compile the program with the strict checks of the TypeScript compiler."""
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (folder / "tsconfig.json").write_text(TSCONFIG, encoding="utf-8")
    shutil.copy(FOLDER / "program.ts", folder)
    run([str(folder / "node_modules" / ".bin" / "tsc")], folder)


def node_modules(folder: Path = FOLDER) -> Path:
    """Return the npm packages that a folder pins; the first caller installs them under a lock."""
    need_program("node", "nodejs")
    lock_file = folder / "package-lock.json"
    digest = hashlib.sha256(lock_file.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tally"
    cache.mkdir(parents=True, exist_ok=True)
    installed = cache / f"clients-{digest}"
    if not installed.exists():
        with (cache / "clients.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not installed.exists():
                _install(folder, cache, installed)
    return installed / "node_modules"


def _install(source: Path, cache: Path, folder: Path) -> None:
    """Install into a temporary folder, then rename it."""
    npm = need_program("npm", "npm")
    with tempfile.TemporaryDirectory(prefix="install-", dir=cache) as scratch:
        target = Path(scratch) / "clients"
        target.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, target)
        installed = subprocess.run(
            [str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=target,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if installed.returncode:
            skip_or_fail(f"npm ci failed: {installed.stderr[-500:]}")
        target.rename(folder)
