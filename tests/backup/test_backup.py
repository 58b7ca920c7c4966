"""Backup and restore: complete and consistent, or an error that says why."""

import asyncio
import stat
import tarfile
from pathlib import Path

import asyncpg
import pytest

from tally.backup.archive import CHECKSUM, MANIFEST
from tally.backup.create import create_backup
from tally.backup.errors import BackupFailed, BackupRejected
from tally.backup.restore import restore_backup
from tally.embedded.postgres import open_postgres
from tally.kit import directory_lock
from tally.kit.clock import SystemClock
from tally.kit.keyfile import read_or_create
from tally.settings import Secret
from tally.store.api import Put
from tally.store.errors import StorageDamaged
from tally.store.sqlite import open_sqlite
from tally.store.sqlite.files import FILE_NAME
from tests.backup.writers import NOTES, concurrent_writers
from tests.faults.audit import audit

CLOCK = SystemClock()


async def create_data_directory(directory: Path) -> Path:
    """Create a data directory without servers: a store with 20 items, and a key."""
    async with open_sqlite(directory) as engine:
        await engine.ensure_table(NOTES)
        for number in range(20):
            await engine.put(Put(NOTES, {"author": "one", "number": number}))
    read_or_create(directory / "cursor.key")
    return directory


@pytest.fixture
async def backup(tmp_path: Path) -> Path:
    """The file of a small backup."""
    return (
        await create_backup(
            await create_data_directory(tmp_path / "original"), tmp_path / "backup.tar", CLOCK
        )
    ).path


def key_of(directory: Path) -> Secret:
    """Return the key that signs the backups of a data directory."""
    return read_or_create(directory / "backup.key")


def expect_files(directory: Path, *names: str) -> None:
    """Check that the directory contains exactly these files, and no draft."""
    assert sorted(path.name for path in directory.iterdir()) == sorted(names)


async def test_a_backup_under_load_contains_all_writes_acknowledged_before_it(
    tmp_path: Path,
) -> None:
    """Each database is copied in one snapshot while writers continue."""
    async with concurrent_writers(tmp_path / "data") as writes:
        await writes.wait_for_more(50)
        pairs, rows = set(writes.pairs), set(writes.rows)
        created = await create_backup(writes.directory, tmp_path / "backup.tar", CLOCK)
        await writes.wait_for_more(10)
    await restore_backup(created.path, tmp_path / "other", CLOCK, key_of(writes.directory))
    items = {
        (item["author"], int(item["number"])) for item in (await audit(tmp_path / "other"))["notes"]
    }
    assert pairs <= items
    assert {(author, number + 1) for author, number in items if number % 2 == 0} <= items
    async with open_postgres(tmp_path / "other", CLOCK, durable=False) as dsn:
        connection = await asyncpg.connect(dsn)
        stored = {
            int(row["action_id"])
            for row in await connection.fetch("SELECT action_id FROM completed_actions")
        }
        await connection.close()
    assert rows <= stored
    assert {number + 1 for number in stored if number % 2 == 0} <= stored
    assert (tmp_path / "other" / "cursor.key").read_bytes() == (
        tmp_path / "data" / "cursor.key"
    ).read_bytes()
    assert not list((tmp_path / "other").glob("postgres/*.copy"))


async def test_only_the_owner_can_access_the_backup_and_restored_files(
    tmp_path: Path, backup: Path
) -> None:
    await restore_backup(backup, tmp_path / "other", CLOCK, key_of(tmp_path / "original"))
    paths = [backup, tmp_path / "other", *(tmp_path / "other").iterdir()]
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode) & 0o077) for path in paths} == {
        path.name: "0o0" for path in paths
    }
    expect_files(tmp_path, "original", "backup.tar", "other")


async def test_a_backup_in_a_directory_is_named_after_the_time(tmp_path: Path) -> None:
    data = await create_data_directory(tmp_path / "data")
    (tmp_path / "backups").mkdir()
    created = await create_backup(data, tmp_path / "backups", CLOCK)
    assert created.path.name.startswith("tally-")
    expect_files(tmp_path / "backups", created.path.name)


async def test_a_backup_neither_replaces_a_file_nor_goes_into_the_data_directory(
    tmp_path: Path, backup: Path
) -> None:
    before = member_offsets(backup)
    with pytest.raises(BackupRejected, match="already exists"):
        await create_backup(tmp_path / "original", backup, CLOCK)
    with pytest.raises(BackupRejected, match="inside the data directory"):
        await create_backup(tmp_path / "original", tmp_path / "original" / "backup.tar", CLOCK)
    with pytest.raises(BackupRejected, match="Cannot write"):
        await create_backup(tmp_path / "original", tmp_path / "missing" / "backup.tar", CLOCK)
    with pytest.raises(BackupRejected, match="nothing to back up"):
        await create_backup(tmp_path / "no data", tmp_path / "other.tar", CLOCK)
    assert member_offsets(backup) == before
    expect_files(tmp_path, "original", "backup.tar")


async def test_backing_up_a_damaged_store_fails(tmp_path: Path) -> None:
    data = await create_data_directory(tmp_path / "data")
    content = bytearray((data / "store.db").read_bytes())
    content[4096 * 2 : 4096 * 4] = b"\xff" * 8192
    (data / "store.db").write_bytes(content)
    with pytest.raises(Exception, match=r"damaged|malformed") as caught:
        await create_backup(data, tmp_path / "backup.tar", CLOCK)
    assert str(data / "store.db") in str(caught.value)
    expect_files(tmp_path, "data")


def member_offsets(backup: Path) -> dict[str, tuple[int, int]]:
    """Return where each file begins and ends in the archive."""
    with tarfile.open(backup) as tar:
        return {
            member.name: (member.offset_data, member.offset_data + member.size)
            for member in tar.getmembers()
        }


def truncate(backup: Path, share: float) -> None:
    """Truncate to this share of the content, which excludes the trailing zeros of a tar.

    At least one byte is cut off.
    """
    last = max(end for _, end in member_offsets(backup).values())
    backup.write_bytes(backup.read_bytes()[: min(int(last * share), last - 1)])


def flip_bit(backup: Path, name: str) -> None:
    """Flip one bit in the middle of a file."""
    begin, end = member_offsets(backup)[name]
    content = bytearray(backup.read_bytes())
    content[(begin + end) // 2] ^= 1
    backup.write_bytes(content)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 1.0])
async def test_a_truncated_backup_is_rejected(tmp_path: Path, backup: Path, share: float) -> None:
    truncate(backup, share)
    with pytest.raises(BackupFailed, match=r"truncated|damaged|not a Tally backup"):
        await restore_backup(backup, tmp_path / "other", CLOCK, key_of(tmp_path / "original"))
    expect_files(tmp_path, "original", "backup.tar")


@pytest.mark.parametrize("name", [MANIFEST, CHECKSUM, "cursor.key", "store.db"])
async def test_a_single_flipped_bit_is_detected(tmp_path: Path, backup: Path, name: str) -> None:
    flip_bit(backup, name)
    with pytest.raises(BackupFailed, match=r"damaged|checksum"):
        await restore_backup(backup, tmp_path / "other", CLOCK, key_of(tmp_path / "original"))
    expect_files(tmp_path, "original", "backup.tar")


async def test_a_restore_requires_an_empty_unused_directory(tmp_path: Path, backup: Path) -> None:
    """It replaces neither existing data nor the directory of a running program."""
    (tmp_path / "empty").mkdir()
    await restore_backup(backup, tmp_path / "empty", CLOCK, key_of(tmp_path / "original"))
    assert len((await audit(tmp_path / "empty"))["notes"]) == 20
    with pytest.raises(BackupRejected, match="is not empty"):
        await restore_backup(backup, tmp_path / "original", CLOCK)
    with (
        directory_lock.shared_lock(tmp_path / "original"),
        pytest.raises(BackupRejected, match="A program is running on"),
    ):
        await restore_backup(backup, tmp_path / "original", CLOCK)
    with pytest.raises(BackupRejected, match=r"Backup .* does not exist"):
        await restore_backup(tmp_path / "none.tar", tmp_path / "other", CLOCK)


async def test_a_database_lost_between_restore_and_start_is_not_a_new_store(
    tmp_path: Path, backup: Path
) -> None:
    await restore_backup(backup, tmp_path / "other", CLOCK, key_of(tmp_path / "original"))
    (tmp_path / "other" / FILE_NAME).write_bytes(b"")
    with pytest.raises(StorageDamaged, match=r"is empty, and the data directory held a database"):
        async with open_sqlite(tmp_path / "other"):
            pass


async def test_a_restore_does_not_replace_data_created_meanwhile(
    tmp_path: Path, backup: Path
) -> None:
    restoring = asyncio.create_task(restore_backup(backup, tmp_path / "other", CLOCK, trust=True))
    await asyncio.sleep(0)  # the preconditions are checked; a thread extracts the files
    assert list(tmp_path.glob("other.restored-*"))  # noqa: ASYNC240  (a directory of the test)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "first").write_text("data")
    with pytest.raises(BackupFailed, match="no longer empty"):
        await restoring
    expect_files(tmp_path / "other", "first")
    expect_files(tmp_path, "original", "backup.tar", "other")
