"""An archive from anywhere can neither write outside the data directory nor exhaust the machine."""

import tarfile
from pathlib import Path

import apsw
import pytest

from tally.backup.archive import ArchiveEntry, Manifest
from tally.backup.create import create_backup
from tally.backup.errors import BackupFailed, BackupRejected
from tally.backup.restore import restore_backup
from tally.kit.keyfile import read_or_create
from tests.backup.forgery import ForgedMember, append_raw, forge, forge_manifest, raw_header
from tests.backup.test_backup import CLOCK, create_data_directory, expect_files, flip_bit, key_of

KEY = ForgedMember(name="cursor.key", content=b"0" * 64)
LINKS = {
    "symbolic link": ForgedMember(name="cursor.key", kind=tarfile.SYMTYPE, target="/etc/passwd"),
    "hard link": ForgedMember(name="cursor.key", kind=tarfile.LNKTYPE, target="/etc/passwd"),
    "device": ForgedMember(name="cursor.key", kind=tarfile.CHRTYPE),
    "pipe": ForgedMember(name="cursor.key", kind=tarfile.FIFOTYPE),
    "directory": ForgedMember(name="cursor.key", kind=tarfile.DIRTYPE),
}
NAMES = (
    "/etc/cron.d/job",
    "../escape.key",
    "demo/../../escape.key",
    "demo/",
    "./cursor.key",
    "",
    "run.sh",
    "postgres/pg_authid.copy",
    "postgres/cluster/postgresql.conf",
    "valkey/valkey.conf",
    "store.db-wal",
    "cursor.key\n",
)


async def expect_refusal(source: Path, message: str) -> None:
    """Check that even a trusted restore refuses the archive before it creates a file."""
    before = sorted(source.parent.iterdir())
    with pytest.raises(BackupFailed, match=message):
        await restore_backup(source, source.parent / "data", CLOCK, trust=True)
    assert sorted(source.parent.iterdir()) == before


@pytest.mark.parametrize("member", LINKS.values(), ids=LINKS)
async def test_only_regular_files_are_accepted(tmp_path: Path, member: ForgedMember) -> None:
    await expect_refusal(forge(tmp_path / "a.tar", [member]), "is not a regular file|is missing")


@pytest.mark.parametrize("name", NAMES)
async def test_only_known_names_are_accepted(tmp_path: Path, name: str) -> None:
    """Neither paths outside the data directory nor files that a server would execute or read."""
    source = forge(tmp_path / "a.tar", [KEY, ForgedMember(name=name)])
    await expect_refusal(source, "not part of a backup")


async def test_duplicates_and_unlisted_files_are_refused(tmp_path: Path) -> None:
    await expect_refusal(forge(tmp_path / "a.tar", [KEY, KEY]), "contains a file twice")
    (tmp_path / "a.tar").unlink()
    extra = ForgedMember(name="demo/demo.json", listed=False)
    await expect_refusal(forge(tmp_path / "a.tar", [KEY, extra]), "manifest does not list")


async def test_oversized_files_are_refused(tmp_path: Path) -> None:
    large = ForgedMember(name="cursor.key", content=b"0" * 65_537)
    await expect_refusal(forge(tmp_path / "a.tar", [large]), "at most 65536 bytes")


async def test_an_archive_larger_than_the_disk_is_refused(tmp_path: Path) -> None:
    """A file with a hole claims eight terabytes and takes one block."""
    size, source = 2**43, tmp_path / "a.tar"
    entry = ArchiveEntry("store.db", size, 0o600, "0" * 64)
    forge_manifest(source, Manifest(2, "0.1.0", "2026-01-01", (entry,)))
    encoded_size = b"\x80" + size.to_bytes(11, "big")
    append_raw(source, raw_header("store.db", encoded_size, tarfile.REGTYPE))
    with source.open("r+b") as file:
        file.truncate(source.stat().st_size + size + 1024)
    await expect_refusal(source, "bytes are free")


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        pytest.param(
            [raw_header("x", b"77777777777", tarfile.XHDTYPE)], "header", id="8 GiB header"
        ),
        pytest.param([raw_header("x", b"\xff" * 12, tarfile.XHDTYPE)], "header", id="negative"),
        pytest.param([raw_header("cursor.key", b"\xff" * 12, tarfile.REGTYPE)], "size", id="file"),
        pytest.param(
            [raw_header("x", b"77777777777", tarfile.GNUTYPE_LONGNAME)], "header", id="long name"
        ),
        pytest.param(
            [raw_header("x", b"0", tarfile.XHDTYPE)] * 20_000,
            "damaged|missing",
            id="nested headers",
        ),
        pytest.param(
            [raw_header("cursor.key", b"100", tarfile.GNUTYPE_SPARSE), b"0" * 512],
            "not a regular file",
            id="sparse",
        ),
    ],
)
async def test_headers_that_exhaust_memory_are_refused(
    tmp_path: Path, blocks: list[bytes], message: str
) -> None:
    entry = ArchiveEntry("cursor.key", 64, 0o600, "0" * 64)
    forge_manifest(tmp_path / "a.tar", Manifest(2, "0.1.0", "2026-01-01", (entry,)))
    await expect_refusal(append_raw(tmp_path / "a.tar", *blocks), message)


async def test_other_files_and_newer_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a tar at all " * 1000)
    await expect_refusal(tmp_path / "text", "damaged")
    with tarfile.open(tmp_path / "tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("something"))
    await expect_refusal(tmp_path / "tar", "is not a Tally backup")
    await expect_refusal(forge(tmp_path / "new", [KEY], version=3), "in format 3; this version")
    await expect_refusal(forge(tmp_path / "newer", [KEY], schema_version=999), "has migration 999")
    await expect_refusal(
        forge(tmp_path / "tables", [KEY], schema_version=2), "does not have the tables"
    )


async def test_a_dump_is_refused_outside_its_format(tmp_path: Path) -> None:
    dump = ForgedMember(name="postgres.dump")
    await expect_refusal(forge(tmp_path / "a.tar", [KEY, dump]), "not part of its format")


async def test_a_backup_names_the_files_that_it_omits(tmp_path: Path) -> None:
    """Such as notes of an operator, and links; console sessions end with a restore."""
    data = await create_data_directory(tmp_path / "original")
    (data / "console").mkdir()
    (data / "console" / "storage-user-1.json").write_text("{}")
    for name in ("notes.txt", "postgres.dump", "large.key"):
        (data / name).write_text("0" * 65_537)
    (data / "link.key").symlink_to("cursor.key")
    created = await create_backup(data, tmp_path / "backup.tar", CLOCK)
    assert created.omitted == ("large.key", "link.key", "notes.txt", "postgres.dump")
    await restore_backup(created.path, tmp_path / "data", CLOCK, key_of(data))
    expect_files(tmp_path / "data", "backup.key", "cursor.key", "store.db", "store.id")


async def test_a_store_with_triggers_is_refused(tmp_path: Path) -> None:
    """The store creates none, so they are not part of its data."""
    data = await create_data_directory(tmp_path / "original")
    connection = apsw.Connection(str(data / "store.db"))
    connection.execute("CREATE TRIGGER trap AFTER INSERT ON tables BEGIN DELETE FROM tokens; END")
    connection.close()
    created = await create_backup(data, tmp_path / "backup.tar", CLOCK)
    with pytest.raises(BackupFailed, match="objects that Tally does not create"):
        await restore_backup(created.path, tmp_path / "data", CLOCK, key_of(data))
    expect_files(tmp_path, "original", "backup.tar")


async def test_a_backup_of_unknown_origin_needs_trust(tmp_path: Path) -> None:
    """Unsigned, signed by another installation, or changed: the message says what to do."""
    data = await create_data_directory(tmp_path / "original")
    created = await create_backup(data, tmp_path / "backup.tar", CLOCK)
    other = read_or_create(tmp_path / "other.key")
    unsigned = forge(tmp_path / "unsigned.tar", [KEY], version=1)
    changed = tmp_path / "changed.tar"
    changed.write_bytes(created.path.read_bytes())
    flip_bit(changed, "manifest.signature")
    for source, key, reason in (
        (unsigned, key_of(data), "is not signed. If you know"),
        (created.path, None, "the key to verify it is missing. Set TALLY_BACKUP_KEY"),
        (created.path, other, "was signed by another installation. Set TALLY_BACKUP_KEY"),
        (changed, key_of(data), "was changed, or was signed by another"),
        (forge(tmp_path / "forged.tar", [KEY]), key_of(data), "was changed"),
    ):
        with pytest.raises(BackupRejected, match=f"{reason}.*--trust"):
            await restore_backup(source, tmp_path / "data", CLOCK, key)
        assert not (tmp_path / "data").exists()
    await restore_backup(unsigned, tmp_path / "data", CLOCK, trust=True)
    expect_files(tmp_path / "data", "cursor.key")
    await restore_backup(created.path, tmp_path / "same", CLOCK, key_of(data))
    assert key_of(tmp_path / "same") == key_of(data)
