"""A disk that loses power: what files may contain after a crash, given a trace of system calls.

The model is that of POSIX, which promises less than most file systems do:

- After fsync or fdatasync of a file, its content is on disk, but not its name.
- After fsync of a directory, the names in it are on disk.
- Anything else may be on disk or not, in any order. Of each sector of 512 bytes, any version since
  the last sync; the size of the file independently of its content; names independently of files.
- A sector is atomic, and so are a truncation, a rename and a link.
- A name is changed only after the earlier changes of the same name.

SQLite's shared memory (`-shm`) is never synced; after a crash it contains garbage.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from tests.faults.system_calls import SystemCall
from tests.faults.torn_files import Choice, FileChange, surviving_content

_SHARED_MEMORY_BYTES = 32_768
_MAKE, _REMOVE, _LINK = ("mkdir", "mkdirat"), ("unlink", "unlinkat", "rmdir"), ("link", "linkat")
_RENAME = ("rename", "renameat", "renameat2")
Image: TypeAlias = dict[str, bytes | None]  # by relative path; None is a directory
Name: TypeAlias = tuple["Node", str]


@dataclass(frozen=True, slots=True)
class NameChange:
    """Names that change together, each to a file, a directory or nothing."""

    number: int
    names: tuple[tuple[Name, "Node | None"], ...]


@dataclass(eq=False, slots=True)
class Node:
    """A file or a directory: its content on disk, and what has been written since."""

    is_directory: bool = False
    content: bytes = b""
    pending: list[FileChange] = field(default_factory=list)

    def size(self) -> int:
        """The size that programs see."""
        size = len(self.content)
        for change in self.pending:
            size = change.offset if change.data is None else max(size, change.end)
        return size

    def truncate(self, number: int, size: int) -> None:
        """Cut the file, or extend it as an empty write at this position does."""
        self.pending.append(FileChange(number, size, None if size < self.size() else b""))


class Disk:
    """Executes a trace on the files below a directory, and creates images of crashes."""

    def __init__(self, root: Path, image: Image) -> None:
        """Start with these files below the directory, all on disk."""
        self._root_path = str(root)
        self._root = Node(is_directory=True)
        self._live: dict[Name, Node] = {}
        self._pending: list[NameChange] = []
        self._number = 0
        self._positions: dict[str, int] = {}
        self._syncs: dict[int, tuple[Node, int]] = {}
        for path, content in sorted(image.items()):
            name = self._name(f"{root}/{path}")
            assert name is not None
            self._live[name] = Node(content is None, content or b"")
        self._durable = dict(self._live)

    def execute(self, call: SystemCall) -> None:
        """Apply a call."""
        self._number += 1
        name, arguments = call.name, call.arguments
        if name in ("fsync", "fdatasync"):
            self._sync(call)
        elif name in ("openat", "open", "creat"):
            self._open(call)
        elif name in ("write", "pwrite64"):
            at = int(arguments[3].word) if name == "pwrite64" else None
            assert len(arguments[1].data) >= call.result, "the trace lacks a part of the data"
            self._write(arguments[0].word, arguments[0].path, arguments[1].data[: call.result], at)
        elif name == "lseek":
            self._positions[arguments[0].word] = call.result
        elif name == "sendfile":
            self._send_file(call)
        elif name == "ftruncate":
            self._node(arguments[0].path).truncate(self._number, int(arguments[1].word))
        elif name == "mmap":
            shared = {"MAP_SHARED", "PROT_WRITE"} <= {
                word for argument in arguments for word in argument.word.split("|")
            }
            assert not shared or arguments[4].path.endswith("-shm"), "a file is written by mmap"
        else:
            self._change_names(call)

    def crash(self, choice: Choice) -> Image:
        """Return the files after a crash, by relative path."""
        names = dict(self._durable)
        blocked: set[Name] = set()
        of_names = choice.for_node()
        for change in self._pending:
            keys = {name for name, _ in change.names}
            if blocked & keys or not of_names.is_on_disk():
                blocked |= keys
            else:
                _apply_names(names, change)
        by_directory: dict[int, list[tuple[str, Node]]] = {}
        for (directory, base), node in names.items():
            by_directory.setdefault(id(directory), []).append((base, node))
        image: Image = {}
        remaining = [("", self._root)]
        while remaining:
            path, node = remaining.pop()
            for base, child in by_directory.get(id(node), ()):
                child_path = f"{path}/{base}" if path else base
                image[child_path] = self._content(child_path, child, choice)
                remaining.append((child_path, child))
        return image

    @staticmethod
    def _content(path: str, node: Node, choice: Choice) -> bytes | None:
        if node.is_directory:
            return None
        if path.endswith("-shm"):
            return random.Random(len(path)).randbytes(_SHARED_MEMORY_BYTES)
        return surviving_content(node.content, node.pending, choice.for_node())

    def _name(self, path: str) -> Name | None:
        """Return the directory and name of a path; None if it is not below the root."""
        if not path.startswith(f"{self._root_path}/"):
            return None
        directory = self._root
        *parents, base = PurePosixPath(path).relative_to(self._root_path).parts
        for parent in parents:
            directory = self._live[directory, parent]
        return directory, base

    def _node(self, path: str) -> Node:
        if path == self._root_path:
            return self._root
        name = self._name(path)
        assert name is not None, path
        return self._live[name]

    def _open(self, call: SystemCall) -> None:
        name = self._name(call.opened)
        self._positions[str(call.result)] = 0
        flags = {word for argument in call.arguments for word in argument.word.split("|")}
        if name is None:
            return
        if name not in self._live and "O_CREAT" in flags:
            self._rename_all(((name, Node()),))
        assert "O_APPEND" not in flags, "the position of appended data is not modelled"
        if "O_TRUNC" in flags:
            self._live[name].truncate(self._number, 0)

    def _write(self, descriptor: str, path: str, data: bytes, at: int | None) -> None:
        if self._name(path) is None:
            return
        if at is None:
            at = self._positions[descriptor]
            self._positions[descriptor] = at + len(data)
        self._node(path).pending.append(FileChange(self._number, at, data))

    def _send_file(self, call: SystemCall) -> None:
        target, source, *_ = call.arguments
        node = self._node(source.path)
        position = self._positions[source.word]
        data = surviving_content(node.content, node.pending, Choice("all"))
        self._positions[source.word] += call.result
        self._write(target.word, target.path, data[position : position + call.result], None)

    def _sync(self, call: SystemCall) -> None:
        """A sync covers the changes that were complete when it began."""
        if call.begins:
            node = self._node(call.arguments[0].path)
            self._syncs[call.thread] = node, self._number
            return
        node, before = self._syncs.pop(call.thread)
        covered = [change for change in node.pending if change.number < before]
        node.content = surviving_content(node.content, covered, Choice("all"))
        node.pending = [change for change in node.pending if change.number >= before]
        self._sync_names(node, before)

    def _sync_names(self, directory: Node, before: int) -> None:
        """Complete the changes in the directory, and the earlier ones of the same names."""
        needed: set[Name] = set()
        covered: list[NameChange] = []
        for change in reversed(self._pending):
            names = {name for name, _ in change.names}
            is_inside = any(parent is directory for parent, _ in names)
            if change.number < before and (is_inside or needed & names):
                needed |= names
                covered.insert(0, change)
        for change in covered:
            _apply_names(self._durable, change)
            self._pending.remove(change)

    def _change_names(self, call: SystemCall) -> None:
        assert call.name in (*_MAKE, *_REMOVE, *_LINK, *_RENAME), f"{call.name} is not modelled"
        paths = list(_paths(call))
        names = [self._name(path) for path in paths]
        assert all(names), f"{call.name} out of the directory: {paths}"
        first, *others = [name for name in names if name is not None]
        if call.name in _MAKE:
            self._rename_all(((first, Node(is_directory=True)),))
        elif call.name in _REMOVE:
            self._rename_all(((first, None),))
        elif call.name in _LINK:
            self._rename_all(((others[0], self._live[first]),))
        else:
            self._rename_all(((first, None), (others[0], self._live[first])))

    def _rename_all(self, names: tuple[tuple[Name, Node | None], ...]) -> None:
        change = NameChange(self._number, names)
        _apply_names(self._live, change)
        self._pending.append(change)


def _apply_names(names: dict[Name, Node], change: NameChange) -> None:
    for name, node in change.names:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def read_image(root: Path) -> Image:
    """Read the files below a directory."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in root.rglob("*")
    }


def write_image(image: Image, root: Path) -> None:
    """Write files into an empty directory."""
    for path, content in sorted(image.items()):
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)


def _paths(call: SystemCall) -> Iterable[str]:
    """The paths of a call; relative ones follow the descriptor of their directory."""
    directory = ""
    for argument in call.arguments:
        directory = argument.path or directory
        if argument.data:
            yield str(PurePosixPath(directory, argument.data.decode()))
