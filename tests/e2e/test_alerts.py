"""Prometheus scrapes a server, and alerts fire when a fault is injected.

The rules are those in `deploy/` with shorter ranges, and without the time that a fault must last.
"""

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tally.store.clock_guard import NEWEST_COMMIT
from tally.store.sqlite.files import FILE_NAME, connect
from tally.store.sqlite.state import write_state
from tests.e2e.test_damage import overwrite_pages
from tests.e2e.test_readiness import OPERATOR_TOKEN, serve
from tests.needs import need_program
from tests.test_alert_rules import RULES

pytestmark = pytest.mark.judge

WAIT_SECONDS = 120.0
TEN_DAYS = 10 * 86_400.0


def short_rules() -> str:
    """Return the rules for a test of seconds."""
    return re.sub(r"\[\d+m\]", "[10s]", re.sub(r"for: \d+m", "for: 0s", RULES))


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[str]:
    """Run Prometheus on a server; yield its URL."""
    program = need_program("prometheus", "prometheus")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    (directory / "rules.yaml").write_text(short_rules(), encoding="utf-8")
    configuration = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "tally", "static_configs": [{"targets": [target]}]}],
    }
    file = directory / "prometheus.json"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    with (directory / "prometheus.log").open("wb") as log:
        running = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={directory / 'series'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://{address}"
    finally:
        running.terminate()
        running.wait(WAIT_SECONDS)


def firing(url: str) -> set[str]:
    """Return the names of the alerts that fire; none while Prometheus starts."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/alerts", timeout=10) as response:  # noqa: S310  (loopback)
            alerts = json.load(response)["data"]["alerts"]
    except urllib.error.URLError:
        return set()
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def wait_until(description: str, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, description
        time.sleep(0.2)


def test_a_damaged_store_fires_its_alerts(tmp_path: Path) -> None:
    variables = {"TALLY_OPERATOR_TOKEN": OPERATOR_TOKEN}
    with serve(tmp_path, backends="devices", **variables) as instance:
        assert instance.get("/devices/api-keys", OPERATOR_TOKEN)[0] == 200
    overwrite_pages(tmp_path / "data" / FILE_NAME, "api_keys")
    with (
        serve(tmp_path, backends="devices", **variables) as instance,
        prometheus(tmp_path, instance.url.removeprefix("http://")) as url,
    ):

        def has_fired() -> bool:
            instance.get("/devices/api-keys", OPERATOR_TOKEN)
            return {"TallyStoreDamaged", "TallyStoreErrors", "TallyErrors"} <= firing(url)

        wait_until("the alerts", has_fired)


def test_a_clock_jump_and_an_unreachable_service_fire_their_alerts(tmp_path: Path) -> None:
    with serve(tmp_path, backends="devices"):
        pass
    connection = connect(tmp_path / "data" / FILE_NAME)
    with connection:
        write_state(connection, NEWEST_COMMIT, repr(time.time() - TEN_DAYS))
    connection.close()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
    variables = {
        "TALLY_CRICKET_SPORTMONKS_TOKEN": "token",
        "TALLY_CRICKET_SPORTMONKS_URL": nowhere,
    }
    expected = {"TallyStoreSweepPaused", "TallyExternalServiceDown"}
    with (
        serve(tmp_path, backends="cricket", **variables) as instance,
        prometheus(tmp_path, instance.url.removeprefix("http://")) as url,
    ):
        wait_until("the alerts", lambda: expected <= firing(url))
        assert "TallyStoreDamaged" not in firing(url)
