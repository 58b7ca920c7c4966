"""The user that servers run as: the current user, root in a user namespace, or nobody."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.embedded.launch import NOBODY
from tally.embedded.postgres import PostgresCluster, find_postgres_binaries, open_postgres
from tally.embedded.server_directory import EmbeddedServerError, private_directory
from tally.embedded.supervisor import Supervisor
from tally.kit.clock import SystemClock
from tests.embedded.harness import (
    ROOT,
    is_running,
    owner_of_process,
    owners,
    ping,
    query,
    run_program,
    wait_until,
)
from tests.needs import need_program, skip_or_fail

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
# The interpreter must also be able to start itself.
TRIAL = (
    "import subprocess, sys;"
    " subprocess.run([sys.executable, '-c', 'import tests.embedded.server_program'], check=True)"
)
TO_NOBODY = ("--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that all users can access, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


def python_for_nobody(setpriv: Path) -> tuple[str, dict[str, str]]:
    """Return an interpreter that the user nobody can run, and its environment."""
    environ = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), sysconfig.get_path("purelib")])
    }
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        if python is not None:
            tried = subprocess.run(
                [setpriv, *TO_NOBODY, python, "-c", TRIAL],
                env=os.environ | environ,
                cwd=ROOT,
                capture_output=True,
                check=False,
            )
            if tried.returncode == 0:
                return python, environ
    return skip_or_fail(f"no {version} that the user nobody can run")


@as_root
async def test_an_unprivileged_user_runs_and_owns_the_servers(public_directory: Path) -> None:
    """The servers of a killed program stop there too."""
    setpriv = need_program("setpriv", "util-linux")
    python, environ = python_for_nobody(setpriv)
    directory = public_directory / "owned-by-nobody"
    directory.mkdir()
    os.chown(directory, NOBODY, NOBODY)
    async with run_program(directory, (str(setpriv), *TO_NOBODY), python, environ) as program:
        assert await query(program.dsn, "SELECT 1") == 1
        assert await ping(program.url)
        assert owners(directory) == {NOBODY}
        await program.kill()
        await wait_until(
            lambda: not any(is_running(process_id) for process_id in program.server_ids)
        )


@as_root
async def test_root_runs_postgres_in_a_namespace_and_owns_its_files(directory: Path) -> None:
    """Root owns all files on disk."""
    cluster = PostgresCluster(private_directory(directory / "postgres"), find_postgres_binaries())
    assert cluster.identity() == "namespace"
    async with open_postgres(directory, SystemClock(), durable=False) as dsn:
        assert await query(dsn, "SELECT current_user::text") == "tally"
        assert owners(directory) == {0}


@as_root
async def test_without_namespaces_postgres_runs_as_nobody_and_owns_its_directory(
    public_directory: Path,
) -> None:
    """Only the owner of PostgreSQL's directory changes."""
    directory = private_directory(public_directory / "postgres")
    cluster = PostgresCluster(directory, find_postgres_binaries())
    cluster.change_owner_to_nobody()
    async with Supervisor(cluster.program(durable=False), SystemClock()) as supervisor:
        assert await query(cluster.dsn, "SELECT 1") == 1
        assert owner_of_process(supervisor.process_id or 0) == NOBODY
    assert cluster.identity() == f"{NOBODY}:{NOBODY}"
    assert owners(cluster.files) == {NOBODY}
    assert owners(public_directory) == {0, NOBODY}


@as_root
def test_the_permissions_of_an_inaccessible_parent_do_not_change(tmp_path: Path) -> None:
    """The error names the directory and what to do."""
    closed = private_directory(tmp_path / "closed")
    directory = private_directory(closed / "postgres")
    with pytest.raises(
        EmbeddedServerError, match=r"cannot access .*closed.*another data directory"
    ):
        PostgresCluster(directory, find_postgres_binaries()).change_owner_to_nobody()
    assert closed.stat().st_mode & 0o777 == 0o700
    assert directory.stat().st_uid == 0
