"""The simulator commands as processes: they print their URL, serve and stop cleanly."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyreqwest.client import SyncClientBuilder

from tally.sim.page_protection import CONTROL_HEADERS

PROGRAM = [sys.executable, "-m", "tally.cli", "sim"]
TIMEOUT_SECONDS = 120


@contextmanager
def running_command(*words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A running command and its URL; killed at the end."""
    program = subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        match = re.search(r"simulated at (http://127\.0\.0\.1:\d+);", program.stdout.readline())
        assert match is not None
        yield program, match[1]
    finally:
        program.kill()
        program.communicate()


def get_json(url: str, body: Any = None) -> Any:
    with SyncClientBuilder().error_for_status(True).build() as client:
        request = client.get(url) if body is None else client.post(url).body_json(body)
        request = request.headers(CONTROL_HEADERS)
        return request.build().send().json()


def stop(program: "subprocess.Popen[str]") -> None:
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=TIMEOUT_SECONDS)
    assert (program.returncode, errors) == (0, "")


def test_oidc_command() -> None:
    with running_command("oidc", "--port", "0", "--approve", "Ana Silva") as (program, url):
        document = get_json(f"{url}/.well-known/openid-configuration")
        assert document["issuer"].startswith(url)
        assert len(get_json(document["jwks_uri"])["keys"]) == 1
        assert get_json(f"{url}/_sim/state")["auto_approve"] == "Ana Silva"
        stop(program)


def test_strava_command_persists_its_state(tmp_path: Path) -> None:
    """A restarted simulator has the athletes of the previous run."""
    words = ("strava", "--port", "0", "--state", str(tmp_path / "strava.json"))
    with running_command(*words) as (program, url):
        athlete = get_json(f"{url}/_sim/athletes", {"firstname": "Ana"})
        get_json(f"{url}/_sim/activities", {"athlete_id": athlete["id"]})
        stop(program)
    with running_command(*words) as (program, url):
        state = get_json(f"{url}/_sim/state")
        assert (state["athletes"], state["activities"]) == ([athlete], 1)
        assert state["limits"]["X-RateLimit-Limit"] == "200,2000"
        stop(program)


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"COLUMNS": "200"}
    return subprocess.run(
        [*PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env=environment,
    )


def test_invalid_state_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("[]")
    done = run("strava", "--port", "0", "--state", str(tmp_path / "state.json"))
    assert done.returncode == 2
    assert "is not a valid Strava state file" in done.stderr
    assert (tmp_path / "state.json").read_text() == "[]"


def test_port_in_use_is_reported() -> None:
    with running_command("strava", "--port", "0") as (_, url):
        done = run("oidc", "--port", url.rpartition(":")[2])
    assert done.returncode == 2
    assert "is already in use. Choose another with --port." in done.stderr


def test_athletes_command_prints_totals() -> None:
    """With a running Strava simulator; a week passes per second."""
    with running_command("strava", "--port", "0", "--unlimited") as (_, url):
        words = (
            "--count",
            "10",
            "--strava",
            url,
            "--seed",
            "1",
            "--seconds",
            "1",
            "--speed",
            "600000",
        )
        done = run("athletes", *words)
        state = get_json(f"{url}/_sim/state")
    assert done.returncode == 0, done.stderr
    sums = re.search(
        r"^(\d+) activities, .* (\d+) deletions, 0 failures; webhooks: 0 accepted",
        done.stdout,
        re.MULTILINE,
    )
    assert sums is not None, done.stdout
    assert len(state["athletes"]) == 10
    assert state["activities"] + int(sums[2]) >= int(sums[1]) > 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ("--strava", "http://127.0.0.1:9"),
            "Cannot reach the Strava simulator at http://127.0.0.1:9",
        ),
        (
            ("--url", "http://127.0.0.1:9", "--strava-port", "0", "--oidc-port", "0"),
            "callback url not verifiable",
        ),
    ],
)
def test_athletes_command_reports_unreachable_servers(words: tuple[str, ...], reason: str) -> None:
    done = run("athletes", "--count", "1", *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_cricket_command_plays_a_match() -> None:
    """At infinite speed every poll advances the match; totals are printed at the end."""
    words = ("cricket", "--speed", "inf", "--port", "0", "--cognito-port", "0")
    program = subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stderr is not None
        match = re.search(r"simulated at (\S+), with the token (\S+)", program.stderr.readline())
        issuer = re.search(r"simulated at (\S+), with the client (\S+)", program.stderr.readline())
        assert match is not None
        assert issuer is not None
        with SyncClientBuilder().error_for_status(True).build() as client:
            polls = [
                client.get(f"{match[1]}/livescores")
                .query({"api_token": match[2]})
                .build()
                .send()
                .json()
                for _ in range(5)
            ]
        assert [fixture["status"] for fixture in polls[-1]["data"]] == ["1st Innings"]
        assert len(get_json(f"{issuer[1]}/.well-known/jwks.json")["keys"]) == 1
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=TIMEOUT_SECONDS)
        assert program.returncode == 0
        assert "0 of 1 matches finished; 5 requests, including 5 polls of the live scores" in output
    finally:
        program.kill()
        program.communicate()


def test_invalid_match_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "match.json").write_text("{}")
    done = run("cricket", "--match", str(tmp_path / "match.json"))
    assert done.returncode == 2
    assert "match.json: it must name two teams" in done.stderr
