"""Damaged files are detected, and the error names the damage and the remedy."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tally.store.api import Get, Put, Query, Scan
from tally.store.errors import StorageDamaged
from tally.store.expressions import F
from tally.store.schema import GlobalIndex, S, Table
from tally.store.sqlite import SqliteEngine, files, open_sqlite
from tally.store.sqlite.checksums import has_checksums
from tally.store.sqlite.directory import MARKER_NAME
from tally.store.sqlite.files import FILE_NAME, PAGE_BYTES, connect
from tally.store.sqlite.scrub import find_damage
from tally.store.sqlite.wal_check import (
    FRAME_HEADER_BYTES,
    WAL_HEADER_BYTES,
    cut_log,
    find_wal_damage,
)
from tests.faults.audit import audit

NOTES = Table("notes", partition=S("id"), indexes=(GlobalIndex("by-team", S("team")),))
COUNT = 400
LOG_NAME = f"{FILE_NAME}-wal"
FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_BYTES


def note(number: int) -> dict[str, str]:
    return {"id": f"note-{number:04}", "team": f"team-{number % 7}", "text": f"{number:03}" * 100}


async def write_notes(engine: SqliteEngine, count: int) -> None:
    await engine.ensure_table(NOTES)
    for number in range(count):
        await engine.put(Put(NOTES, note(number)))


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    """A data directory that was closed cleanly."""
    async with open_sqlite(tmp_path / "closed") as engine:
        await engine.ensure_table(NOTES)
        await asyncio.gather(*(engine.put(Put(NOTES, note(number))) for number in range(COUNT)))
    return tmp_path / "closed"


async def crashed_directory(tmp_path: Path, count: int) -> Path:
    """Return a copy of the files as they are while the store is open: nothing was closed."""
    copy = tmp_path / "crashed"
    copy.mkdir()
    async with open_sqlite(tmp_path / "data") as engine:
        await write_notes(engine, count)
        for name in (FILE_NAME, LOG_NAME, MARKER_NAME):
            shutil.copy(tmp_path / "data" / name, copy / name)
    return copy


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def page_of(directory: Path, name: str, *, interior: bool) -> int:
    """Return a page of a table or an index, as SQLite's statistics list them."""
    connection = connect(directory / FILE_NAME)
    try:
        (page,) = connection.execute(
            "SELECT max(pageno) FROM dbstat WHERE name = ? AND pagetype = ?",
            (name, "internal" if interior else "leaf"),
        ).fetchone() or (None,)
    finally:
        connection.close()
    assert isinstance(page, int), f"{name} has no such page"
    return page


async def read_all(directory: Path) -> None:
    async with open_sqlite(directory) as engine:
        for number in range(COUNT):
            await engine.get(Get(NOTES, {"id": note(number)["id"]}))


async def query_all(directory: Path) -> None:
    async with open_sqlite(directory) as engine:
        for team in range(7):
            await engine.query(Query(NOTES, F("team") == f"team-{team}", "by-team"))


async def scrub_all(directory: Path) -> None:
    async with open_sqlite(directory) as engine:
        while not await engine.scrub(16):
            pass


@pytest.mark.parametrize(
    ("name", "interior", "read"),
    [
        ("rows notes", False, read_all),
        ("rows notes", True, read_all),
        ("index notes by-team", False, query_all),
        ("index notes by-team", True, query_all),
    ],
)
async def test_one_flipped_bit_is_found_by_reads_the_scrub_and_the_check(
    directory: Path, name: str, interior: bool, read: object
) -> None:
    page = page_of(directory, name, interior=interior)
    assert [*find_damage(directory / FILE_NAME)] == []
    flip(directory / FILE_NAME, (page - 1) * PAGE_BYTES + PAGE_BYTES - 300)
    assert f"page {page}: wrong checksum" in [*find_damage(directory / FILE_NAME)]
    for use in (read, scrub_all):
        with pytest.raises(StorageDamaged, match=r"tally restore.*tally store check"):
            await use(directory)  # type: ignore[operator]


async def test_the_check_finds_an_index_that_differs_from_its_table(directory: Path) -> None:
    connection = connect(directory / FILE_NAME)
    connection.execute('DELETE FROM "index notes by-team" WHERE pk = ?', (b"note-0007",))
    connection.execute('DELETE FROM "rows notes" WHERE pk = ?', (b"note-0009",))
    connection.close()
    problems = [*find_damage(directory / FILE_NAME)]
    assert problems == [
        "index notes/by-team: no entry for b'note-0007', b''",
        "index notes/by-team: 1 entries have no item",
    ]


async def test_an_older_database_gets_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as former:
        former.setattr(files, "reserve_checksums", lambda _connection: None)
        former.setattr(files, "add_checksums", lambda _connection: None)
        async with open_sqlite(tmp_path) as engine:
            await write_notes(engine, 20)
    assert not has_checksums(tmp_path / FILE_NAME, PAGE_BYTES)
    async with open_sqlite(tmp_path):
        pass
    assert has_checksums(tmp_path / FILE_NAME, PAGE_BYTES)
    await scrub_all(tmp_path)
    assert len((await audit(tmp_path))["notes"]) == 20


def commits(log: Path) -> list[int]:
    """Return the numbers of the commit frames, from 1."""
    content = log.read_bytes()
    starts = range(WAL_HEADER_BYTES, len(content), FRAME_BYTES)
    return [number for number, start in enumerate(starts, 1) if any(content[start + 4 : start + 8])]


def frame_offset(number: int) -> int:
    return WAL_HEADER_BYTES + (number - 1) * FRAME_BYTES


@pytest.mark.parametrize("place", [4, 10, 17, 24, 2000, 4119])
@pytest.mark.parametrize("before_the_end", [2, 3, 10])
async def test_a_damaged_log_is_refused_and_not_changed(
    tmp_path: Path, place: int, before_the_end: int
) -> None:
    """A byte of the header, the salt, the checksum or the page, in an acknowledged transaction."""
    crashed = await crashed_directory(tmp_path, 20)
    damaged_frame = commits(crashed / LOG_NAME)[-before_the_end]
    if before_the_end == 2 and place == 4:
        pytest.skip("without its commit mark, a transaction looks like a part of the last one")
    flip(crashed / LOG_NAME, frame_offset(damaged_frame) + place)
    before = (crashed / LOG_NAME).read_bytes()
    with pytest.raises(StorageDamaged, match=f"frame {damaged_frame}.*tally restore"):
        async with open_sqlite(crashed):
            pass
    assert (crashed / LOG_NAME).read_bytes() == before


@pytest.mark.parametrize("offset", [2, 9, 13, 17, 25])
async def test_a_damaged_header_of_the_log_is_refused(tmp_path: Path, offset: int) -> None:
    crashed = await crashed_directory(tmp_path, 20)
    flip(crashed / LOG_NAME, offset)
    with pytest.raises(StorageDamaged, match="its header"):
        async with open_sqlite(crashed):
            pass


async def test_a_torn_last_transaction_opens_without_it(tmp_path: Path) -> None:
    """A power loss may persist the commit frame and lose an earlier frame of the transaction."""
    crashed = await crashed_directory(tmp_path, 20)
    *_, former, last = commits(crashed / LOG_NAME)
    assert last - former > 1, "the transaction needs two frames"
    flip(crashed / LOG_NAME, frame_offset(former + 1) + 100)
    assert len((await audit(crashed))["notes"]) == 19


async def test_a_log_that_another_engine_uses_is_not_checked(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as first:
        await write_notes(first, 20)
        flip(tmp_path / LOG_NAME, frame_offset(commits(tmp_path / LOG_NAME)[3]) + 10)
        async with open_sqlite(tmp_path) as second:
            assert (await second.scan(Scan(NOTES))).scanned == 20


async def test_cutting_the_log_keeps_what_precedes_the_damage(tmp_path: Path) -> None:
    crashed = await crashed_directory(tmp_path, 20)
    log, damaged_frame = crashed / LOG_NAME, commits(crashed / LOG_NAME)[-10]
    flip(log, frame_offset(damaged_frame) + 500)
    whole, damage = log.read_bytes(), find_wal_damage(log)
    assert damage is not None
    assert cut_log(log, damage).read_bytes() == whole
    assert len((await audit(crashed))["notes"]) == 10


@pytest.mark.parametrize("lose", ["empty", "missing", "zeros", "one byte", "a newline", "half"])
async def test_a_lost_database_is_not_a_new_store(directory: Path, lose: str) -> None:
    database = directory / FILE_NAME
    content = database.read_bytes()
    left = {
        "empty": b"",
        "zeros": bytes(len(content)),
        "one byte": content[:1],
        "a newline": b"\n",
        "half": content[: len(content) // 2],
    }
    database.unlink()
    if lose != "missing":
        database.write_bytes(left[lose])
    with pytest.raises(StorageDamaged, match="tally restore"):
        async with open_sqlite(directory):
            pass
    assert database.exists() == (lose != "missing")
    assert lose == "missing" or database.read_bytes() == left[lose]


async def test_the_database_of_another_directory_is_refused(
    tmp_path: Path, directory: Path
) -> None:
    async with open_sqlite(tmp_path / "other"):
        pass
    shutil.copy(tmp_path / "other" / FILE_NAME, directory / FILE_NAME)
    with pytest.raises(StorageDamaged, match=f"not the database of this.*delete {MARKER_NAME}"):
        async with open_sqlite(directory):
            pass
    (directory / MARKER_NAME).unlink()
    async with open_sqlite(directory) as engine:
        assert await engine.list_tables() == []


async def test_a_store_that_was_not_closed_is_recognized(tmp_path: Path, directory: Path) -> None:
    async with open_sqlite(directory) as engine:
        assert not engine.is_unclean
    async with open_sqlite(await crashed_directory(tmp_path, 3)) as engine:
        assert engine.is_unclean
    assert (directory / MARKER_NAME).stat().st_mode & 0o777 == 0o600
