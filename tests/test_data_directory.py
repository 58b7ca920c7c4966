"""The data directory is private to the user that runs Tally."""

import os
import stat
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from tally.embedded.launch import NOBODY
from tally.kit.data_directory import secure_data_directory
from tally.store.schema import S, Table
from tally.store.sqlite import open_sqlite
from tests.test_cli import PROGRAM, TIMEOUT_SECONDS, environment, free_port, tally

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")


@contextmanager
def running(directory: Path, port: int, *words: str) -> Iterator[None]:
    """Run the program with an open umask until the context ends; then stop it gracefully."""
    with subprocess.Popen(
        [*PROGRAM, *words, "--port", str(port)],
        env=environment(directory, TALLY_BACKENDS="cricket,collect,devices,scoreboard"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        umask=0,
    ) as program:
        try:
            assert program.stdout is not None
            ready = "Press Ctrl-C" if words[0] == "up" else '"listening"'
            output = ""
            while ready not in output:
                line = program.stdout.readline()
                assert line, output
                output += line
            yield
            program.terminate()
            program.communicate(timeout=TIMEOUT_SECONDS)
            assert program.returncode == 0
        finally:
            program.kill()


def open_entries(directory: Path) -> dict[str, str]:
    """Return the entries that do not have the modes 0700 and 0600, with their modes."""
    found = {}
    for path in (directory, *directory.rglob("*")):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue  # a temporary file of a server
        if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600):
            found[str(path.relative_to(directory))] = stat.filemode(mode)
    return found


def visit(url: str) -> None:
    """Open a page in a session of its own."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with browser.open(url, timeout=TIMEOUT_SECONDS) as page:
        page.read()


@pytest.mark.parametrize("words", [("serve", "--console"), ("up",)])
def test_every_file_is_private_with_an_open_umask_and_directory(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Files of older versions become private as well; servers and the console create no others."""
    data = tmp_path / "data"
    (data / "console").mkdir(parents=True)
    for path in (data, data / "console"):
        path.chmod(0o777)
    for path in (data / "cursor.key", data / "console" / "storage-user-old.json"):
        path.write_text("0" * 64 if path.suffix == ".key" else "{}")
        path.chmod(0o644)
    port = free_port()
    with running(tmp_path, port, *words):
        visit(f"http://127.0.0.1:{port}/console/")
        assert {path.name for path in data.iterdir()} >= {"store.db", "store.db-wal", "postgres"}
        assert open_entries(data) == {}
    assert open_entries(data) == {}
    done = subprocess.run(
        [*PROGRAM, "backup", str(tmp_path / "backup.tar")],
        env=environment(tmp_path),
        check=False,
        capture_output=True,
        text=True,
        umask=0,
    )
    assert done.returncode == 0, done.stderr
    assert "Not included" not in done.stdout
    assert stat.S_IMODE((tmp_path / "backup.tar").stat().st_mode) == 0o600


async def test_a_store_without_a_server_is_private_too(tmp_path: Path) -> None:
    """A program that only uses the store has its own umask."""
    before = os.umask(0)
    try:
        async with open_sqlite(tmp_path / "data") as engine:
            await engine.ensure_table(Table("notes", partition=S("author")))
            assert open_entries(tmp_path / "data") == {}
    finally:
        os.umask(before)


@as_root
def test_a_data_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """Its owner could read the keys; so could the owner of a file in it."""
    (tmp_path / "data").mkdir(mode=0o777)
    os.chown(tmp_path / "data", NOBODY, NOBODY)
    for command in (("serve", "--port", "0"), ("up", "--port", "0"), ("backup", "backup.tar")):
        done = tally(tmp_path, *command)
        assert (done.returncode, "belongs to another user (65534)" in done.stderr) == (2, True)
        assert "Traceback" not in done.stderr
    assert list((tmp_path / "data").iterdir()) == []
    os.chown(tmp_path / "data", 0, 0)
    (tmp_path / "data" / "cursor.key").write_text("0" * 64)
    os.chown(tmp_path / "data" / "cursor.key", NOBODY, NOBODY)
    done = tally(tmp_path, "serve", "--port", "0")
    assert (done.returncode, "cursor.key belongs to another user" in done.stderr) == (2, True)


@as_root
def test_postgresql_that_runs_as_nobody_keeps_its_way_through_the_directory(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    os.chown(tmp_path / "postgres", NOBODY, NOBODY)
    tmp_path.chmod(0o755)
    secure_data_directory(tmp_path)
    assert open_entries(tmp_path) == {".": "drwx--x--x"}


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("text")
    (tmp_path / "outside").chmod(0o644)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "outside")
    secure_data_directory(tmp_path / "data")
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o644
