"""Servers that start, stop, and keep to themselves."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tally.embedded.postgres import open_postgres
from tally.embedded.server_directory import (
    LOG_BYTES,
    MAX_SOCKET_PATH_BYTES,
    EmbeddedServerError,
    RotatingLog,
    private_directory,
    socket_directory,
)
from tally.embedded.valkey import open_valkey
from tally.kit.clock import SystemClock
from tests.embedded.harness import ask, mode_of, open_to_others, ping


async def test_postgres_keeps_what_it_was_told(directory: Path) -> None:
    """The next start finds what was written, and everything on the way there was durable."""
    async with open_postgres(directory, SystemClock()) as dsn:
        assert str(await ask(dsn, "SHOW server_version")).startswith("18")
        await ask(dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
        assert [
            await ask(dsn, f"SHOW {name}")
            for name in ("fsync", "full_page_writes", "synchronous_commit")
        ] == ["on"] * 3
    async with open_postgres(directory, SystemClock()) as dsn:
        assert await ask(dsn, "SELECT answer FROM kept") == 42


async def test_only_their_owner_can_reach_the_servers_and_their_files(directory: Path) -> None:
    """No file is open to others, nothing listens on a network, and the socket is private."""
    before = mode_of(directory)
    async with (
        open_postgres(directory, SystemClock()) as dsn,
        open_valkey(directory, SystemClock()) as url,
    ):
        assert await ask(dsn, "SHOW listen_addresses") == ""
        assert await ping(url)
        assert (directory / "postgres" / ".s.PGSQL.5432").is_socket()
        assert open_to_others(directory / "postgres") == []
        assert open_to_others(directory / "valkey") == []
    assert mode_of(directory) == before, "folders above are left as they are"


async def test_a_data_directory_may_be_called_anything(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    """Its name goes through a command line, two settings and two addresses."""
    directory = make(tmp_path / "a 'b', \"c\" %20 ü?#")
    async with (
        open_postgres(directory, SystemClock(), durable=False) as dsn,
        open_valkey(directory, SystemClock()) as url,
    ):
        assert await ask(dsn, "SELECT 1") == 1
        assert await ping(url)


async def test_a_name_too_long_for_a_socket_gets_a_short_folder_for_it(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    """Sockets then live in a folder that is as private."""
    directory = make(tmp_path / ("long" * 30))
    sockets = socket_directory((directory / "postgres").resolve(), ".s.PGSQL.5432")
    async with (
        open_postgres(directory, SystemClock(), durable=False) as dsn,
        open_valkey(directory, SystemClock()) as url,
    ):
        assert await ask(dsn, "SELECT 1") == 1
        assert await ping(url)
        assert len(os.fsencode(sockets / ".s.PGSQL.5432")) <= MAX_SOCKET_PATH_BYTES
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert (sockets / ".s.PGSQL.5432").is_socket()
    assert not sockets.exists()


def test_a_folder_for_sockets_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    """Somebody may have made it before us, to listen in."""
    directory = private_directory(tmp_path / ("deep" * 30))
    short = socket_directory(directory, ".s.PGSQL.5432")
    short.chmod(0o777)
    with pytest.raises(EmbeddedServerError, match="belongs to somebody else"):
        socket_directory(directory, ".s.PGSQL.5432")
    short.rmdir()


async def test_a_postgres_that_cannot_start_says_why(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    """The reason is PostgreSQL's own."""
    directory = make(tmp_path / "data")
    (directory / "postgres" / "cluster" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(EmbeddedServerError, match=r"did not start: .*incompatible"):
        async with open_postgres(directory, SystemClock()):
            pytest.fail("it cannot have started")


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EmbeddedServerError, match=r"file.*cannot be made"):
        async with open_valkey(tmp_path / "file", SystemClock()):
            pytest.fail("it cannot have started")


async def test_the_socket_of_a_valkey_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    """A stale socket is removed."""
    stale = private_directory(tmp_path / "valkey") / "valkey.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stale))
    async with open_valkey(tmp_path, SystemClock()) as url:
        assert await ping(url)


def test_a_log_is_bounded(tmp_path: Path) -> None:
    """What is older than the last megabyte or two is gone; the last lines are at hand."""
    log = RotatingLog(tmp_path / "log")
    line = b"x" * 9_999 + b"\n"
    for _ in range(5 * LOG_BYTES // len(line)):
        log.write(line)
    log.write(b"the last word\n")
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sorted(sizes) == ["log", "log.1"]
    assert max(sizes.values()) <= LOG_BYTES + len(line)
    assert log.last_lines[-1] == "the last word"
    assert len(log.last_lines) == 10
