"""As whom the servers run: as an ordinary user, as root in a namespace, and as nobody where there is none."""

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
from tally.embedded.postgres import Cluster, find_postgres_binaries, open_postgres
from tally.embedded.server_directory import EmbeddedServerError, private_directory
from tally.embedded.supervisor import Supervisor
from tally.kit.clock import SystemClock
from tests.embedded.harness import ROOT, ask, holding, lives, owner_of, owners, ping, until
from tests.needs import need_program, skip_or_fail

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be anybody")
# An interpreter counts only if it can also start itself again.
TRIAL = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import tests.embedded.server_program'], check=True)"
TO_NOBODY = ("--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")


@pytest.fixture
def open_ground() -> Iterator[Path]:
    """A folder that anybody can get to, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


def python_for_nobody(setpriv: Path) -> tuple[str, dict[str, str]]:
    """An interpreter that nobody can run, with the variables by which it finds our packages."""
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
    return skip_or_fail(f"no {version} that an ordinary user can run")


@as_root
async def test_an_ordinary_user_runs_and_owns_the_servers(open_ground: Path) -> None:
    """Also there a killed program leaves nothing behind."""
    setpriv = need_program("setpriv", "util-linux")
    python, environ = python_for_nobody(setpriv)
    directory = open_ground / "of-nobody"
    directory.mkdir()
    os.chown(directory, NOBODY, NOBODY)
    async with holding(directory, (str(setpriv), *TO_NOBODY), python, environ) as held:
        assert await ask(held.dsn, "SELECT 1") == 1
        assert await ping(held.url)
        assert owners(directory) == {NOBODY}
        await held.kill()
        await until(lambda: not any(lives(process_id) for process_id in held.processes))


@as_root
async def test_root_runs_postgres_in_a_namespace_and_owns_its_files(directory: Path) -> None:
    """On disk nothing belongs to anybody else."""
    cluster = Cluster(private_directory(directory / "postgres"), find_postgres_binaries())
    assert cluster.identity() == "namespace"
    async with open_postgres(directory, SystemClock(), durable=False) as dsn:
        assert await ask(dsn, "SELECT current_user::text") == "tally"
        assert owners(directory) == {0}


@as_root
async def test_without_namespaces_postgres_runs_as_nobody_in_a_folder_given_to_nobody(
    open_ground: Path,
) -> None:
    """Only its own folder is given away."""
    directory = private_directory(open_ground / "postgres")
    cluster = Cluster(directory, find_postgres_binaries())
    cluster.give_away()
    async with Supervisor(cluster.program(durable=False), SystemClock()) as supervisor:
        assert await ask(cluster.dsn, "SELECT 1") == 1
        assert owner_of(supervisor.process_id or 0) == NOBODY
    assert cluster.identity() == f"{NOBODY}:{NOBODY}"
    assert owners(cluster.files) == {NOBODY}
    assert owners(open_ground) == {0, NOBODY}


@as_root
def test_a_folder_that_nobody_can_get_to_is_not_opened_up(tmp_path: Path) -> None:
    """The error names what is in the way, and what to do."""
    closed = private_directory(tmp_path / "closed")
    directory = private_directory(closed / "postgres")
    with pytest.raises(EmbeddedServerError, match=r"may enter .*closed.*another data directory"):
        Cluster(directory, find_postgres_binaries()).give_away()
    assert closed.stat().st_mode & 0o777 == 0o700
    assert directory.stat().st_uid == 0
