"""The simulators as programs: they say where they are, answer, and stop when they are told to."""

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

PROGRAM = [sys.executable, "-m", "tally.cli", "sim"]
LONG_ENOUGH = 120


@contextmanager
def started(*words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The program, running, and the address it told; killed at the end if it has not ended by then."""
    program = subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        told = re.search(r"simulated at (http://127\.0\.0\.1:\d+);", program.stdout.readline())
        assert told is not None
        yield program, told[1]
    finally:
        program.kill()
        program.communicate()


def ask(url: str, body: Any = None) -> Any:
    with SyncClientBuilder().error_for_status(True).build() as client:
        request = client.get(url) if body is None else client.post(url).body_json(body)
        return request.build().send().json()


def stop(program: "subprocess.Popen[str]") -> None:
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=LONG_ENOUGH)
    assert (program.returncode, errors) == (0, "")


def test_an_issuer_runs_by_itself() -> None:
    with started("oidc", "--port", "0", "--approve", "Ana Silva") as (program, url):
        document = ask(f"{url}/.well-known/openid-configuration")
        assert document["issuer"].startswith(url)
        assert len(ask(document["jwks_uri"])["keys"]) == 1
        assert ask(f"{url}/_sim/state")["auto_approve"] == "Ana Silva"
        stop(program)


def test_strava_runs_by_itself_and_remembers(tmp_path: Path) -> None:
    """What was in its world when it was stopped is there when it is started again."""
    words = ("strava", "--port", "0", "--state", str(tmp_path / "strava.json"))
    with started(*words) as (program, url):
        athlete = ask(f"{url}/_sim/athletes", {"firstname": "Ana"})
        ask(f"{url}/_sim/activities", {"athlete_id": athlete["id"]})
        stop(program)
    with started(*words) as (program, url):
        state = ask(f"{url}/_sim/state")
        assert (state["athletes"], state["activities"]) == ([athlete], 1)
        assert state["limits"]["X-RateLimit-Limit"] == "200,2000"
        stop(program)


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"COLUMNS": "200"}
    return subprocess.run(
        [*PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
        env=environment,
    )


def test_a_state_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("[]")
    done = run("strava", "--port", "0", "--state", str(tmp_path / "state.json"))
    assert done.returncode == 2
    assert "is not a valid Strava state file" in done.stderr
    assert (tmp_path / "state.json").read_text() == "[]"


def test_a_port_in_use_is_said_to_be() -> None:
    with started("strava", "--port", "0") as (_, url):
        done = run("oidc", "--port", url.rpartition(":")[2])
    assert done.returncode == 2
    assert "is already in use. Choose another with --port." in done.stderr


def test_athletes_train_and_the_sums_are_told() -> None:
    """In a Strava that is already running; a week of theirs passes in a second."""
    with started("strava", "--port", "0", "--unlimited") as (_, url):
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
        state = ask(f"{url}/_sim/state")
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
def test_athletes_without_a_world_say_why(words: tuple[str, ...], reason: str) -> None:
    done = run("athletes", "--count", "1", *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_a_match_is_played_by_itself() -> None:
    """At the utmost speed it moves with every look, and the sums are told at the end."""
    words = ("cricket", "--speed", "inf", "--port", "0", "--cognito-port", "0")
    program = subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stderr is not None
        told = re.search(r"simulated at (\S+), with the token (\S+)", program.stderr.readline())
        issuer = re.search(r"simulated at (\S+), with the client (\S+)", program.stderr.readline())
        assert told is not None
        assert issuer is not None
        with SyncClientBuilder().error_for_status(True).build() as client:
            looks = [
                client.get(f"{told[1]}/livescores")
                .query({"api_token": told[2]})
                .build()
                .send()
                .json()
                for _ in range(5)
            ]
        assert [fixture["status"] for fixture in looks[-1]["data"]] == ["1st Innings"]
        assert len(ask(f"{issuer[1]}/.well-known/jwks.json")["keys"]) == 1
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=LONG_ENOUGH)
        assert program.returncode == 0
        assert "0 of 1 matches finished; 5 requests, including 5 polls of the live scores" in output
    finally:
        program.kill()
        program.communicate()


def test_a_file_that_is_no_match_is_refused(tmp_path: Path) -> None:
    (tmp_path / "match.json").write_text("{}")
    done = run("cricket", "--match", str(tmp_path / "match.json"))
    assert done.returncode == 2
    assert "match.json: it must name two teams" in done.stderr
