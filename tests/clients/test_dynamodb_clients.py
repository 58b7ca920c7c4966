"""Public DynamoDB clients work on the served store: from Python, JavaScript and the command line.

`make test` runs each client through tables, conditional writes, queries with paging and
transactions on few items; `make judge` does the same with thousands. boto3 has its tests in
`tests/store/test_wire.py`.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import boto3
import pytest

from tally.testing import DynamoDBEndpoint, dynamodb_endpoint
from tests.clients import generators
from tests.needs import need_program, skip_or_fail

FOLDER: Final = Path(__file__).parent / "dynamodb"
PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "dynamodb.md"
COUNTS: Final = [30, pytest.param(3_000, marks=pytest.mark.judge)]
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
    "AWS_DEFAULT_REGION": "local",
}
START_SECONDS: Final = 60.0


@pytest.fixture
def endpoint() -> Iterator[DynamoDBEndpoint]:
    with dynamodb_endpoint() as running:
        yield running


@pytest.fixture(scope="session")
def python_clients() -> Path:
    """The `bin` of an environment with the pinned clients: their versions conflict with ours."""
    pins = FOLDER / "requirements.txt"
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tally"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"python-clients-{digest}"
    with (cache / "python-clients.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(pins, folder)
    return folder / "bin"


def _install(pins: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder)
    uv = Path(sys.executable).parent / "uv"
    command = [str(uv), "pip", "install", "--quiet", "--require-hashes", "-r", str(pins)]
    command += ["--python", str(folder / "bin" / "python")]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    if installed.returncode:
        skip_or_fail(f"uv pip install failed: {installed.stderr[-500:]}")
    (folder / "complete").touch()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("client", ["lib-dynamodb", "electrodb", "dynamodb-toolbox"])
def test_a_javascript_client_works(
    client: str, count: int, endpoint: DynamoDBEndpoint, tmp_path: Path
) -> None:
    shutil.copy(FOLDER / "program.mjs", tmp_path)
    output = run_node(tmp_path, "program.mjs", client, DYNAMODB_URL=endpoint.url, ITEMS=str(count))
    assert "done" in output


def run_node(folder: Path, *arguments: str, **variables: str) -> str:
    node = str(need_program("node", "nodejs"))
    (folder / "node_modules").symlink_to(generators.node_modules(FOLDER))
    return generators.run([node, *arguments], folder, **variables)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("client", ["pynamodb", "aiodynamo"])
def test_a_python_client_works(
    client: str, count: int, endpoint: DynamoDBEndpoint, python_clients: Path, tmp_path: Path
) -> None:
    program = str(FOLDER / f"{client}_program.py")
    command = [str(python_clients / "python"), program, endpoint.url, str(count)]
    assert "done" in generators.run(command, tmp_path, **CREDENTIALS)


def test_the_command_line_example_of_the_page_runs(
    endpoint: DynamoDBEndpoint, python_clients: Path, tmp_path: Path
) -> None:
    example = read_example("bash", "aws dynamodb create-table")
    script = "set -e\n" + example.replace("http://127.0.0.1:8000", endpoint.url)
    path = f"{python_clients}{os.pathsep}{os.environ['PATH']}"
    output = generators.run(["sh", "-c", script], tmp_path, PATH=path, AWS_PAGER="")
    assert output.endswith("Nina Simone\n")


def test_the_javascript_example_of_the_page_runs(
    endpoint: DynamoDBEndpoint, tmp_path: Path
) -> None:
    example = read_example("javascript", "DynamoDBDocumentClient")
    program = example.replace("http://127.0.0.1:8000", endpoint.url)
    (tmp_path / "example.mjs").write_text(program, encoding="utf-8")
    output = run_node(tmp_path, "example.mjs")
    assert re.search(r"title: 'Pastel Blues', year: 1965|year: 1965, title", output), output


def read_example(language: str, text: str) -> str:
    page = PAGE.read_text(encoding="utf-8")
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    (found,) = [block for block in blocks if text in block]
    return found


def test_dynamodb_admin_shows_a_table_and_its_items(endpoint: DynamoDBEndpoint) -> None:
    table = boto3.resource("dynamodb", **endpoint.boto3_arguments).create_table(
        TableName="shown",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    table.put_item(Item={"pk": "an item of the table"})
    with dynamodb_admin(endpoint.url) as url:
        assert "shown" in read_page(f"{url}/")
        assert "an item of the table" in read_page(f"{url}/tables/shown/items")


@contextlib.contextmanager
def dynamodb_admin(endpoint: str) -> Iterator[str]:
    modules = generators.node_modules(FOLDER)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    variables = {"DYNAMO_ENDPOINT": endpoint, "PORT": str(port), "HOST": "127.0.0.1"}
    variables |= {"AWS_REGION": "local"} | CREDENTIALS
    with tempfile.TemporaryFile() as log:
        command = [str(modules / ".bin" / "dynamodb-admin")]
        environment = os.environ | variables
        with subprocess.Popen(command, env=environment, stdout=log, stderr=log) as program:
            try:
                wait_until_served(program, f"http://127.0.0.1:{port}/")
                yield f"http://127.0.0.1:{port}"
            finally:
                program.terminate()


def wait_until_served(program: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert program.poll() is None, "dynamodb-admin has ended"
        try:
            read_page(url)
        except OSError:
            assert time.monotonic() < deadline, "dynamodb-admin does not respond"
            time.sleep(0.05)  # polls a program that does not say when it listens
        else:
            return


def read_page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60.0) as response:  # noqa: S310 - on this machine
        content: bytes = response.read()
    return content.decode()
