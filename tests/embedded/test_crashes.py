"""What is left when a program or a server is killed, and who takes over."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tally.embedded.postgres import Cluster, find_postgres_binaries, open_postgres
from tally.embedded.server_directory import DirectoryLock, EmbeddedServerError, private_directory
from tally.embedded.spawn import spawn
from tally.embedded.stale_pid_file import is_server
from tally.embedded.supervisor import Supervisor
from tally.embedded.valkey import Instance
from tally.embedded.valkey import program as valkey_program
from tally.kit.clock import SystemClock
from tests.embedded.harness import ask, ask_again, holding, lives, ping, until


async def test_a_killed_program_leaves_no_server_behind_and_the_next_finds_all_that_was_committed(
    directory: Path,
) -> None:
    """The kernel stops the servers, and PostgreSQL has kept its promises."""
    async with holding(directory) as held:
        await ask(held.dsn, "CREATE TABLE kept_by_the_killed AS SELECT 7 AS answer")
        assert all(lives(process_id) for process_id in held.processes)
        await held.kill()
        await until(lambda: not any(lives(process_id) for process_id in held.processes))
    async with holding(directory) as held:
        assert held.ours == (True, True)
        assert await ask(held.dsn, "SELECT answer FROM kept_by_the_killed") == 7
        assert await ping(held.url)


async def test_a_program_that_ends_by_itself_stops_its_servers(directory: Path) -> None:
    async with holding(directory) as held:
        await held.end()
        assert held.process.returncode == 0
        assert not any(lives(process_id) for process_id in held.processes)
    assert not (directory / "postgres" / "cluster" / "postmaster.pid").exists()


async def test_a_second_program_joins_the_servers_and_takes_over_when_the_first_is_killed(
    directory: Path,
) -> None:
    """Both can use them all the time, but for the moment of the change."""
    async with holding(directory) as first:
        await ask(first.dsn, "CREATE TABLE shared AS SELECT 1 AS number")
        cluster, instance = (
            Cluster(directory / "postgres", find_postgres_binaries()),
            Instance(directory / "valkey", valkey_program()),
        )
        async with (
            Supervisor(cluster.program(durable=False), SystemClock()) as postgres,
            Supervisor(instance.program(), SystemClock()) as valkey,
        ):
            assert (postgres.is_ours, valkey.is_ours) == (False, False)
            assert await ask(cluster.dsn, "SELECT number FROM shared") == 1
            await first.kill()
            await until(lambda: postgres.is_ours and valkey.is_ours)
            assert await ask_again(cluster.dsn, "SELECT number FROM shared") == 1
            assert postgres.process_id not in first.processes
            await until(instance.socket.exists)
            assert await ping(instance.url)
        assert not lives(postgres.process_id or 0)


async def test_two_that_start_at_once_share_one_server(tmp_path: Path) -> None:
    """Also when it has to be set up first, after somebody was interrupted at it: nobody sees half of it."""
    draft = private_directory(tmp_path / "postgres") / "cluster.new"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("18\n")
    async with asyncio.TaskGroup() as group:
        gate = asyncio.Barrier(2)

        async def use() -> str:
            async with open_postgres(tmp_path, SystemClock(), durable=False) as dsn:
                started = await ask(dsn, "SELECT pg_postmaster_start_time()::text")
                await gate.wait()
                return str(started)

        users = [group.create_task(use()) for _ in range(2)]
    assert users[0].result() == users[1].result()
    assert not draft.exists()


@pytest.mark.parametrize("server", ["postgres", "valkey"])
async def test_a_server_that_dies_is_started_again(directory: Path, server: str) -> None:
    """Whoever asks at that moment is refused; whoever asks a moment later is answered."""
    cluster = Cluster(private_directory(directory / "postgres"), find_postgres_binaries())
    instance = Instance(private_directory(directory / "valkey"), valkey_program())
    program = cluster.program(durable=True) if server == "postgres" else instance.program()
    async with Supervisor(program, SystemClock()) as supervisor:
        first = supervisor.process_id
        assert first is not None
        for _ in range(2):
            before = supervisor.process_id
            os.kill(before or 0, signal.SIGKILL)
            await until(lambda before=before: supervisor.process_id != before)  # type: ignore[misc]
        if server == "postgres":
            assert await ask_again(cluster.dsn, "SELECT 1") == 1
        else:
            await until(instance.socket.exists)
            assert await ping(instance.url)
    assert not lives(supervisor.process_id or 0)


async def test_a_process_that_has_got_the_number_of_a_dead_server_is_left_alone(
    directory: Path,
) -> None:
    """The note says 42; by now 42 is somebody's editor."""
    stranger = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        note = directory / "postgres" / "cluster" / "postmaster.pid"
        note.write_text(
            f"{stranger.pid}\n{note.parent}\n1700000000\n5432\n{directory}\n\n  12345  0\nready\n"
        )
        lock = directory / "postgres" / ".s.PGSQL.5432.lock"
        lock.write_text(f"{stranger.pid}\n{note.parent}\n1700000000\n5432\n{directory}\n")
        async with open_postgres(directory, SystemClock(), durable=False) as dsn:
            assert await ask(dsn, "SELECT 1") == 1
        assert stranger.returncode is None
        assert lives(stranger.pid)
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_server_that_somebody_started_by_hand_is_neither_killed_nor_joined(
    directory: Path, tmp_path: Path
) -> None:
    """It has the files and not our lock, so it is not ours."""
    cluster = Cluster(directory / "postgres", find_postgres_binaries())
    other = DirectoryLock(tmp_path / "other-lock")
    assert other.take()
    identity = await cluster.prepare(other.descriptor)
    command = cluster.program(durable=False).command
    server = await spawn(command, cluster.directory, identity, signal.SIGINT, other.descriptor)
    try:
        assert server.stdout is not None
        while b"ready to accept" not in await server.stdout.readline():
            pass
        with pytest.raises(EmbeddedServerError, match=f"process {server.pid}, runs on"):
            async with open_postgres(directory, SystemClock()):
                pytest.fail("two servers on one set of files")
        assert server.returncode is None
        assert await ask(cluster.dsn, "SELECT 1") == 1
    finally:
        server.send_signal(signal.SIGINT)
        await server.communicate()
        other.release()


def test_a_process_is_known_as_the_server_by_its_program_its_folder_and_its_start(
    tmp_path: Path,
) -> None:
    """This very process is none."""
    assert not is_server(os.getpid(), Path.cwd(), 0)
    assert not is_server(2**22 + 1, tmp_path, 0)
