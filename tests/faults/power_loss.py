"""Records a program, and replays crashes of the machine at any point of the recording.

`crashes` yields what may be on disk after a crash, and the lines that the program had printed by
then. `disk_model.py` defines what may be on disk.
"""

import hashlib
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.conftest import SOAK_SECONDS
from tests.faults.child_process import Child, started
from tests.faults.crash_checks import Progress, follow
from tests.faults.disk_model import Disk, Image, read_image, write_image
from tests.faults.system_calls import SystemCall, need_recorder
from tests.faults.torn_files import Choice

CRASHES = 40
MEMORY = "/dev/shm"  # noqa: S108  (a file system in memory on Linux)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Recording:
    """The files below a directory at the start, and the system calls of a program on them."""

    root: Path
    before: Image
    calls: list[SystemCall]

    def without(self, predicate: Callable[[SystemCall], bool]) -> "Recording":
        """Return what would be recorded if the program omitted these calls."""
        kept = [call for call in self.calls if not predicate(call)]
        return Recording(self.root, self.before, kept)

    def count(self, name: str, suffix: str = "") -> int:
        """Count the completed calls on files whose path ends with the suffix."""
        return sum(
            call.name == name and not call.begins and path_of(call).endswith(suffix)
            for call in self.calls
        )


@dataclass(frozen=True, slots=True)
class Crash:
    """What is on disk after a crash, and what the program had printed."""

    point: int
    choice: str
    image: Image
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"crash after call {self.point}, {self.choice} of the unsynced changes on disk"


def path_of(call: SystemCall) -> str:
    """The path of the call's file, if its first argument is a descriptor."""
    return call.arguments[0].path


def is_sync(call: SystemCall, suffix: str = "") -> bool:
    """Whether the call syncs a file or directory whose path ends with the suffix."""
    return call.name in ("fsync", "fdatasync") and path_of(call).endswith(suffix)


def printed(call: SystemCall) -> list[str]:
    """The lines that the call prints."""
    if call.name == "write" and call.arguments[0].word == "1":
        return call.arguments[1].data.decode().splitlines()
    return []


def crashes(recording: Recording, rng: random.Random, count: int) -> Iterator[Crash]:
    """Yield crashes at random points and before every sync, or `count` of them, in order.

    The least survives just before a sync completes: then all acknowledgements since the previous
    one depend on it alone.
    """
    calls = recording.calls
    points = [at for at, call in enumerate(calls, 1) if not call.begins and call.name != "lseek"]
    before_syncs = [at - 1 for at in points if is_sync(calls[at - 1])]
    chosen: Counter[tuple[int, str]] = Counter({(len(calls), "none"): 1})
    for point in rng.sample(before_syncs, min(len(before_syncs), count)):
        chosen[point, "none"] += 1
    for _ in range(count):
        chosen[rng.choice(points), rng.choice(("all", "part", "part"))] += 1
    disk = Disk(recording.root, recording.before)
    lines: list[str] = []
    done = 0
    for (point, kind), times in sorted(chosen.items()):
        for call in calls[done:point]:
            disk.execute(call)
            lines += printed(call)
        done = point
        for _ in range(times if kind == "part" else 1):
            choice = Choice(kind, rng.getrandbits(32))
            yield Crash(point, kind, disk.crash(choice), tuple(lines))


@dataclass(slots=True)
class Replayer:
    """Starts a program on the image of a crash, once per distinct image."""

    directory: Path
    seen: dict[bytes, object] = field(default_factory=dict)

    async def run(self, image: Image, recover: Callable[[Path], Awaitable[T]]) -> T:
        """Return the result of `recover` on a directory with the image."""
        digest = hashlib.blake2b()
        for path, content in sorted(image.items()):
            digest.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
            digest.update(content or b"")
        key = digest.digest()
        if key not in self.seen:
            directory = Path(tempfile.mkdtemp(dir=self.directory))
            write_image(image, directory)
            self.seen[key] = await recover(directory)
            shutil.rmtree(directory)  # after a failure it remains for analysis
        found: T = self.seen[key]  # type: ignore[assignment]
        return found


class Harness:
    """A directory `disk` that a program changes while it is recorded."""

    def __init__(self, directory: Path) -> None:
        self.disk = directory / "disk"
        self.disk.mkdir()
        self.recorder = need_recorder(directory)
        self.replayer = Replayer(directory)
        self.rng = random.Random(None if SOAK_SECONDS else 18)

    async def record(self, command: str, *paths: Path) -> Recording:
        """Record a command of `power_loss_program` from its start to its end."""
        async with self._started(command, *paths) as (program, before):
            await program.rest()
        return self._recording(before)

    async def record_writers(self, *steps: int | str) -> Recording:
        """Record concurrent writers; a step is a number of acknowledgements or a command."""
        progress = Progress()
        async with self._started("write", self.disk / "data") as (program, before):
            await program.send(progress.as_json())
            await program.expect("open")
            for step in (*steps, "close"):
                if isinstance(step, int):
                    await follow(program, progress, step)
                else:
                    await program.send(step)
                    await program.expect(f"end {step}")
        return self._recording(before)

    def crashes(self, recording: Recording, count: int = CRASHES) -> Iterator[Crash]:
        """Yield random crashes; `make soak` has other ones each time."""
        return crashes(recording, self.rng, count)

    @asynccontextmanager
    async def _started(self, command: str, *paths: Path) -> AsyncIterator[tuple[Child, Image]]:
        before = read_image(self.disk)
        arguments = ("power_loss_program", command, *map(str, paths))
        async with started(*arguments, before=self.recorder.prefix) as program:
            yield program, before
            assert await program.end() == 0, program.stderr_text()

    def _recording(self, before: Image) -> Recording:
        return Recording(self.disk, before, self.recorder.read(self.disk))


@contextmanager
def open_harness(parent: Path) -> Iterator[Harness]:
    """Create a harness; after a failure, copy its files to the directory `parent`.

    It is in memory if possible: replays sync often, and their files need not survive anything.
    """
    memory = os.access(MEMORY, os.W_OK)
    with tempfile.TemporaryDirectory(dir=MEMORY if memory else parent) as directory:
        try:
            yield Harness(Path(directory))
        except BaseException:
            shutil.copytree(directory, parent / "failed", dirs_exist_ok=True)
            raise
