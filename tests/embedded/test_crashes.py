"""Behaviour after the program or a server is killed, including takeover by another program."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tally.embedded.postgres import PostgresCluster, find_postgres_binaries, open_postgres
from tally.embedded.server_directory import DirectoryLock, EmbeddedServerError, private_directory
from tally.embedded.stale_pid_file import is_postgres_on
from tally.embedded.supervisor import Supervisor, spawn
from tally.embedded.valkey import ValkeyInstance, find_valkey_binary
from tally.kit.clock import SystemClock
from tests.embedded.harness import (
    is_running,
    ping,
    query,
    query_with_retry,
    run_program,
    wait_until,
)


async def test_servers_of_a_killed_program_stop_and_committed_data_survives(
    directory: Path,
) -> None:
    """The kernel signals the servers when their program ends."""
    async with run_program(directory) as program:
        await query(program.dsn, "CREATE TABLE committed_before_the_kill AS SELECT 7 AS answer")
        assert all(is_running(process_id) for process_id in program.server_ids)
        await program.kill()
        await wait_until(
            lambda: not any(is_running(process_id) for process_id in program.server_ids)
        )
    async with run_program(directory) as program:
        assert program.owns_servers == (True, True)
        assert await query(program.dsn, "SELECT answer FROM committed_before_the_kill") == 7
        assert await ping(program.url)


async def test_a_program_that_ends_stops_its_servers(directory: Path) -> None:
    async with run_program(directory) as program:
        await program.stop()
        assert program.process.returncode == 0
        assert not any(is_running(process_id) for process_id in program.server_ids)
    assert not (directory / "postgres" / "cluster" / "postmaster.pid").exists()


async def test_a_second_program_joins_the_servers_and_takes_over_after_a_kill(
    directory: Path,
) -> None:
    """Both programs can use the servers, except during the takeover."""
    async with run_program(directory) as first:
        await query(first.dsn, "CREATE TABLE shared AS SELECT 1 AS number")
        cluster, instance = (
            PostgresCluster(directory / "postgres", find_postgres_binaries()),
            ValkeyInstance(directory / "valkey", find_valkey_binary()),
        )
        async with (
            Supervisor(cluster.program(durable=False), SystemClock()) as postgres,
            Supervisor(instance.program(), SystemClock()) as valkey,
        ):
            assert (postgres.owns_server, valkey.owns_server) == (False, False)
            assert await query(cluster.dsn, "SELECT number FROM shared") == 1
            await first.kill()
            await wait_until(lambda: postgres.owns_server and valkey.owns_server)
            assert await query_with_retry(cluster.dsn, "SELECT number FROM shared") == 1
            assert postgres.process_id not in first.server_ids
            await wait_until(instance.socket.exists)
            assert await ping(instance.url)
        assert not is_running(postgres.process_id or 0)


async def test_concurrent_starts_share_one_server(tmp_path: Path) -> None:
    """Also at the first start, after an interrupted initialization left a draft."""
    draft = private_directory(tmp_path / "postgres") / "cluster.new"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("18\n")
    async with asyncio.TaskGroup() as group:
        gate = asyncio.Barrier(2)

        async def use() -> str:
            async with open_postgres(tmp_path, SystemClock(), durable=False) as dsn:
                started = await query(dsn, "SELECT pg_postmaster_start_time()::text")
                await gate.wait()
                return str(started)

        users = [group.create_task(use()) for _ in range(2)]
    assert users[0].result() == users[1].result()
    assert not draft.exists()


@pytest.mark.parametrize("server", ["postgres", "valkey"])
async def test_a_killed_server_is_restarted(directory: Path, server: str) -> None:
    """Clients are rejected during the restart and served after it."""
    cluster = PostgresCluster(private_directory(directory / "postgres"), find_postgres_binaries())
    instance = ValkeyInstance(private_directory(directory / "valkey"), find_valkey_binary())
    program = cluster.program(durable=True) if server == "postgres" else instance.program()
    async with Supervisor(program, SystemClock()) as supervisor:
        first = supervisor.process_id
        assert first is not None
        for _ in range(2):
            before = supervisor.process_id
            os.kill(before or 0, signal.SIGKILL)
            await wait_until(lambda before=before: supervisor.process_id != before)  # type: ignore[misc]
        if server == "postgres":
            assert await query_with_retry(cluster.dsn, "SELECT 1") == 1
        else:
            await wait_until(instance.socket.exists)
            assert await ping(instance.url)
    assert not is_running(supervisor.process_id or 0)


async def test_an_unrelated_process_with_the_id_of_a_dead_server_is_not_touched(
    directory: Path,
) -> None:
    """The pid file names a process id that the system has reused."""
    unrelated = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        note = directory / "postgres" / "cluster" / "postmaster.pid"
        note.write_text(
            f"{unrelated.pid}\n{note.parent}\n1700000000\n5432\n{directory}\n\n  12345  0\nready\n"
        )
        lock = directory / "postgres" / ".s.PGSQL.5432.lock"
        lock.write_text(f"{unrelated.pid}\n{note.parent}\n1700000000\n5432\n{directory}\n")
        async with open_postgres(directory, SystemClock(), durable=False) as dsn:
            assert await query(dsn, "SELECT 1") == 1
        assert unrelated.returncode is None
        assert is_running(unrelated.pid)
    finally:
        unrelated.kill()
        await unrelated.wait()


async def test_a_manually_started_server_is_neither_killed_nor_joined(
    directory: Path, tmp_path: Path
) -> None:
    """It uses the files without the directory's lock."""
    cluster = PostgresCluster(directory / "postgres", find_postgres_binaries())
    other = DirectoryLock(tmp_path / "other-lock")
    assert other.try_acquire()
    identity = await cluster.prepare(other.descriptor)
    command = cluster.program(durable=False).command
    server = await spawn(command, cluster.directory, identity, signal.SIGINT, other.descriptor)
    try:
        assert server.stdout is not None
        while b"ready to accept" not in await server.stdout.readline():
            pass
        with pytest.raises(EmbeddedServerError, match=rf"process {server.pid}\) is running on"):
            async with open_postgres(directory, SystemClock()):
                pytest.fail("two servers run on the same files")
        assert server.returncode is None
        assert await query(cluster.dsn, "SELECT 1") == 1
    finally:
        server.send_signal(signal.SIGINT)
        await server.communicate()
        other.release()


def test_a_server_process_is_identified_by_program_directory_and_start_time(
    tmp_path: Path,
) -> None:
    """The test process is not a server, and an unused process id is none either."""
    assert not is_postgres_on(os.getpid(), Path.cwd(), 0)
    assert not is_postgres_on(2**22 + 1, tmp_path, 0)
