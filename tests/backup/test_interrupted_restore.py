"""A restore that is killed at any time leaves the old data directory, or the complete new one."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tally.backup.create import create_backup
from tally.embedded.postgres import open_postgres
from tests.backup.test_backup import CLOCK, create_data_directory, key_of
from tests.backup.test_postgres_restore import FILL, contents, execute
from tests.backup.writers import create_schema
from tests.test_cli import PROGRAM, TIMEOUT_SECONDS, environment, tally

STAGES = (
    "extracted/store.db",
    pytest.param("", marks=pytest.mark.judge),
    pytest.param("postgres/cluster.new", marks=pytest.mark.judge),
    pytest.param("postgres/cluster/postmaster.pid", marks=pytest.mark.judge),
)


def kill_at(tmp_path: Path, stage: str, variables: dict[str, str]) -> int:
    """Start a restore, kill it when the draft directory contains `stage`, return its status."""
    command = [*PROGRAM, "restore", str(tmp_path / "backup.tar")]
    pattern = f"data.restored-*/{stage}".rstrip("/")
    with subprocess.Popen(command, env=environment(tmp_path, **variables)) as program:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while program.poll() is None and not list(tmp_path.glob(pattern)):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        program.send_signal(signal.SIGKILL)
        return program.wait(TIMEOUT_SECONDS)


@pytest.mark.parametrize("stage", STAGES)
async def test_a_killed_restore_leaves_the_old_directory(tmp_path: Path, stage: str) -> None:
    """The same command then succeeds, and another one does not replace its result."""
    original = await create_data_directory(tmp_path / "original")
    async with open_postgres(original, CLOCK, durable=False) as dsn:
        await create_schema(dsn)
        await execute(dsn, FILL)
        before = await contents(dsn)
        await create_backup(original, tmp_path / "backup.tar", CLOCK)
    variables = {"TALLY_BACKUP_KEY": key_of(original).reveal()}
    (tmp_path / "data").mkdir()
    assert kill_at(tmp_path, stage, variables) == -signal.SIGKILL
    assert list((tmp_path / "data").iterdir()) == []
    done = tally(tmp_path, "restore", str(tmp_path / "backup.tar"), **variables)
    assert done.returncode == 0, done.stderr
    async with open_postgres(tmp_path / "data", CLOCK, durable=False) as dsn:
        assert await contents(dsn) == before
    again = tally(tmp_path, "restore", str(tmp_path / "backup.tar"), **variables)
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)
