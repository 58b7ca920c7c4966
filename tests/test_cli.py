"""The command line as a user runs it: output, exit codes and shutdown."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tally import __version__
from tally.cli import cli
from tally.settings import SETTINGS, settings_markdown
from tests.kit.raw_client import RawResponse, connected

PROGRAM = [sys.executable, "-m", "tally.cli"]
TIMEOUT_SECONDS = 60


def environment(directory: Path, **variables: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    return {
        **ours,
        "TALLY_DATA_DIR": str(directory / "data"),
        "TALLY_BACKENDS": "devices",
        "TALLY_SHUTDOWN_DELAY": "0",
        "COLUMNS": "200",
        **variables,
    }


def tally(directory: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*PROGRAM, *words],
        env=environment(directory, **variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


@contextmanager
def started(
    directory: Path, *words: str, errors_to: str | None = None, **variables: str
) -> Iterator["subprocess.Popen[str]"]:
    """Run the program, and kill it at the end if it still runs."""
    with ExitStack() as files:
        program = subprocess.Popen(
            [*PROGRAM, *words],
            env=environment(directory, **variables),
            stdout=subprocess.PIPE,
            stderr=files.enter_context(Path(errors_to).open("w")) if errors_to else subprocess.PIPE,
            text=True,
        )
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def read_until(stream: Iterator[str], words: str) -> str:
    """Return the output up to the line that contains `words`."""
    output = ""
    for line in stream:
        output += line
        if words in line:
            return output
    raise AssertionError(f"the program ended without printing {words!r}: {output}")


def test_up_prints_its_urls_and_shuts_down_gracefully(tmp_path: Path) -> None:
    """It responds when it prints them; Ctrl-C ends it with exit code 0, like SIGTERM (test_up)."""
    port = free_port()
    with started(tmp_path, "up", "--port", str(port)) as program:
        assert program.stdout is not None
        output = read_until(program.stdout, "Press Ctrl-C to stop")
        for path in ("/docs", "/health", "/health/ready", "/metrics"):
            assert f"http://127.0.0.1:{port}{path}" in output
        assert str(tmp_path / "data") in output
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready") as response:
            assert json.load(response)["status"] == "ready"
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=TIMEOUT_SECONDS)
        assert program.returncode == 0
        assert errors == ""


async def test_serve_reports_not_ready_before_it_closes_its_port(tmp_path: Path) -> None:
    """Load balancers take it out meanwhile; requests are still answered."""
    variables = {"TALLY_PORT": "0", "TALLY_LOG_FORMAT": "json", "TALLY_SHUTDOWN_DELAY": "3"}
    with started(tmp_path, "serve", **variables) as program:
        assert program.stderr is not None
        url = json.loads(read_until(program.stderr, "listening"))["data"]["url"]
        program.send_signal(signal.SIGTERM)
        response = await get_once(url, "/health/ready")
        while response.status == 200:
            response = await get_once(url, "/health/ready")
        assert (response.status, json.loads(response.body)["status"]) == (503, "stopping")
        response = await get_once(url, "/health")
        assert (response.status, response.headers["connection"]) == (200, "close")
        program.communicate(timeout=TIMEOUT_SECONDS)
        assert program.returncode == 0
        with pytest.raises(ConnectionRefusedError):
            await get_once(url, "/health")


def test_a_second_signal_ends_serve_at_once_without_a_traceback(tmp_path: Path) -> None:
    variables = {"TALLY_PORT": "0", "TALLY_LOG_FORMAT": "json", "TALLY_SHUTDOWN_DELAY": "3600"}
    with started(tmp_path, "serve", **variables) as program:
        assert program.stderr is not None
        read_until(program.stderr, "listening")
        program.send_signal(signal.SIGTERM)
        read_until(program.stderr, "shutdown_started")
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=TIMEOUT_SECONDS)
        assert (program.returncode, errors) == (128 + signal.SIGINT, "")


async def get_once(url: str, path: str) -> RawResponse:
    async with connected(url) as client:
        return await client.get(path)


def test_serve_logs_json_and_reads_its_port_from_the_environment(tmp_path: Path) -> None:
    with started(tmp_path, "serve", TALLY_PORT="0", TALLY_LOG_FORMAT="json") as program:
        assert program.stderr is not None
        line = json.loads(read_until(program.stderr, "listening"))
        assert line["action"] == "listening"
        port = line["data"]["url"].removeprefix("http://127.0.0.1:")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as response:
            assert response.status == 200
        program.send_signal(signal.SIGTERM)
        output, _ = program.communicate(timeout=TIMEOUT_SECONDS)
        assert program.returncode == 0
        assert output == (
            "To use the operator token: curl -H"
            f' "Authorization: Bearer $(cat {tmp_path}/data/operator.token)"'
            f' "http://127.0.0.1:{port}/devices/devices"\n'
        )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
async def test_serve_answers_requests_when_its_log_cannot_be_written(tmp_path: Path) -> None:
    """Every write to /dev/full fails as on a full disk."""
    port = free_port()
    variables = {"TALLY_PORT": str(port), "TALLY_ACCESS_LOG": "true", "TALLY_LOG_FORMAT": "json"}
    with started(tmp_path, "serve", errors_to="/dev/full", **variables) as program:
        await wait_until_listening(port)
        async with connected(f"http://127.0.0.1:{port}") as client:
            statuses = [(await client.get("/health")).status for _ in range(3)]
            assert [*statuses, (await client.get("/missing")).status] == [200, 200, 200, 404]
        program.send_signal(signal.SIGTERM)
        assert program.wait(TIMEOUT_SECONDS) == 0


async def test_serve_answers_and_stops_when_nobody_reads_its_log(tmp_path: Path) -> None:
    """A pipe holds 64 KB, which are some 160 lines of the access log."""
    variables = {"TALLY_PORT": "0", "TALLY_ACCESS_LOG": "true", "TALLY_LOG_FORMAT": "json"}
    with started(tmp_path, "serve", **variables) as program:
        assert program.stderr is not None
        url = json.loads(read_until(program.stderr, "listening"))["data"]["url"]
        async with connected(url) as client:
            statuses = [(await client.get("/health/ready?" + "x" * 500)).status for _ in range(500)]
        assert statuses == [200] * 500
        program.send_signal(signal.SIGTERM)
        assert program.wait(TIMEOUT_SECONDS) == 0


async def wait_until_listening(port: int) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            with suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


def test_a_backup_is_created_online_and_restored_elsewhere(tmp_path: Path) -> None:
    """Exit code 2 means not started, 1 failed; a directory in use is never replaced."""
    with started(tmp_path, "serve", TALLY_PORT="0", TALLY_LOG_FORMAT="json") as program:
        assert program.stderr is not None
        read_until(program.stderr, "listening")
        done = tally(tmp_path, "backup", str(tmp_path / "backup.tar"))
        assert (done.returncode, done.stderr) == (0, "")
        assert "backup.tar" in done.stdout
        misnamed = tally(tmp_path, "backup", f"{tmp_path}/backups/")
        assert misnamed.returncode == 2
        assert "backups/ is not a directory; create it" in misnamed.stderr
        rejected = tally(tmp_path, "restore", str(tmp_path / "backup.tar"))
        assert rejected.returncode == 2
        assert "A program is running on" in rejected.stderr
        fresh = tally(tmp_path, "up", "--fresh", "--port", "0")
        assert fresh.returncode == 2
        assert "is in use" in fresh.stderr
    other = {"TALLY_DATA_DIR": str(tmp_path / "other")}
    untrusted = tally(tmp_path, "restore", str(tmp_path / "backup.tar"), **other)
    assert untrusted.returncode == 2
    assert "the key to verify it is missing. Set TALLY_BACKUP_KEY" in untrusted.stderr
    key = (tmp_path / "data" / "backup.key").read_text().strip()
    restored = tally(
        tmp_path, "restore", str(tmp_path / "backup.tar"), TALLY_BACKUP_KEY=key, **other
    )
    assert (restored.returncode, restored.stderr) == (0, "")
    assert (tmp_path / "other" / "devices-pepper.key").read_text() == (
        tmp_path / "data" / "devices-pepper.key"
    ).read_text()
    (tmp_path / "backup.tar").write_bytes(b"nothing")
    failed = tally(
        tmp_path, "restore", str(tmp_path / "backup.tar"), TALLY_DATA_DIR=str(tmp_path / "third")
    )
    assert failed.returncode == 1
    assert "is not a Tally backup, or is truncated or damaged" in failed.stderr


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        done = tally(tmp_path, "up", "--port", str(port))
    assert done.returncode == 2
    assert f"Port {port} on 127.0.0.1 is already in use. Choose another with" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_invalid_settings_are_reported_and_nothing_starts(tmp_path: Path) -> None:
    done = tally(tmp_path, "up", TALLY_PORT="many", TALLY_LOG_LEVEL="loud")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "TALLY_PORT must be an integer from 0 to 65535, not 'many'",
        "TALLY_LOG_LEVEL must be one of debug, info, warning, error, not 'loud'",
    ]
    assert not (tmp_path / "data").exists()


def test_an_unusable_data_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    done = tally(tmp_path, "up", "--port", "0")
    assert done.returncode == 2
    assert f"Cannot create the data directory {tmp_path / 'data'}" in done.stderr
    assert "Traceback" not in done.stderr


def run(*words: str, **variables: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, words, env=variables)
    return result.exit_code, result.stdout, result.stderr


def test_settings_are_printed_with_value_and_source(tmp_path: Path) -> None:
    code, output, errors = run(
        "settings", TALLY_PORT="9000", TALLY_PROT="1", TALLY_CURSOR_SECRET="s" * 40
    )
    assert code == 0
    assert "TALLY_PORT=9000  # environment" in output
    assert "TALLY_CURSOR_SECRET=***  # environment" in output
    assert "TALLY_HOST=127.0.0.1  # default" in output
    assert "TALLY_PROT is not a setting of Tally and has no effect" in errors


def test_settings_are_printed_as_json() -> None:
    code, output, _ = run("settings", "--json", TALLY_PORT="9000")
    by_variable = {row["variable"]: row for row in json.loads(output)}
    assert code == 0
    assert set(by_variable) == {setting.variable for setting in SETTINGS}
    assert (by_variable["TALLY_PORT"]["value"], by_variable["TALLY_PORT"]["source"]) == (
        "9000",
        "environment",
    )


def test_settings_are_printed_as_markdown() -> None:
    assert run("settings", "--markdown", TALLY_PORT="wrong") == (0, settings_markdown(), "")


def test_settings_are_a_table_on_a_terminal(tmp_path: Path) -> None:
    """The test uses a pseudo-terminal."""
    ours, theirs = os.openpty()
    program = subprocess.Popen(
        [*PROGRAM, "settings"], env=environment(tmp_path, TERM="xterm"), stdout=theirs
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 65536):
            output += chunk
    except OSError:
        assert output  # the terminal was closed by the end of the program
    finally:
        os.close(ours)
    assert program.wait(TIMEOUT_SECONDS) == 0
    assert "┏━" in output.decode()
    assert "TALLY_PORT" in output.decode()


def test_the_jobs_of_all_backends_are_listed_without_side_effects(tmp_path: Path) -> None:
    code, output, _ = run("job", "list", "--json", TALLY_DATA_DIR=str(tmp_path / "data"))
    assert code == 0
    names = {job["name"] for job in json.loads(output)}
    assert {"ttl-sweep", "collect-inbox", "cricket-live-score", "scoreboard-verify"} <= names
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("settings",), ("patterns",), ("--help",), ("job", "list")])
def test_listing_commands_create_no_file(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, output, errors = run(*words, TALLY_DATA_DIR=str(tmp_path / "data"))
    assert (code, errors) == (0, "")
    assert output
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_job_is_rejected(tmp_path: Path) -> None:
    code, _, errors = run(
        "job", "run", "nothing", TALLY_DATA_DIR=str(tmp_path / "data"), TALLY_BACKENDS="devices"
    )
    assert code == 2
    assert "Unknown job nothing; available:" in errors


def test_an_unreachable_database_is_reported_with_its_cause(tmp_path: Path) -> None:
    """The message does not contain the password of the URL."""
    code, _, errors = run(
        "job",
        "run",
        "ttl-sweep",
        TALLY_DATA_DIR=str(tmp_path / "data"),
        TALLY_BACKENDS="scoreboard",
        DATABASE_URL=f"postgresql://ana:password-of-ana@127.0.0.1:{free_port()}/scores",
    )
    assert code == 2
    assert "The database is unavailable: [Errno" in errors
    assert "password-of-ana" not in errors


def test_an_unknown_backend_is_rejected() -> None:
    code, _, errors = run("serve", "chess")
    assert code == 2
    assert "TALLY_BACKENDS must be a comma-separated list of" in errors


def test_the_version_is_printed() -> None:
    assert run("--version") == (0, f"{__version__}\n", "")


def test_every_command_has_help() -> None:
    group = typer.main.get_group(cli)
    assert {"up", "serve", "settings", "job"} <= set(group.commands)
    assert [name for name, command in group.commands.items() if not command.help] == []
