"""This version continues with the data directory of every release."""

import json
from pathlib import Path

import httpx
import pytest

from tests.devices.harness import DAY_MS
from tests.e2e import release_data
from tests.e2e.release_data import API, ARCHIVES, BACKENDS, DEVICE, PLAYER, READINGS, SCORE
from tests.e2e.test_readiness import serve
from tests.test_cli import tally

pytestmark = pytest.mark.judge


def expect_scores(client: httpx.Client, score: int) -> None:
    """The player has this score on the global leaderboard and on the named one."""
    for path in ("leaderboard", "boards/weekly"):
        [entry] = client.get(f"{API}/{path}").raise_for_status().json()["items"]
        assert (entry["username"], entry["score"]) == (PLAYER["username"], score)


def use_data(client: httpx.Client, data: Path, key: str) -> None:
    """Every credential is still valid, nothing is missing, and everything can be continued."""
    operator = {"Authorization": f"Bearer {(data / 'operator.token').read_text().strip()}"}
    batch = release_data.readings(READINGS - 1, 2)
    receipt = client.post("/devices/data", json=batch, headers={"X-API-Key": key}).json()
    assert (len(receipt["acknowledged_batch_ids"]), len(receipt["duplicate_batch_ids"])) == (1, 1)
    exported = client.get(f"/devices/devices/{DEVICE}/export?format=ndjson", headers=operator)
    stored = [json.loads(line)["sensors"] for line in exported.text.splitlines()]
    expected = [{"bme280_temp_c": 20 + number / 4} for number in range(READINGS + 1)]
    assert stored == expected
    # Whole days come from roll-ups: those of the release and the one of the new reading.
    start = release_data.FIRST_MS - 2 * DAY_MS
    query = f"sensor=bme280_temp_c&from={start}&to={start + 4 * DAY_MS}&points=4"
    path = f"/devices/devices/{DEVICE}/series?{query}"
    buckets = client.get(path, headers=operator).raise_for_status().json()["buckets"]
    assert sum(bucket["count"] for bucket in buckets) == READINGS + 1
    expect_scores(client, SCORE)
    credentials = {"login": PLAYER["email"], "password": PLAYER["password"]}
    signed_in = client.post(f"{API}/auth/login", json=credentials).raise_for_status().json()
    player = (signed_in["tokens"]["access_token"], signed_in["user"]["user_id"])
    release_data.add_score(client, data, *player, "2")
    expect_scores(client, 2 * SCORE)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
async def test_the_data_directory_of_a_release_is_upgraded(archive: Path, tmp_path: Path) -> None:
    key = await release_data.extract(archive, tmp_path)
    with serve(tmp_path, backends=BACKENDS) as instance:
        instance.wait_for(200)
        with httpx.Client(base_url=instance.url, timeout=60) as client:
            use_data(client, tmp_path / "data", key)
    checked = tally(tmp_path, "store", "check")
    assert (checked.returncode, "is intact" in checked.stdout) == (0, True), checked.stderr


def test_the_current_release_has_an_archive() -> None:
    names = {path.name.partition(".")[0] for path in ARCHIVES}
    assert "release_0_1_0" in names
