"""The files in `deploy` match the program: image, compose services and systemd unit."""

import configparser
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]  # has no types; a dependency of a test tool
from typer.main import get_group
from typer.testing import CliRunner

from tally.cli import cli
from tally.embedded.launch import NOBODY
from tally.settings import SETTINGS
from tests.needs import need_program, skip_or_fail
from tests.test_cli import read_until

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
VARIABLES = {setting.variable for setting in SETTINGS} | {
    setting.alias for setting in SETTINGS if setting.alias
}


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def instructions(name: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", read(name), flags=re.MULTILINE))
    return [
        (line.split()[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()
    ]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(read("compose.yaml"))
    return found


def pins(path: Path) -> dict[str, set[str]]:
    """Return the hashes of each pinned package."""
    parts = re.split(r"^(?=[a-z0-9])", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {part.split(" ")[0]: set(re.findall(r"sha256:\w+", part)) for part in parts}


def test_the_image_has_the_tested_packages_and_no_test_tools() -> None:
    """Its lock is a subset of the project's lock, with the same versions and hashes."""
    image, project = pins(DEPLOY / "requirements.lock"), pins(ROOT / "requirements.lock")
    assert {name: hashes for name, hashes in image.items() if project.get(name) != hashes} == {}
    assert [
        name for name in image if name.startswith(("pytest", "mypy", "ruff", "hypothesis"))
    ] == []


def test_image_has_the_console_and_no_simulators() -> None:
    names = {pin.split("==")[0] for pin in pins(DEPLOY / "requirements.lock")}
    assert "nicegui" in names
    assert "hpack" not in names


def test_the_image_runs_unprivileged_and_has_a_health_check() -> None:
    steps = instructions("Dockerfile")
    names = [name for name, _ in steps]
    assert names.count("FROM") == 2
    assert dict(steps)["USER"] == "tally"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "/health" in dict(steps)["HEALTHCHECK"]
    assert dict(steps)["CMD"] == '["serve"]'
    assert set(re.findall(r"\b(TALLY_\w+)=", dict(steps)["ENV"])) <= VARIABLES


def test_the_image_has_pinned_bases_and_hashed_packages() -> None:
    """The digests come from `make images`; without them, the build fails."""
    steps = instructions("Dockerfile")
    assert steps[0] == ("ARG", "PYTHON_IMAGE")
    assert {arguments.split()[0] for name, arguments in steps if name == "FROM"} == {
        "${PYTHON_IMAGE}"
    }
    installs = [arguments for name, arguments in steps if name == "RUN" and "/pip " in arguments]
    assert len(installs) == 4
    for install in installs:
        assert ("--only-binary=:all: --require-hashes" in install) != ("--no-index" in install)
    build_system = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tools, project = pins(DEPLOY / "build-requirements.lock"), pins(ROOT / "requirements.lock")
    assert {re.split("[<>=]", name)[0] for name in build_system["build-system"]["requires"]} <= {
        name.split("==")[0] for name in tools
    }
    assert {name: hashes for name, hashes in tools.items() if project.get(name) != hashes} == {}


def test_the_image_copies_only_existing_files() -> None:
    for name, arguments in instructions("Dockerfile"):
        if name == "COPY" and "--from" not in arguments:
            assert [
                source for source in arguments.split()[:-1] if not (ROOT / source).exists()
            ] == []


def reachable_python() -> str:
    """Return the interpreter for the build; for root, one that an ordinary user can run."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [os.path.realpath(sys.executable), shutil.which(name, path="/usr/local/bin:/usr/bin")]
    trial = ["-c", "import ensurepip, venv"]
    for python in found if os.geteuid() == 0 else found[:1]:
        if python is not None:
            try:
                if (
                    subprocess.run(
                        [python, *trial], **ordinary_user(), capture_output=True, check=False
                    ).returncode
                    == 0
                ):
                    return python
            except PermissionError:
                continue  # in a directory that only root can read
    return skip_or_fail(f"no {name} with venv that an ordinary user can run")


def ordinary_user() -> dict[str, Any]:
    """Return subprocess arguments that run a program as an unprivileged user."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def build(root: Path) -> None:
    """Run the first stage of the image in a directory, with uv (which has a cache) for pip."""
    first_stage = list(
        itertools.takewhile(lambda step: step[0] != "FROM", instructions("Dockerfile")[2:])
    )
    place, program = root, Path(sys.executable).parent / "uv"
    for name, arguments in first_stage:
        if name == "WORKDIR":
            place = root / arguments.lstrip("/")
            place.mkdir(parents=True)
        elif name == "COPY":
            *sources, goal = arguments.split()
            for source in sources:
                copy(ROOT / source, place / goal / source if goal == "./" else place / goal)
        elif name == "RUN":
            line = re.sub(
                r"^python ",
                f"{reachable_python()} ",
                arguments.replace("/opt/", f"{root}/opt/"),
            )
            line = re.sub(
                r"^(\S+)/pip install( --no-cache-dir| --disable-pip-version-check)*",
                rf"{program} pip install --quiet --python \1/python",
                line,
            )
            done = subprocess.run(
                ["sh", "-c", line], cwd=place, capture_output=True, text=True, check=False
            )
            if done.returncode and re.search(
                r"error sending request|Failed to fetch|dns error", done.stderr
            ):
                skip_or_fail(f"the package registry is unreachable: {done.stderr[-300:]}")
            assert done.returncode == 0, (line, done.stderr)


def copy(source: Path, goal: Path) -> None:
    goal.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, goal, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, goal)


@pytest.fixture
def image() -> Iterator[Path]:
    """Build the image's /opt and /var/lib in a directory that all users can read."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        build(root)
        shutil.rmtree(root / "source")
        (root / "var/lib/tally").mkdir(parents=True)
        if os.geteuid() == 0:
            os.chown(root / "var/lib/tally", NOBODY, NOBODY)
        yield root


def in_image(image: Path, **variables: str) -> dict[str, Any]:
    """Return subprocess arguments with only the environment of the image."""
    environment_variables = dict(
        part.split("=", 1) for part in dict(instructions("Dockerfile"))["ENV"].split()
    )
    environment_variables = {
        name: re.sub(r"/(opt|var/lib)/tally", rf"{image}/\1/tally", value)
        for name, value in environment_variables.items()
    }
    environment_variables |= {
        "PATH": environment_variables["PATH"].replace("$PATH", os.defpath),
        "HOME": "/nonexistent",
        "TALLY_HOST": "127.0.0.1",
    }
    return {
        "env": environment_variables | variables,
        "cwd": image / "var/lib/tally",
        **ordinary_user(),
    }


def expect_every_file(image: Path) -> None:
    """Check that all files of the package are installed, including migrations and models."""
    [installed] = (image / "opt/tally/lib").glob("python3*/site-packages/tally")
    ours = {
        path.relative_to(ROOT / "src" / "tally")
        for path in (ROOT / "src" / "tally").rglob("*")
        if path.is_file()
    }
    assert {
        path
        for path in ours
        if "__pycache__" not in path.parts and not (installed / path).is_file()
    } == set()


@pytest.mark.judge
def test_the_image_serves_without_the_sources(image: Path) -> None:
    """Its entry point serves the console as an unprivileged user, is healthy, and stops."""
    expect_every_file(image)
    steps = dict(instructions("Dockerfile"))
    process = in_image(image, TALLY_PORT="0")
    program = shutil.which(json.loads(steps["ENTRYPOINT"])[0], path=process["env"]["PATH"])
    assert program is not None
    demo = subprocess.run([program, "up"], **process, capture_output=True, text=True, check=False)
    assert (demo.returncode, 'needs the extra "demo"' in demo.stderr) == (2, True)
    words = [program, *json.loads(steps["CMD"]), "--console"]
    with subprocess.Popen(words, **process, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = json.loads(read_until(server.stderr, '"listening"').splitlines()[-1])["data"][
                "url"
            ]
            check = json.loads(steps["HEALTHCHECK"].split("CMD ")[1])
            here = in_image(image, TALLY_PORT=url.rpartition(":")[2])
            subprocess.run([image / "opt/tally/bin" / check[0], *check[1:]], **here, check=True)
            assets = expect_assets(url, image / "var/lib/tally/data")
            assert {Path(asset).suffix for asset in assets} >= {".js", ".css"}
            server.terminate()
            assert server.wait(60) == 0
        finally:
            server.kill()
    assert (image / "var/lib/tally/data/store.db").exists()


def expect_assets(url: str, data: Path) -> set[str]:
    """Sign in, and return the assets of the console's page after checking that each exists."""
    form = {"token": (data / "operator.token").read_text(encoding="utf-8").strip()}
    with httpx.Client(base_url=url, timeout=60, follow_redirects=True) as client:
        page = client.post("/console/login", data=form)
        named = set(re.findall(r'"(/console/[^"\s]+\.\w+)"', page.text))
        for path in named:
            assert client.get(path).raise_for_status().content, path
    return named


def test_services_use_only_declared_services_and_volumes(
    compose: dict[str, Any],
) -> None:
    services = compose["services"]
    assert set(services) == {
        "tables",
        "tally",
        "dynamodb-volume",
        "dynamodb",
        "postgres",
        "redis",
    }
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name
        volumes = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert set(volumes) <= set(compose["volumes"]), name
        for dependency, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in services[dependency], (
                name
            )


def test_every_service_is_unprivileged_and_has_a_memory_limit(compose: dict[str, Any]) -> None:
    """Only the one that gives a new volume to its user is root, with nothing but that right."""
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"]), name
        assert service["pids_limit"] > 0, name
        if name == "dynamodb-volume":
            assert service["cap_add"] == ["CHOWN", "DAC_READ_SEARCH"]
            assert service["network_mode"] == "none"
        else:
            assert re.split(":", service["user"])[0] not in {"0", "root"}, name
            assert "cap_add" not in service, name
        assert not service.get("privileged"), name


def test_images_of_other_projects_are_pinned_by_make_images(compose: dict[str, Any]) -> None:
    """Compose refuses to start without the digests."""
    variables = set(re.findall(r"^(\w+_IMAGE) \S+:\S+$", read("images.txt"), re.MULTILINE))
    images = {service["image"] for service in compose["services"].values()} - {"tally:local"}
    images.add(compose["services"]["tables"]["build"]["args"]["PYTHON_IMAGE"])
    assert images == {f"${{{variable}:?run make images}}" for variable in variables}


def test_make_images_writes_digests_or_nothing(tmp_path: Path) -> None:
    """A program in place of docker answers like a registry, and then like one without an image."""
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\necho sha256:{'a1' * 32}\n")
    docker.chmod(0o755)
    command = [ROOT / "scripts" / "pin-images", DEPLOY / "images.txt", tmp_path / "images.env"]
    environment_variables = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(command, env=environment_variables, check=True, capture_output=True)
    pinned = (tmp_path / "images.env").read_text(encoding="utf-8")
    assert f"POSTGRES_IMAGE=postgres:18@sha256:{'a1' * 32}\n" in pinned
    docker.write_text("#!/bin/sh\necho 'no such manifest'\n")
    done = subprocess.run(command, env=environment_variables, check=False, capture_output=True)
    assert done.returncode != 0
    assert b"no digest for python:3.12-slim" in done.stderr
    assert (tmp_path / "images.env").read_text(encoding="utf-8") == pinned


def test_the_tally_service_uses_known_settings(compose: dict[str, Any]) -> None:
    server = compose["services"]["tally"]
    environment_variables = {name for name in server["environment"] if not name.startswith("AWS_")}
    assert environment_variables <= VARIABLES
    commands = get_group(cli).commands
    assert server["command"][0] in commands
    assert compose["services"]["tables"]["command"][0] in commands
    example = re.findall(r"^(TALLY_\w+)=", read("example.env"), re.MULTILINE)
    assert example
    assert set(example) <= VARIABLES


def test_the_systemd_unit_is_hardened_and_uses_known_settings() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(read("tally.service"))
    service = unit["Service"]
    assert service["ExecStart"].split()[1] in get_group(cli).commands
    assert set(re.findall(r"(TALLY_\w+)=", service["Environment"])) <= VARIABLES
    expected = {
        "DynamicUser": "yes",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "PrivateTmp": "yes",
        "UMask": "0077",
    }
    assert {name: service[name] for name in expected} == expected


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Verified with an existing program instead of Tally."""
    analyze = need_program("systemd-analyze", "systemd")
    (tmp_path / "tally.service").write_text(
        read("tally.service").replace(
            "/opt/tally/bin/tally", str(need_program("true", "coreutils"))
        )
    )
    done = subprocess.run(
        [analyze, "verify", tmp_path / "tally.service"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_log_groups_are_those_of_the_services() -> None:
    """The scoreboard's is specified; entries are kept for 30 days."""
    output = CliRunner().invoke(cli, ["schema", "terraform"]).stdout
    groups = dict(re.findall(r'= "(/ecs/[^"]+)"\n  retention_in_days = (\d+)', output))
    assert groups == dict.fromkeys(
        ("/ecs/collect", "/ecs/cricket", "/ecs/devices", "/ecs/scoreboard-api"), "30"
    )
