"""The model of a disk keeps what was synced, and can lose, reorder and tear everything else."""

from pathlib import Path

import pytest

from tests.faults.disk_model import Disk, Image
from tests.faults.system_calls import Argument, SystemCall
from tests.faults.torn_files import Choice

ROOT = Path("/disk")
SECTOR = 512
SEEDS = 200


def path(name: str) -> Argument:
    return Argument(data=f"{ROOT}/{name}".encode())


def file(name: str) -> Argument:
    return Argument("3", path=f"{ROOT}/{name}".rstrip("/"))


def create(name: str) -> SystemCall:
    flags = Argument("O_RDWR|O_CREAT")
    return SystemCall(1, "openat", (Argument("AT_FDCWD"), path(name), flags), 3, f"{ROOT}/{name}")


def write(name: str, data: bytes, at: int) -> SystemCall:
    arguments = (file(name), Argument(data=data), Argument(str(len(data))), Argument(str(at)))
    return SystemCall(1, "pwrite64", arguments, len(data))


def sync(name: str, thread: int = 1) -> tuple[SystemCall, SystemCall]:
    return (
        SystemCall(thread, "fsync", (file(name),), begins=True),
        SystemCall(thread, "fsync", (file(name),)),
    )


def truncate(name: str, size: int) -> SystemCall:
    return SystemCall(1, "ftruncate", (file(name), Argument(str(size))))


def disk(*calls: SystemCall, image: Image | None = None) -> Disk:
    made = Disk(ROOT, image or {})
    for call in calls:
        made.execute(call)
    return made


def contents(made: Disk, name: str = "a") -> set[bytes | None]:
    """All contents of a file that random crashes leave; None if the file does not exist."""
    return {made.crash(Choice("part", seed)).get(name) for seed in range(SEEDS)}


def test_a_synced_file_in_a_synced_directory_survives() -> None:
    made = disk(create("a"), write("a", b"x", 0), *sync("a"), *sync(""))
    assert contents(made) == {b"x"}


def test_a_synced_file_without_a_synced_name_may_be_lost() -> None:
    made = disk(create("a"), write("a", b"x", 0), *sync("a"))
    assert contents(made) == {b"x", None}


def test_a_synced_name_may_have_an_empty_file_or_zeros() -> None:
    made = disk(create("a"), *sync(""), write("a", b"x", 0))
    assert contents(made) == {b"x", b"", b"\0"}


def test_sectors_are_written_in_any_order_and_completely() -> None:
    old, new = b"o" * SECTOR, b"n" * SECTOR
    made = disk(write("a", new * 2, 0), image={"a": old * 2})
    assert contents(made) == {old + old, old + new, new + old, new + new}


def test_a_later_write_may_be_on_disk_without_an_earlier_one() -> None:
    """But a sector contains all writes to it up to a moment, because they share a buffer."""
    made = disk(
        write("a", b"1", 0), write("a", b"2", 1), write("a", b"3", SECTOR), image={"a": b"." * 513}
    )
    starts = {(content or b"")[:2] + (content or b"")[-1:] for content in contents(made)}
    assert starts == {b"...", b"1..", b"12.", b"..3", b"1.3", b"123"}


def test_a_sync_does_not_cover_a_write_that_completes_after_its_begin() -> None:
    begin, end = sync("a", thread=2)
    made = disk(write("a", b"1", 0), begin, write("a", b"2", 1), end, image={"a": b".."})
    assert contents(made) == {b"1.", b"12"}


def test_a_truncation_is_atomic() -> None:
    made = disk(truncate("a", 0), write("a", b"new", 0), image={"a": b"older"})
    assert contents(made) == {b"older", b"", b"new", b"\0\0\0"}


def test_an_extension_is_zeros() -> None:
    assert contents(disk(truncate("a", 3), image={"a": b"x"})) == {b"x", b"x\0\0"}


@pytest.mark.parametrize("synced", [False, True])
def test_a_rename_is_atomic(synced: bool) -> None:
    rename = SystemCall(1, "rename", (path("a"), path("new/b")))
    image: Image = {"a": b"x", "new": None}
    made = disk(rename, *(sync("new") if synced else ()), image=image)
    names = {tuple(sorted(made.crash(Choice("part", seed)))) for seed in range(SEEDS)}
    renamed = ("new", "new/b")
    assert names == ({renamed} if synced else {renamed, ("a", "new")})


def test_a_name_is_changed_in_order() -> None:
    """A file that was created and removed is there or not; a new one of that name is later."""
    unlink = SystemCall(1, "unlink", (path("a"),))
    made = disk(unlink, create("a"), image={"a": b"old"})
    assert contents(made) == {b"old", None, b""}


def test_all_and_none_of_the_changes_are_the_ends_of_the_range() -> None:
    made = disk(create("b"), write("a", b"new", 0), image={"a": b"old"})
    assert made.crash(Choice("all")) == {"a": b"new", "b": b""}
    assert made.crash(Choice("none")) == {"a": b"old"}
