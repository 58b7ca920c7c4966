"""Public generators make clients of the OpenAPI document without a warning, and the clients work.

`make test` calls two APIs of an instance without simulators; `make judge` checks the types of every
operation strictly and calls all backends.
"""

import json
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.clients import generators
from tests.test_up import Demo, demo, wait_for

ALL_BACKENDS = "collect,cricket,devices,scoreboard"
SHORT = ("instance", "devices")
FULL = ("instance", "devices", "scoreboard", "cricket", "collect")


@dataclass(frozen=True, slots=True)
class ClientServer:
    """A running server, its OpenAPI document in a file, and credentials by security scheme."""

    url: str
    document: Path
    credentials: dict[str, str]

    @property
    def variables(self) -> dict[str, str]:
        return {"TALLY_URL": self.url, "TALLY_CREDENTIALS": json.dumps(self.credentials)}

    def operation_ids(self) -> set[str]:
        paths = json.loads(self.document.read_bytes())["paths"]
        return {
            operation["operationId"] for methods in paths.values() for operation in methods.values()
        }


def client_server(running: Demo, folder: Path) -> ClientServer:
    document = folder / "openapi.json"
    document.write_text(json.dumps(running.get("/openapi.json")), encoding="utf-8")
    files = {"operator": "operator.token", "game_server": "scoreboard-internal.key"}
    credentials = {
        scheme: (running.data / name).read_text(encoding="utf-8").strip()
        for scheme, name in files.items()
    }
    return ClientServer(running.url, document, credentials)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientServer]:
    """Run all backends without simulators."""
    folder = tmp_path_factory.mktemp("alone")
    with demo(folder, "--no-sim", TALLY_BACKENDS=ALL_BACKENDS) as running:
        yield client_server(running, folder)
        running.stop(signal.SIGTERM)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientServer]:
    """Run the whole demo, with a cricket user and a collect user who are signed in."""
    folder = tmp_path_factory.mktemp("simulated")
    with demo(folder, TALLY_BACKENDS=ALL_BACKENDS) as running:
        server = client_server(running, folder)
        user = cricket_token(running)
        server.credentials["cricket_user"] = user
        wait_for(lambda: live_matches(running, user), 1)
        server.credentials["collect_session"] = collect_session(running)
        yield server
        running.stop(signal.SIGTERM)


def control_provider(
    running: Demo, backend: str, path: str, body: dict[str, str]
) -> httpx.Response:
    """Send a request to the control API of the simulated sign-in provider."""
    provider = re.search(rf"Sign-in for {backend}.*?(http://\S+)", running.output)
    assert provider is not None, running.output
    response = httpx.post(provider[1] + path, json=body, headers={"X-Tally-Control": "yes"})
    return response.raise_for_status()


def cricket_token(running: Demo) -> str:
    body = {"sub": "generated-client", "use": "access"}
    return str(control_provider(running, "cricket", "/_sim/tokens", body).json()["token"])


def live_matches(running: Demo, user: str) -> set[str]:
    page = running.get("/cricket/matches/live", Authorization=f"Bearer {user}")
    return {match["matchId"] for match in page["items"]}


def collect_session(running: Demo) -> str:
    control_provider(running, "collect", "/_sim/approval", {"who": "Ana Silva"})
    with httpx.Client(follow_redirects=True, timeout=30) as browser:
        response = browser.get(f"{running.url}/collect/auth/login")
        assert "cc_session" in browser.cookies, (response.status_code, response.text)
        return browser.cookies["cc_session"]


def run_python(server: ClientServer, folder: Path, uses: tuple[str, ...]) -> int:
    program = str(generators.FOLDER / "python_program.py")
    variables = server.variables | {"PYTHONPATH": str(folder)}
    return int(generators.run([sys.executable, program, *uses], folder, **variables))


def run_typescript(server: ClientServer, folder: Path, uses: tuple[str, ...]) -> int:
    return int(generators.run(["node", "program.js", *uses], folder, **server.variables))


def expect_no_warning(output: str) -> None:
    assert not re.search("warn|error|skip|unable", output, re.IGNORECASE), output


def test_openapi_python_client_works(alone: ClientServer, tmp_path: Path) -> None:
    expect_no_warning(generators.generate_python(alone.document, tmp_path))
    assert run_python(alone, tmp_path, SHORT) == 9


def test_openapi_typescript_and_fetch_work(alone: ClientServer, tmp_path: Path) -> None:
    expect_no_warning(generators.generate_typescript(alone.document, tmp_path))
    generators.compile_typescript(tmp_path)
    assert run_typescript(alone, tmp_path, SHORT) == 7


@pytest.mark.judge
def test_openapi_python_client_works_with_all_backends(
    simulated: ClientServer, tmp_path: Path
) -> None:
    expect_no_warning(generators.generate_python(simulated.document, tmp_path))
    modules = (tmp_path / "tally_client" / "api").glob("*/[!_]*.py")
    assert {module.stem for module in modules} == simulated.operation_ids()
    generators.check_python(tmp_path)
    assert run_python(simulated, tmp_path, FULL) == 23


@pytest.mark.judge
def test_openapi_typescript_and_fetch_work_with_all_backends(
    simulated: ClientServer, tmp_path: Path
) -> None:
    expect_no_warning(generators.generate_typescript(simulated.document, tmp_path))
    types = (tmp_path / "schema.d.ts").read_text(encoding="utf-8")
    operations = types.partition("export interface operations {")[2]
    assert set(re.findall(r"^    (\w+): \{", operations, re.MULTILINE)) == simulated.operation_ids()
    generators.compile_typescript(tmp_path)
    assert run_typescript(simulated, tmp_path, FULL) == 21
