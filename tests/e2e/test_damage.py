"""A damaged database shows in responses, readiness, metrics and commands."""

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from tally.store.sqlite.files import FILE_NAME, PAGE_BYTES, connect
from tests.e2e.test_readiness import OPERATOR_TOKEN, serve
from tests.test_cli import PROGRAM, TIMEOUT_SECONDS, environment


def run_tally(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words],
        env=environment(directory),
        timeout=5 * TIMEOUT_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )


def overwrite_pages(database: Path, table: str) -> None:
    """Overwrite the first pages of a table and its indexes with garbage."""
    connection = connect(database)
    roots: list[Any] = connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = ? OR name LIKE ?",
        (f"rows {table}", f"index {table} %"),
    ).fetchall()
    connection.close()
    assert roots
    with database.open("r+b") as file:
        for (root,) in roots:
            file.seek((root - 1) * PAGE_BYTES)
            file.write(b"garbage!" * (PAGE_BYTES // 8))


def test_a_garbage_page_names_the_damage_and_the_remedy(tmp_path: Path) -> None:
    variables = {"TALLY_OPERATOR_TOKEN": OPERATOR_TOKEN}
    with serve(tmp_path, backends="devices", **variables) as instance:
        assert instance.get("/devices/api-keys", OPERATOR_TOKEN)[0] == 200
    checked = run_tally(tmp_path, "store", "check")
    assert (checked.returncode, "is intact" in checked.stdout) == (0, True), checked.stderr
    overwrite_pages(tmp_path / "data" / FILE_NAME, "api_keys")
    with serve(tmp_path, backends="devices", **variables) as instance:
        status, problem = instance.get("/devices/api-keys", OPERATOR_TOKEN)
        assert (status, problem.get("code")) == (503, "store_damaged"), problem
        assert "restore a backup" in problem["detail"]
        instance.wait_for(503, "The store is damaged")
        with urllib.request.urlopen(instance.url + "/metrics") as response:  # noqa: S310  (loopback)
            assert b"\ntally_store_damaged 1.0" in response.read()
    checked = run_tally(tmp_path, "store", "check")
    assert checked.returncode == 1
    assert "wrong checksum" in checked.stdout
    assert "restore a backup" in checked.stderr


def test_a_lost_database_stops_every_command(tmp_path: Path) -> None:
    assert run_tally(tmp_path, "schema", "create").returncode == 0
    (tmp_path / "data" / FILE_NAME).write_bytes(b"")
    for words in (("serve", "devices"), ("store", "check"), ("schema", "status")):
        refused = run_tally(tmp_path, *words)
        assert refused.returncode in {1, 2}
        assert "held a database" in refused.stdout + refused.stderr
        assert "tally restore" in refused.stdout + refused.stderr
        assert (tmp_path / "data" / FILE_NAME).read_bytes() == b""


def test_the_clock_is_confirmed_and_recorded(tmp_path: Path) -> None:
    confirmed = run_tally(tmp_path, "store", "confirm-clock")
    assert confirmed.returncode == 0, confirmed.stderr
    audit = run_tally(tmp_path, "operator", "audit", "--json")
    assert "clock_confirm" in audit.stdout, audit.stderr
    assert json.loads(audit.stdout)


def test_an_intact_log_is_not_cut(tmp_path: Path) -> None:
    assert run_tally(tmp_path, "schema", "create").returncode == 0
    cut = run_tally(tmp_path, "store", "cut-log")
    assert (cut.returncode, "is not damaged" in cut.stdout) == (0, True), cut.stderr
