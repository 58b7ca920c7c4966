"""An unusable data directory causes one clear error, and existing files are not changed."""

import asyncio
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec
import pytest

from tally.store.api import Delete, Get, Put, Query, Scan
from tally.store.errors import StorageTooNew, StorageUnwritable, StoreError, StoreUnavailable
from tally.store.expressions import F
from tally.store.schema import S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.sqlite.files import FILE_NAME, FORMAT_VERSION
from tests.faults.audit import audit
from tests.faults.child_process import started
from tests.faults.crash_steps import LATER, READINGS, single_key, single_state
from tests.faults.storage_limits import Report, outcome
from tests.needs import need_program, skip_or_fail

NOTES = Table("notes", partition=S("id"))
FIRST = {"id": "first"}


async def write_first(directory: Path) -> None:
    async with open_sqlite(directory) as engine:
        await engine.create_table(NOTES)
        await engine.put(Put(NOTES, FIRST))


async def read_first(directory: Path) -> object:
    async with open_sqlite(directory) as engine:
        return (await engine.get(Get(NOTES, FIRST))).item


def foreign_without_an_id(database: Path) -> None:
    """A typical database of another program, without an application id."""
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.commit()
    connection.close()


def foreign_with_an_id(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA application_id = 252006673")
    connection.execute("CREATE TABLE revisions (id TEXT)")
    connection.commit()
    connection.close()


def foreign_with_a_version(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA user_version = 7")
    connection.close()


def garbage(database: Path) -> None:
    database.write_bytes(os.urandom(64 * 1024))


def text(database: Path) -> None:
    database.write_text("This is no database at all.\n" * 100)


def folder(database: Path) -> None:
    database.mkdir()
    (database / "kept").write_text("kept")


@pytest.mark.parametrize(
    "make",
    [foreign_without_an_id, foreign_with_an_id, foreign_with_a_version, garbage, text, folder],
)
async def test_a_foreign_file_is_rejected_and_not_changed(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    database = tmp_path / FILE_NAME
    make(database)
    before = _contents(tmp_path)
    with pytest.raises(StorageUnwritable, match=FILE_NAME):
        async with open_sqlite(tmp_path):
            pass
    assert _contents(tmp_path) == before


def _contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


async def test_a_newer_format_is_rejected_and_not_changed(tmp_path: Path) -> None:
    await write_first(tmp_path)
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.close()
    before = _contents(tmp_path)
    with pytest.raises(StorageTooNew, match=f"format {FORMAT_VERSION + 1}"):
        async with open_sqlite(tmp_path):
            pass
    assert _contents(tmp_path) == before


async def test_a_damaged_database_is_an_error_not_an_empty_store(tmp_path: Path) -> None:
    """The first pages are overwritten: reading raises an error."""
    await write_first(tmp_path)
    database = tmp_path / FILE_NAME
    whole = database.read_bytes()
    database.write_bytes(whole[:100] + bytes(len(whole) - 100))
    with pytest.raises(StoreUnavailable):
        await read_first(tmp_path)


@pytest.mark.soak
async def test_random_damage_causes_only_store_errors(
    tmp_path: Path,
) -> None:
    """Random bytes are changed: operations succeed or raise errors of the store."""
    whole, chance = tmp_path / "whole", random.Random()
    async with open_sqlite(whole) as engine:
        await engine.ensure_table(READINGS)
        await asyncio.gather(
            *(
                engine.put(Put(READINGS, state))
                for number in range(60)
                if (state := single_state(f"single-{number}", 4))
            )
        )
    original = (whole / FILE_NAME).read_bytes()
    ends: list[str] = []
    for number in range(40):
        damaged = bytearray(original)
        for _ in range(chance.choice((1, 3, 20))):
            damaged[chance.randrange(100, len(damaged))] = chance.randrange(256)
        directory = tmp_path / f"damaged-{number}-{chance.getrandbits(32):x}"
        directory.mkdir()
        (directory / FILE_NAME).write_bytes(damaged)
        ends += await use_damaged(directory)
        shutil.rmtree(directory)
    shutil.rmtree(whole)
    assert "done" in ends
    assert set(ends) - {"done"}, "no damage was met"


async def use_damaged(directory: Path) -> list[str]:
    """Run some operations and return their outcomes; fail on errors that are not the store's."""
    calls: list[Callable[[SqliteEngine], Awaitable[object]]] = [
        lambda engine: engine.list_tables(),
        lambda engine: engine.scan(Scan(READINGS)),
        lambda engine: engine.query(Query(READINGS, F("team") == "team-0", "by-team")),
        lambda engine: engine.get(Get(READINGS, single_key("single-9"))),
        lambda engine: engine.put(Put(READINGS, single_state("single-7", 1) or {})),
        lambda engine: engine.delete(Delete(READINGS, single_key("single-9"))),
        lambda engine: engine.sweep(READINGS, LATER * 2, 10),
    ]
    try:
        async with open_sqlite(directory) as engine:
            return [await outcome(call(engine)) for call in calls]
    except StoreError as error:
        return [type(error).__name__]


async def test_an_invalid_write_ahead_log_is_ignored(tmp_path: Path) -> None:
    """Garbage in the write-ahead log does not affect the database."""
    await write_first(tmp_path)
    (tmp_path / f"{FILE_NAME}-wal").write_bytes(struct.pack(">I", 0x377F0682) + os.urandom(50_000))
    assert await read_first(tmp_path) == FIRST
    await audit(tmp_path)


async def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    await write_first(tmp_path)
    assert await read_first(tmp_path) == FIRST


async def test_a_file_in_place_of_the_directory_is_rejected(tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.write_text("a file")
    for directory in (place, place / "below"):
        with pytest.raises(StorageUnwritable, match="data"):
            await write_first(directory)
    assert place.read_text() == "a file"


@contextmanager
def readable_only(path: Path) -> Iterator[None]:
    mode = path.stat().st_mode
    path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        yield
    finally:
        path.chmod(mode)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that all users may write; pytest's are private."""
    with tempfile.TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        directory = Path(outer) / "data"
        directory.mkdir()
        directory.chmod(0o777)
        yield directory


async def open_as_nobody(directory: Path) -> str:
    async with started("storage_limits", "open", str(directory)) as child:
        return await child.line()


async def test_a_directory_that_cannot_be_written_is_rejected(place: Path) -> None:
    with readable_only(place):
        assert (await open_as_nobody(place)).startswith(
            f"StorageUnwritable: the data directory {place} is not writable"
        )
        below = place / "below"
        assert (await open_as_nobody(below)).startswith(
            f"StorageUnwritable: cannot create the data directory {below}"
        )
    assert _contents(place) == {}


async def test_a_database_that_cannot_be_written_is_rejected(place: Path) -> None:
    """The process may write the directory but not the file; the file remains intact."""
    await write_first(place)
    with readable_only(place / FILE_NAME):
        assert (await open_as_nobody(place)).startswith("StorageUnwritable: ")
    assert await read_first(place) == FIRST


async def test_a_permitted_directory_can_be_opened(place: Path) -> None:
    """Proves that the unprivileged child can open a directory in general."""
    assert await open_as_nobody(place) == "opened"


async def test_a_deleted_directory_is_not_written(tmp_path: Path) -> None:
    """A write to a deleted file would be acknowledged and lost."""
    directory = tmp_path / "data"
    async with open_sqlite(directory) as engine:
        await engine.create_table(NOTES)
        shutil.rmtree(directory)
        with pytest.raises(StorageUnwritable, match="does not exist"):
            await engine.put(Put(NOTES, FIRST))
        with pytest.raises(StorageUnwritable, match="does not exist"):
            await engine.ping()


async def test_a_replaced_directory_is_not_written(tmp_path: Path) -> None:
    """The first store rejects writes, and closing it does not touch the new files."""
    directory = tmp_path / "data"
    async with open_sqlite(directory) as first:
        await first.create_table(NOTES)
        await first.put(Put(NOTES, {"id": "of the first"}))
        directory.rename(tmp_path / "moved")
        async with open_sqlite(directory) as second:
            await second.create_table(NOTES)
            await second.put(Put(NOTES, FIRST))
            with pytest.raises(StorageUnwritable, match="replaced"):
                await first.put(Put(NOTES, {"id": "too late"}))
            await first.close()
            assert (await second.get(Get(NOTES, FIRST))).item == FIRST
    assert (await audit(directory))["notes"] == [FIRST]
    assert (await audit(tmp_path / "moved"))["notes"] == [{"id": "of the first"}]


def check_verdict(report: Report) -> None:
    """Check that acknowledged writes exist, rejected ones do not, and writing resumes."""
    assert report.acknowledged > 100
    assert set(report.rejected) == {"StorageFull"}
    rejected = dict.fromkeys(("put", "update", "transaction", "ensure"), "StorageFull")
    assert report.while_full == {**rejected, "reopen": "done"}
    assert report.lost_while_full == report.lost_after_reopening == report.lost_at_the_end == 0
    assert report.unasked_at_the_end == report.half_transactions == 0
    assert report.written_after == 50


def need_mounts(place: Path) -> tuple[str, ...]:
    """Return a command prefix that permits mounting in a private namespace."""
    alone = (str(need_program("unshare", "util-linux")), "--map-root-user", "--mount")
    tried = subprocess.run(
        [*alone, "mount", "-t", "tmpfs", "tally-test", place],
        check=False,
        capture_output=True,
        text=True,
    )
    if tried.returncode:
        skip_or_fail(f"mounting in a namespace of one's own is not allowed here: {tried.stderr}")
    return alone


async def test_a_full_disk_loses_nothing_and_raises_storage_full(tmp_path: Path) -> None:
    """Uses a real file system of a few megabytes, filled and freed again."""
    async with started(
        "storage_limits", "full", str(tmp_path), "mount", before=need_mounts(tmp_path)
    ) as child:
        check_verdict(msgspec.json.decode(await child.line(), type=Report))


async def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    async with started("storage_limits", "full", str(tmp_path), "limit") as child:
        check_verdict(msgspec.json.decode(await child.line(), type=Report))
