"""A backup and a restored data directory are complete or absent after a power failure."""

from functools import partial
from pathlib import Path

import pytest

from tally.backup.archive import open_archive
from tally.backup.create import KEY_FILE, create_backup
from tally.kit.clock import SystemClock
from tally.settings import Secret
from tests.faults.disk_model import Image, read_image
from tests.faults.old_format import create_old_store
from tests.faults.power_loss import Harness, Recording, is_sync, open_harness

pytestmark = pytest.mark.soak


def create_data(harness: Harness) -> Path:
    """Create a data directory with a store and a key."""
    data = harness.disk / "data"
    create_old_store(data)
    (data / "cursor.key").write_text("c" * 64 + "\n")
    return data


async def record_restore(harness: Harness) -> Recording:
    """Record a restore into a directory whose parent does not exist."""
    data = create_data(harness)
    backup = harness.disk / "backup.tar"
    await create_backup(data, backup, SystemClock())
    return await harness.record("restore", backup, harness.disk / "new" / "data")


def check_restore(harness: Harness, recording: Recording) -> None:
    """The new directory is complete or absent; it is complete once acknowledged."""
    wanted = below("new/data", read_image(harness.disk))
    assert len(wanted) == 3
    for crash in harness.crashes(recording):
        found = below("new/data", crash.image)
        assert found in ({}, wanted), f"{crash}: the restored directory is incomplete"
        assert found or not crash.lines, f"{crash}: the restored directory is lost"


def below(directory: str, image: Image) -> Image:
    return {path: data for path, data in image.items() if path.startswith(f"{directory}/")}


async def test_a_restore_is_complete_or_absent(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        check_restore(harness, await record_restore(harness))


async def test_the_replay_notices_a_missing_sync_of_a_restore(tmp_path: Path) -> None:
    """Of a file, or of a directory with a new name in it."""
    with open_harness(tmp_path) as harness:
        recording = await record_restore(harness)
        for name in ("/store.db", "/cursor.key", "/new", "/disk"):
            mutated = recording.without(partial(is_sync, suffix=name))
            with pytest.raises(AssertionError, match="the restored directory is"):
                check_restore(harness, mutated)


async def test_a_backup_is_complete_or_absent(tmp_path: Path) -> None:
    """An acknowledged backup can be restored: its key is on disk too."""
    with open_harness(tmp_path) as harness:
        data = create_data(harness)
        recording = await harness.record("backup", data, harness.disk / "backup.tar")

        async def verify(disk: Path) -> bool:
            archive, key = disk / "backup.tar", disk / "data" / KEY_FILE
            if not archive.exists():
                return False
            with open_archive(archive) as opened:
                (disk / "extracted").mkdir()
                opened.extract(disk / "extracted")
                assert opened.is_signed_with(Secret(key.read_text().strip()))
            return True

        for crash in harness.crashes(recording):
            is_found = await harness.replayer.run(crash.image, verify)
            assert is_found or not crash.lines, f"{crash}: the backup is lost"
