"""What a back-up promises: all that was acknowledged before it began, of one moment, or a refusal that says why."""

import asyncio
import io
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from tally.backup.archive import CHECKSUM, FORMAT, MANIFEST, Manifest, describe, write_archive
from tally.backup.create import create_backup
from tally.backup.errors import BackupFailed, BackupRejected
from tally.backup.restore import restore_backup
from tally.embedded.postgres import open_postgres
from tally.kit import directory_lock
from tally.kit.clock import SystemClock
from tally.kit.keyfile import read_or_create
from tally.store.api import Put
from tally.store.sqlite import open_sqlite
from tests.backup.writers import NOTES, writing
from tests.faults.audit import audit

CLOCK = SystemClock()


async def small(directory: Path) -> Path:
    """A data directory without servers: a store with a few items, and a key."""
    async with open_sqlite(directory) as engine:
        await engine.ensure_table(NOTES)
        for number in range(20):
            await engine.put(Put(NOTES, {"author": "one", "number": number}))
    read_or_create(directory / "cursor.key")
    return directory


@pytest.fixture
async def backup(tmp_path: Path) -> Path:
    """The file of a small back-up."""
    return (
        await create_backup(await small(tmp_path / "original"), tmp_path / "backup.tar", CLOCK)
    ).path


def expect_nothing_left(directory: Path, *names: str) -> None:
    """In the folder is only what is named: no draft."""
    assert sorted(path.name for path in directory.iterdir()) == sorted(names)


async def test_all_that_was_acknowledged_before_is_in_a_backup_taken_under_load(
    tmp_path: Path,
) -> None:
    """Both databases are written to all the while; the copy of each is of one moment, and the server's work goes on."""
    async with writing(tmp_path / "data") as busy:
        await busy.until_more(50)
        pairs, rows = set(busy.pairs), set(busy.rows)
        taken = await create_backup(busy.directory, tmp_path / "backup.tar", CLOCK)
        await busy.until_more(10)
    await restore_backup(taken.path, tmp_path / "other", CLOCK)
    found = {
        (item["author"], int(item["number"])) for item in (await audit(tmp_path / "other"))["notes"]
    }
    assert pairs <= found
    assert {(author, number + 1) for author, number in found if number % 2 == 0} <= found
    async with open_postgres(tmp_path / "other", CLOCK, durable=False) as address:
        connection = await asyncpg.connect(address)
        kept = {row["number"] for row in await connection.fetch("SELECT number FROM notes")}
        await connection.close()
    assert rows <= kept
    assert {number + 1 for number in kept if number % 2 == 0} <= kept
    assert (tmp_path / "other" / "cursor.key").read_bytes() == (
        tmp_path / "data" / "cursor.key"
    ).read_bytes()
    assert not (tmp_path / "other" / "postgres.dump").exists()


async def test_keys_and_the_backup_itself_are_their_owners_alone(
    tmp_path: Path, backup: Path
) -> None:
    await restore_backup(backup, tmp_path / "other", CLOCK)
    made = [backup, tmp_path / "other", *(tmp_path / "other").iterdir()]
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode) & 0o077) for path in made} == {
        path.name: "0o0" for path in made
    }
    expect_nothing_left(tmp_path, "original", "backup.tar", "other")


async def test_in_a_folder_a_backup_is_named_after_the_time(tmp_path: Path) -> None:
    data = await small(tmp_path / "data")
    (tmp_path / "backups").mkdir()
    taken = await create_backup(data, tmp_path / "backups", CLOCK)
    assert taken.path.name.startswith("tally-")
    expect_nothing_left(tmp_path / "backups", taken.path.name)


async def test_a_backup_never_replaces_a_file_nor_lies_in_what_it_saves(
    tmp_path: Path, backup: Path
) -> None:
    before = inside(backup)
    with pytest.raises(BackupRejected, match="is there already"):
        await create_backup(tmp_path / "original", backup, CLOCK)
    with pytest.raises(BackupRejected, match="inside the data directory"):
        await create_backup(tmp_path / "original", tmp_path / "original" / "backup.tar", CLOCK)
    with pytest.raises(BackupRejected, match="cannot be written"):
        await create_backup(tmp_path / "original", tmp_path / "nowhere" / "backup.tar", CLOCK)
    with pytest.raises(BackupRejected, match="nothing to back up"):
        await create_backup(tmp_path / "no data", tmp_path / "other.tar", CLOCK)
    assert inside(backup) == before
    expect_nothing_left(tmp_path, "original", "backup.tar")


async def test_a_damaged_store_is_not_backed_up_as_if_it_were_sound(tmp_path: Path) -> None:
    data = await small(tmp_path / "data")
    content = bytearray((data / "store.db").read_bytes())
    content[4096 * 2 : 4096 * 4] = b"\xff" * 8192
    (data / "store.db").write_bytes(content)
    with pytest.raises(Exception, match=r"damaged|malformed") as caught:
        await create_backup(data, tmp_path / "backup.tar", CLOCK)
    assert str(data / "store.db") in str(caught.value)
    expect_nothing_left(tmp_path, "data")


def inside(backup: Path) -> dict[str, tuple[int, int]]:
    """Where each file of the back-up begins and ends in it."""
    with tarfile.open(backup) as tar:
        return {
            member.name: (member.offset_data, member.offset_data + member.size)
            for member in tar.getmembers()
        }


def cut(backup: Path, share: float) -> None:
    """Leave that share of what comes before the zeros at the end of every tar, and at least a byte less than all."""
    last = max(end for _, end in inside(backup).values())
    backup.write_bytes(backup.read_bytes()[: min(int(last * share), last - 1)])


def flip(backup: Path, name: str) -> None:
    """Change one bit in the middle of a file."""
    begin, end = inside(backup)[name]
    content = bytearray(backup.read_bytes())
    content[(begin + end) // 2] ^= 1
    backup.write_bytes(content)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 1.0])
async def test_a_backup_that_was_cut_short_is_refused(
    tmp_path: Path, backup: Path, share: float
) -> None:
    cut(backup, share)
    with pytest.raises(BackupFailed, match=r"cut short|damaged|no back-up"):
        await restore_backup(backup, tmp_path / "other", CLOCK)
    expect_nothing_left(tmp_path, "original", "backup.tar")


@pytest.mark.parametrize("name", [MANIFEST, CHECKSUM, "cursor.key", "store.db"])
async def test_a_single_flipped_bit_is_found(tmp_path: Path, backup: Path, name: str) -> None:
    flip(backup, name)
    with pytest.raises(BackupFailed, match=r"damaged|checksum"):
        await restore_backup(backup, tmp_path / "other", CLOCK)
    expect_nothing_left(tmp_path, "original", "backup.tar")


def tar_with(path: Path, name: str, content: bytes) -> None:
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))


def forge(path: Path, directory: Path, change: Callable[[Manifest], Manifest]) -> None:
    """A back-up with a list that was made up, and has a good checksum."""
    write_archive(directory, change(Manifest(FORMAT, "0", "now", describe(directory))), path)


async def test_what_is_no_backup_of_ours_is_refused(tmp_path: Path) -> None:
    """A text, somebody's tar, a newer format, and a list that leads out of the data directory."""
    directory, source = tmp_path / "files", tmp_path / "files" / "escape"
    directory.mkdir()
    (tmp_path / "text").write_text("not a tar at all " * 1000)
    tar_with(tmp_path / "tar", "something", b"else")
    forge(
        tmp_path / "newer",
        directory,
        lambda found: Manifest(FORMAT + 1, "9.9", found.created, found.entries),
    )
    source.write_text("out")
    [entry] = describe(directory)
    outside = type(entry)("../files/escape", entry.size, entry.mode, entry.sha256)
    forge(
        tmp_path / "outside",
        directory,
        lambda found: Manifest(FORMAT, "0", found.created, (outside,)),
    )
    for name, words in (
        ("text", "damaged"),
        ("tar", "does not begin with"),
        ("newer", "made by Tally 9.9 in format 2"),
        ("outside", "outside"),
    ):
        with pytest.raises(BackupFailed, match=words):
            await restore_backup(tmp_path / name, tmp_path / "other", CLOCK)
    expect_nothing_left(tmp_path, "files", "text", "tar", "newer", "outside")


async def test_a_restore_takes_nobodys_place(tmp_path: Path, backup: Path) -> None:
    """Not that of data, not that of a program that runs; an empty directory it does create_backup."""
    (tmp_path / "empty").mkdir()
    await restore_backup(backup, tmp_path / "empty", CLOCK)
    assert len((await audit(tmp_path / "empty"))["notes"]) == 20
    with pytest.raises(BackupRejected, match="is not empty"):
        await restore_backup(backup, tmp_path / "original", CLOCK)
    with (
        directory_lock.shared_lock(tmp_path / "original"),
        pytest.raises(BackupRejected, match="A program runs on"),
    ):
        await restore_backup(backup, tmp_path / "original", CLOCK)
    with pytest.raises(BackupRejected, match="There is no back-up"):
        await restore_backup(tmp_path / "none.tar", tmp_path / "other", CLOCK)


async def test_who_comes_between_a_restore_and_its_end_keeps_the_directory(
    tmp_path: Path, backup: Path
) -> None:
    """Data that appears while a restore is under way is not replaced."""
    restoring = asyncio.create_task(restore_backup(backup, tmp_path / "other", CLOCK))
    await asyncio.sleep(0)  # it has looked at the directory, and unpacks beside it in a thread now
    assert list(tmp_path.glob("other.restored-*"))  # noqa: ASYNC240  (a look at a folder of a test)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "first").write_text("I was here")
    with pytest.raises(BackupFailed, match="no longer empty"):
        await restoring
    expect_nothing_left(tmp_path / "other", "first")
    expect_nothing_left(tmp_path, "original", "backup.tar", "other")
