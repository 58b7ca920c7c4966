"""Emulators leave nothing behind and are downloaded once, with a verified checksum."""

import hashlib
import io
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tally.store.api import Engine
from tests.store import emulators
from tests.store.emulators import Features, features
from tests.store.npm_archives import NpmArchive, unpacked

# Keeps a connection open while it runs, so that its end can be observed.
PROGRAM = (
    "import socket, sys, signal;"
    " link = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
    " signal.pause()"
)
HOLDER = """
import subprocess, sys, signal
subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
signal.pause()
"""


def watched(*command: str) -> list[str]:
    return [sys.executable, str(emulators.WATCHDOG), *command]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30.0)
        yield listening


def test_a_watched_program_ends_with_the_input_of_its_watcher(listener: socket.socket) -> None:
    command = watched(sys.executable, "-c", PROGRAM, str(listener.getsockname()[1]))
    with subprocess.Popen(command, stdin=subprocess.PIPE) as watcher:
        link, _ = listener.accept()
        assert watcher.stdin is not None
        watcher.stdin.close()

        with link:
            link.settimeout(30.0)
            assert link.recv(1) == b""
        assert watcher.wait(30.0) != 0


def test_a_watched_program_ends_when_its_parent_is_killed(
    listener: socket.socket,
) -> None:
    command = watched(sys.executable, "-c", PROGRAM, str(listener.getsockname()[1]))
    with subprocess.Popen([sys.executable, "-c", HOLDER, *command]) as holder:
        link, _ = listener.accept()

        holder.kill()

        with link:
            link.settimeout(30.0)
            assert link.recv(1) == b""


def test_the_exit_code_of_a_watched_program_is_passed_on() -> None:
    with subprocess.Popen(
        watched(sys.executable, "-c", "raise SystemExit(7)"), stdin=subprocess.PIPE
    ) as watcher:
        assert watcher.wait(30.0) == 7


@dataclass(frozen=True, slots=True)
class FakeNpm:
    """A fake `npm pack` that serves a small archive and records its calls."""

    archive: NpmArchive
    calls: Path


@pytest.fixture
def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNpm:
    archive = tmp_path / "archive.tgz"
    with tarfile.open(archive, "w:gz") as files:
        content = b"the program"
        entry = tarfile.TarInfo("package/program")
        entry.size = len(content)
        files.addfile(entry, io.BytesIO(content))
    calls = tmp_path / "calls"
    calls.mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    npm = programs / "npm"
    npm.write_text(
        f'#!/bin/sh\nmktemp "{calls}/XXXXXX" >/dev/null\ncp "{archive}" fetched.tgz\n',
        encoding="utf-8",
    )
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    return FakeNpm(NpmArchive("@maker/emulator@1.2.3", checksum), calls)


def test_concurrent_downloads_of_an_archive_fetch_it_once(
    fake_npm: FakeNpm, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: unpacked(fake_npm.archive), range(8)))

    assert len(list(fake_npm.calls.iterdir())) == 1
    assert len(set(folders)) == 1
    assert (folders[0] / "package" / "program").read_bytes() == b"the program"
    assert sorted(path.name for path in (tmp_path / "cache" / "tally").iterdir()) == [
        "fetch.lock",
        "maker-emulator-1.2.3",
    ]


def test_an_archive_with_another_checksum_is_not_unpacked(
    fake_npm: FakeNpm, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="is not what it was"):
        unpacked(replace(fake_npm.archive, sha256="0" * 64))

    assert [path.name for path in (tmp_path / "cache" / "tally").iterdir()] == ["fetch.lock"]


@pytest.mark.parametrize(
    ("opened", "expected"),
    [
        ("sqlite", Features(True, True, 100, True, True, True, True)),
        ("local", Features(False, False, 10, True, True, False, False)),
        ("ministack", Features(True, True, 100, True, True, False, False)),
        ("dynoxide", Features(True, True, 100, True, True, True, True)),
    ],
    indirect=["opened"],
)
async def test_each_engine_has_its_known_features(opened: Engine, expected: Features) -> None:
    assert await features(opened) == expected
