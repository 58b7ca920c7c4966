"""Records what a program does to the files below a directory, with strace.

The trace also contains what the program prints, so acknowledgements and syncs have one order.
strace reports the calls of all threads and child processes in the order of their effects. A sync
has two events, because it need not cover a write that another thread completes meanwhile.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.needs import need_program, skip_or_fail

_TRACED = (
    "openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,lseek,ftruncate,truncate,fallocate,"
    "fsync,fdatasync,sync_file_range,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,"
    "mkdirat,rmdir,sendfile,copy_file_range,symlink,symlinkat,mmap"
)
_MAX_STRING_BYTES = 4_000_000
_COMPLETE = re.compile(rb"(\d+) +(\w+)\((.*)\) += (-?\w+)(.*)", re.DOTALL)
_UNFINISHED = re.compile(rb"(\d+) +(\w+)\((.*) <unfinished \.\.\.>", re.DOTALL)
_RESUMED = re.compile(rb"(\d+) +<\.\.\. \w+ resumed>(.*)\) += (-?\w+)(.*)", re.DOTALL)
# A string, a file descriptor with its path, or anything else up to the next comma.
_ARGUMENT = re.compile(rb'"([^"]*)"|(\w+)<([^>]*)>|([^,\s][^,]*)')


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a system call: a string, a descriptor with its path, or a plain word."""

    word: str = ""
    data: bytes = b""
    path: str = ""


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A successful call; `begins` marks the first of the two events of a sync."""

    thread: int
    name: str
    arguments: tuple[Argument, ...]
    result: int = 0
    opened: str = ""
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Recorder:
    """The command prefix that records a program, and the trace that it writes."""

    program: Path
    trace: Path
    calls: str

    @property
    def prefix(self) -> tuple[str, ...]:
        options = ("-f", "-y", "-xx", "--seccomp-bpf", "-s", str(_MAX_STRING_BYTES))
        return (str(self.program), *options, "-o", str(self.trace), "-e", f"trace={self.calls}")

    def read(self, root: Path) -> list[SystemCall]:
        """Return the calls on files below the directory, and the writes to standard output."""
        with self.trace.open("rb") as lines:
            return list(_parse(lines, str(root)))


def need_recorder(directory: Path, calls: str = _TRACED) -> Recorder:
    """Return a recorder that writes into the directory; end the test if strace cannot be used."""
    program = need_program("strace", "strace")
    tried = subprocess.run(
        [program, "-f", "--seccomp-bpf", "-e", "trace=write", "-o", "/dev/null", "true"],
        check=False,
        capture_output=True,
        text=True,
    )
    if tried.returncode:
        skip_or_fail(f"processes cannot be traced here: {tried.stderr}")
    return Recorder(program, directory / "trace", calls)


def _parse(lines: Iterator[bytes], root: str) -> Iterator[SystemCall]:
    below_root = _encode(root)
    unfinished: dict[bytes, tuple[bytes, bytes]] = {}
    for line in lines:
        if found := _RESUMED.match(line):
            thread, rest, result, opened = found.groups()
            if thread not in unfinished:
                continue
            name, arguments = unfinished.pop(thread)
            arguments += rest
        elif b" write(1<" not in line and below_root not in line:
            continue
        elif found := _UNFINISHED.match(line):
            thread, name, arguments = found.groups()
            if _is_sync(name):
                yield _call(thread, name, arguments, begins=True)
            if arguments.startswith(b"1<"):  # a reader of the pipe may already have the line
                yield _call(thread, name, arguments)
            else:
                unfinished[thread] = name, arguments
            continue
        elif found := _COMPLETE.match(line):
            thread, name, arguments, result, opened = found.groups()
            if _is_sync(name):
                yield _call(thread, name, arguments, begins=True)
        else:
            raise ValueError(f"strace wrote a line that is not understood: {line[:200]!r}")
        if not result.startswith((b"-", b"?")):
            yield _call(thread, name, arguments, int(result, 0), opened)


def _is_sync(name: bytes) -> bool:
    return name in (b"fsync", b"fdatasync")


def _call(
    thread: bytes,
    name: bytes,
    arguments: bytes,
    result: int = 0,
    opened: bytes = b"",
    *,
    begins: bool = False,
) -> SystemCall:
    parsed = tuple(_argument(*found.groups()) for found in _ARGUMENT.finditer(arguments))
    path = opened.strip().strip(b"<>") if opened.startswith(b"<") else b""
    return SystemCall(
        int(thread), name.decode(), parsed, result, _decode(path).decode(), begins=begins
    )


def _argument(
    text: bytes | None, descriptor: bytes | None, path: bytes | None, word: bytes | None
) -> Argument:
    if text is not None:
        return Argument(data=_decode(text))
    if descriptor is not None:
        return Argument(descriptor.decode(), path=_decode(path or b"").decode())
    return Argument((word or b"").decode().strip())


def _encode(text: str) -> bytes:
    return "".join(f"\\x{byte:02x}" for byte in text.encode()).encode()


def _decode(escaped: bytes) -> bytes:
    """Decode strace's hexadecimal strings, in which every byte is escaped."""
    return bytes.fromhex(escaped.replace(rb"\x", b"").decode()) if rb"\x" in escaped else escaped
