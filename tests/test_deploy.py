"""What is in `deploy` fits the program: the image's steps, the services beside it, and the unit of systemd."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types, and comes with a tool of the tests
from typer.main import get_group

from tally.cli import cli
from tally.settings import TABLE
from tests.needs import need_program

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
# Runs the program from a folder, as if it were installed there.
INSTALLED = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tally.cli import main; main()"
VARIABLES = {setting.variable for setting in TABLE} | {setting.also for setting in TABLE if setting.also}


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def instructions(name: str) -> list[tuple[str, str]]:
    """The lines of a Dockerfile, those that go on joined: instruction and arguments."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", read(name), flags=re.MULTILINE))
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(read("compose.yaml"))
    return found


def pins(path: Path) -> dict[str, set[str]]:
    """Each pinned package and its hashes."""
    parts = re.split(r"^(?=[a-z0-9])", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {part.split(" ")[0]: set(re.findall(r"sha256:\w+", part)) for part in parts}


def test_the_image_has_what_was_tested_and_no_tools_for_tests() -> None:
    """Its lock is a part of the project's: the same versions with the same hashes."""
    image, project = pins(DEPLOY / "requirements.lock"), pins(ROOT / "requirements.lock")
    assert {name: hashes for name, hashes in image.items() if project.get(name) != hashes} == {}
    assert [name for name in image if name.startswith(("pytest", "mypy", "ruff", "hypothesis"))] == []


def test_the_image_runs_as_nobody_special_and_says_how_it_is() -> None:
    steps = instructions("Dockerfile")
    names = [name for name, _ in steps]
    assert names.count("FROM") == 2
    assert dict(steps)["USER"] == "tally"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "/health" in dict(steps)["HEALTHCHECK"]
    assert dict(steps)["CMD"] == '["serve"]'
    assert set(re.findall(r"\b(TALLY_\w+)=", dict(steps)["ENV"])) <= VARIABLES


def test_the_image_copies_only_what_is_there() -> None:
    for name, arguments in instructions("Dockerfile"):
        if name == "COPY" and "--from" not in arguments:
            assert [source for source in arguments.split()[:-1] if not (ROOT / source).exists()] == []


def test_the_package_is_built_as_the_image_builds_it(tmp_path: Path) -> None:
    """The last step of the first stage, in a plain folder with only what was copied: a wheel with all that the program needs."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    python = sys.executable
    command = [python, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
    (tmp_path / "installed").chmod(0o500)
    told = subprocess.run(
        [python, "-I", "-c", INSTALLED, str(tmp_path / "installed"), "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", told.stdout)
    missing = [
        path for path in (ROOT / "src" / "tally").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        and not (tmp_path / "installed" / path.relative_to(ROOT / "src")).exists()
    ]  # fmt: skip
    assert missing == []


def test_services_lean_only_on_each_other_and_keep_what_is_declared(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"tables", "tally", "dynamodb", "postgres", "redis"}
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name
        kept = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert set(kept) <= set(compose["volumes"]), name
        for leant_on, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in services[leant_on], name


def test_the_server_beside_them_is_locked_up_and_told_only_what_it_knows(compose: dict[str, Any]) -> None:
    server = compose["services"]["tally"]
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]
    told = {name for name in server["environment"] if not name.startswith("AWS_")}
    assert told <= VARIABLES
    commands = get_group(cli).commands
    assert server["command"][0] in commands
    assert compose["services"]["tables"]["command"][0] in commands
    example = re.findall(r"^(TALLY_\w+)=", read("example.env"), re.MULTILINE)
    assert example
    assert set(example) <= VARIABLES


def test_the_unit_is_hardened_and_sets_what_there_is() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(read("tally.service"))
    service = unit["Service"]
    assert service["ExecStart"].split()[1] in get_group(cli).commands
    assert set(re.findall(r"(TALLY_\w+)=", service["Environment"])) <= VARIABLES
    wanted = {"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "PrivateTmp": "yes", "UMask": "0077"}
    assert {name: service[name] for name in wanted} == wanted


def test_systemd_itself_understands_the_unit(tmp_path: Path) -> None:
    """Verified with a program that is there in the place of the one that will be."""
    analyze = need_program("systemd-analyze", "systemd")
    (tmp_path / "tally.service").write_text(
        read("tally.service").replace("/opt/tally/bin/tally", str(need_program("true", "coreutils")))
    )
    done = subprocess.run([analyze, "verify", tmp_path / "tally.service"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
