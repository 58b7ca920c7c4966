"""Start, stop and isolation of the embedded servers."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tally.embedded.postgres import open_postgres
from tally.embedded.server_directory import (
    MAX_LOG_BYTES,
    MAX_SOCKET_PATH_BYTES,
    EmbeddedServerError,
    RotatingLog,
    private_directory,
    socket_directory,
)
from tally.embedded.valkey import open_valkey
from tally.kit.clock import SystemClock
from tests.embedded.harness import accessible_to_others, permissions, ping, query


async def test_postgres_data_survives_a_restart(directory: Path) -> None:
    """Durable by default: fsync, full-page writes and synchronous commit are on."""
    async with open_postgres(directory, SystemClock()) as dsn:
        assert str(await query(dsn, "SHOW server_version")).startswith("18")
        await query(dsn, "CREATE TABLE stored AS SELECT 42 AS answer")
        assert [
            await query(dsn, f"SHOW {name}")
            for name in ("fsync", "full_page_writes", "synchronous_commit")
        ] == ["on"] * 3
    async with open_postgres(directory, SystemClock()) as dsn:
        assert await query(dsn, "SELECT answer FROM stored") == 42


async def test_only_the_owner_can_access_the_servers_and_their_files(directory: Path) -> None:
    """Files and sockets are private, and nothing listens on the network."""
    before = permissions(directory)
    async with (
        open_postgres(directory, SystemClock()) as dsn,
        open_valkey(directory, SystemClock()) as url,
    ):
        assert await query(dsn, "SHOW listen_addresses") == ""
        assert await ping(url)
        assert (directory / "postgres" / ".s.PGSQL.5432").is_socket()
        assert accessible_to_others(directory / "postgres") == []
        assert accessible_to_others(directory / "valkey") == []
    assert permissions(directory) == before, "the parent directory is unchanged"


async def test_a_data_directory_may_have_any_name(
    copy_directory: Callable[[Path], Path], tmp_path: Path
) -> None:
    """The name passes through a command line, two settings and two addresses."""
    directory = copy_directory(tmp_path / "a 'b', \"c\" %20 ü?#")
    async with (
        open_postgres(directory, SystemClock(), durable=False) as dsn,
        open_valkey(directory, SystemClock()) as url,
    ):
        assert await query(dsn, "SELECT 1") == 1
        assert await ping(url)


async def test_a_path_too_long_for_a_socket_uses_a_short_directory(
    copy_directory: Callable[[Path], Path], tmp_path: Path
) -> None:
    """The short directory is private too, and removed at the end."""
    directory = copy_directory(tmp_path / ("long" * 30))
    sockets = socket_directory((directory / "postgres").resolve(), ".s.PGSQL.5432")
    async with (
        open_postgres(directory, SystemClock(), durable=False) as dsn,
        open_valkey(directory, SystemClock()) as url,
    ):
        assert await query(dsn, "SELECT 1") == 1
        assert await ping(url)
        assert len(os.fsencode(sockets / ".s.PGSQL.5432")) <= MAX_SOCKET_PATH_BYTES
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert (sockets / ".s.PGSQL.5432").is_socket()
    assert not sockets.exists()


def test_a_socket_directory_accessible_to_others_is_rejected(tmp_path: Path) -> None:
    """Another user may have created it to intercept connections."""
    directory = private_directory(tmp_path / ("deep" * 30))
    short = socket_directory(directory, ".s.PGSQL.5432")
    short.chmod(0o777)
    with pytest.raises(EmbeddedServerError, match="other users own or can access it"):
        socket_directory(directory, ".s.PGSQL.5432")
    short.rmdir()


async def test_a_failed_postgres_start_reports_the_reason(
    copy_directory: Callable[[Path], Path], tmp_path: Path
) -> None:
    """The error contains PostgreSQL's output."""
    directory = copy_directory(tmp_path / "data")
    (directory / "postgres" / "cluster" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(EmbeddedServerError, match=r"did not start: .*incompatible"):
        async with open_postgres(directory, SystemClock()):
            pytest.fail("the server started")


async def test_the_error_names_a_directory_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EmbeddedServerError, match=r"Cannot create .*file"):
        async with open_valkey(tmp_path / "file", SystemClock()):
            pytest.fail("the server started")


async def test_a_stale_valkey_socket_is_removed(tmp_path: Path) -> None:
    stale = private_directory(tmp_path / "valkey") / "valkey.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stale))
    async with open_valkey(tmp_path, SystemClock()) as url:
        assert await ping(url)


def test_the_log_is_bounded(tmp_path: Path) -> None:
    """It has two files of at most a megabyte each, and the last ten lines in memory."""
    log = RotatingLog(tmp_path / "log")
    line = b"x" * 9_999 + b"\n"
    for _ in range(5 * MAX_LOG_BYTES // len(line)):
        log.write(line)
    log.write(b"the last line\n")
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sorted(sizes) == ["log", "log.1"]
    assert max(sizes.values()) <= MAX_LOG_BYTES + len(line)
    assert log.last_lines[-1] == "the last line"
    assert len(log.last_lines) == 10
