"""`tally operator` as a user runs it, beside a running server."""

import json
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tally.cli import cli
from tests.instance.conftest import StoreTarget
from tests.needs import need_program
from tests.test_cli import TIMEOUT_SECONDS, environment, read_until, started, tally


@pytest.fixture
async def store(store_target: StoreTarget) -> dict[str, str]:
    """Environment variables of an empty store, on every engine."""
    settings = await store_target.new_settings()
    if settings.dynamodb_endpoint is None:
        return {}
    return {
        "TALLY_STORE_ENGINE": "dynamodb",
        "TALLY_DYNAMODB_ENDPOINT": settings.dynamodb_endpoint,
        "TALLY_DYNAMODB_REGION": settings.dynamodb_region,
        "TALLY_DYNAMODB_TABLE_PREFIX": settings.dynamodb_table_prefix,
    }


@contextmanager
def server(directory: Path, *words: str, **variables: str) -> Iterator[tuple[str, Any]]:
    """Run `tally serve`; yield its URL and the program."""
    options = {"TALLY_PORT": "0", "TALLY_LOG_FORMAT": "json"} | variables
    with started(directory, "serve", *words, **options) as program:
        assert program.stderr is not None
        line = read_until(program.stderr, "listening").splitlines()[-1]
        yield json.loads(line)["data"]["url"], program


def status(url: str, token: str, method: str = "GET") -> int:
    request = urllib.request.Request(  # noqa: S310  (an address of this machine)
        f"{url}/devices/api-keys",
        method=method,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        data=b"{}" if method == "POST" else None,
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def audit(directory: Path, *words: str, **variables: str) -> list[dict[str, Any]]:
    done = tally(directory, "operator", "audit", "--json", *words, **variables)
    assert done.returncode == 0, done.stderr
    records: list[dict[str, Any]] = json.loads(done.stdout)
    return records


def invoke(directory: Path, *words: str, **variables: str) -> Result:
    """Run a command in this process, which is faster."""
    return CliRunner().invoke(cli, words, env=environment(directory, **variables))


def add(directory: Path, name: str, role: str, *words: str, **variables: str) -> str:
    done = tally(directory, "operator", "add", name, "--role", role, *words, **variables)
    assert done.returncode == 0, done.stderr
    token = done.stdout.strip()
    assert re.fullmatch(rf"tally-{name}-[0-9a-f]{{64}}", token)
    assert token not in done.stderr
    return token


def test_operators_are_added_and_removed_while_the_server_runs(
    tmp_path: Path, store: dict[str, str]
) -> None:
    """They take effect at once, and removal within five seconds; all of it is audited."""
    with server(tmp_path, **store) as (url, _):
        viewer = add(tmp_path, "vera", "viewer", **store)
        operator = add(tmp_path, "ada", "operator", "--expires", "12h", **store)
        assert [status(url, viewer), status(url, viewer, "POST")] == [200, 403]
        assert [status(url, operator), status(url, operator, "POST")] == [200, 201]
        listed = tally(tmp_path, "operator", "list", "--json", **store).stdout
        accounts = {account["name"]: account for account in json.loads(listed)}
        assert set(accounts) == {"admin", "ada", "vera"}
        assert accounts["vera"]["role"] == "viewer"
        assert accounts["ada"]["last_used_at"] is not None
        assert accounts["ada"]["expires_at"] > accounts["ada"]["created_at"]
        assert "hash" not in listed
        assert tally(tmp_path, "operator", "remove", "ada", **store).returncode == 0
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while status(url, operator) != 401:
            assert time.monotonic() < deadline
        records = audit(tmp_path, **store)
        changes = [(record["action"], record["target"], record["outcome"]) for record in records]
        assert changes == [
            ("operator_remove", "ada", "succeeded"),
            ("POST /devices/api-keys", "/devices/api-keys", "succeeded"),
            ("operator_add", "ada", "succeeded"),
            ("operator_add", "vera", "succeeded"),
            ("operator_add", "admin", "succeeded"),
        ]
        assert records[0]["operator"].startswith("cli:")
        assert records[1]["request_id"]
        assert [record["operator"] for record in audit(tmp_path, "--operator", "ada", **store)] == [
            "ada"
        ]
        for secret in (viewer, operator):
            assert secret not in str(records)


def test_the_printed_command_uses_the_token(tmp_path: Path) -> None:
    """The token itself appears in no output."""
    need_program("curl", "curl")
    bash = need_program("bash", "bash")
    with server(tmp_path) as (_, program):
        assert program.stdout is not None
        line = program.stdout.readline()
        command = line.removeprefix("To use the operator token: ")
        done = subprocess.run(
            [bash, "-c", f"{command.strip()} --fail --silent"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=True,
        )
        assert isinstance(json.loads(done.stdout), dict)
        program.send_signal(signal.SIGTERM)
        output, errors = program.communicate(timeout=TIMEOUT_SECONDS)
        token = (tmp_path / "data" / "operator.token").read_text(encoding="utf-8").strip()
        assert token not in line + output + errors
        actions = [json.loads(entry)["action"] for entry in errors.splitlines()]
        assert actions[-2:] == ["shutdown_started", "server_stopped"]


def test_a_change_that_a_crash_interrupted_stays_in_the_audit_trail(tmp_path: Path) -> None:
    """The server is killed while it waits for SportMonks."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        variables = {
            "TALLY_BACKENDS": "cricket",
            "TALLY_CRICKET_SPORTMONKS_URL": url,
            "TALLY_CRICKET_SPORTMONKS_TOKEN": "x",
            "TALLY_CRICKET_SPORTMONKS_TIMEOUT": "60",
        }
        with server(tmp_path, **variables) as (address, program):
            token = (tmp_path / "data" / "operator.token").read_text(encoding="utf-8").strip()
            request = urllib.request.Request(  # noqa: S310  (an address of this machine)
                f"{address}/cricket/admin/sync",
                method="POST",
                headers={
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/json",
                    "X-Request-Id": "interrupted",
                },
                data=b"{}",
            )
            caller = threading.Thread(target=ignore_failure, args=(request,))
            caller.start()
            while not change(tmp_path, "interrupted", **variables):
                assert caller.is_alive()
            program.kill()
            program.wait(TIMEOUT_SECONDS)
            caller.join(TIMEOUT_SECONDS)
        (record,) = change(tmp_path, "interrupted", **variables)
        assert (record["operator"], record["action"], record["outcome"]) == (
            "admin",
            "POST /cricket/admin/sync",
            "started",
        )


def change(directory: Path, request_id: str, **variables: str) -> list[dict[str, Any]]:
    """Return the recorded change of a request, if any."""
    trail = json.loads(invoke(directory, "operator", "audit", "--json", **variables).stdout)
    return [record for record in trail if record["request_id"] == request_id]


def ignore_failure(request: urllib.request.Request) -> None:
    with pytest.raises((OSError, urllib.error.URLError)):
        urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)  # noqa: S310


@pytest.mark.judge
def test_removing_the_last_operator_warns_and_a_start_creates_none(tmp_path: Path) -> None:
    add(tmp_path, "ada", "operator", "--expires", "never")
    add(tmp_path, "vera", "viewer")
    removed = tally(tmp_path, "operator", "remove", "ada")
    assert (removed.returncode, removed.stdout) == (0, "Operator ada removed.\n")
    assert "No operator who may make changes remains" in removed.stderr
    assert "tally operator add NAME --role operator" in removed.stderr
    with server(tmp_path) as (url, _):
        assert not (tmp_path / "data" / "operator.token").exists()
        assert status(url, add(tmp_path, "rescue", "operator"), "POST") == 201


def test_control_characters_cannot_forge_a_line_of_the_audit_trail(tmp_path: Path) -> None:
    tally(tmp_path, "operator", "remove", "x\n2026-01-01T00:00:00Z  eve\x1b[2K")
    audited = invoke(tmp_path, "operator", "audit").stdout
    assert re.fullmatch(
        r"\S+Z  cli:\S+  operator_remove"
        r"  x\\n2026-01-01T00:00:00Z  eve\\x1b\[2K  failed: invalid\n",
        audited,
    )


def test_the_list_is_readable(tmp_path: Path) -> None:
    invoke(tmp_path, "operator", "add", "ada", "--role", "operator", "--expires", "never")
    listed = invoke(tmp_path, "operator", "list").stdout
    assert re.fullmatch(r"ada  operator  created \S+Z  expires never  last used never\n", listed)
    audited = invoke(tmp_path, "operator", "audit").stdout
    assert re.fullmatch(r"\S+Z  cli:\S+  operator_add  ada  succeeded\n", audited)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add", "Ada", "--role", "viewer"), "name must have 1 to 32"),
        (("add", "automation", "--role", "viewer"), "reserved for TALLY_OPERATOR_TOKEN"),
        (("add", "ada", "--role", "chief"), "viewer"),
        (("add", "ada"), "--role"),
        (
            ("add", "ada", "--role", "viewer", "--expires", "soon"),
            "--expires: must be a number of days",
        ),
        (("add", "ada", "--role", "viewer", "--expires", "0d"), "90d or 12h, or never"),
        (("remove", "nobody"), "Operator nobody does not exist"),
    ],
)
def test_a_wrong_command_changes_nothing(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = invoke(tmp_path, "operator", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())
    assert json.loads(invoke(tmp_path, "operator", "list", "--json").stdout) == []


@pytest.mark.parametrize("token", ["x" * 31, "x" * 40 + ".", "x" * 40 + "ü", "x y" * 20])
def test_an_unusable_automation_token_is_a_settings_error(tmp_path: Path, token: str) -> None:
    """Too short, or with characters that make it another kind of credential or no header value."""
    done = invoke(tmp_path, "serve", TALLY_OPERATOR_TOKEN=token)
    assert done.exit_code == 2
    assert "TALLY_OPERATOR_TOKEN must have at least 32 characters" in done.stderr
    assert token not in done.stderr


def test_jobs_that_a_person_runs_are_audited(tmp_path: Path) -> None:
    assert invoke(tmp_path, "job", "run", "ttl-sweep").exit_code == 0
    assert invoke(tmp_path, "job", "run", "no-such-job").exit_code != 0
    trail = json.loads(invoke(tmp_path, "operator", "audit", "--json").stdout)
    records = [(record["action"], record["target"], record["outcome"]) for record in trail]
    assert records == [
        ("job run", "no-such-job", "failed"),
        ("job run", "ttl-sweep", "succeeded"),
    ]
