"""What a file contains after a crash: some version of each sector, and some size.

The kernel writes sectors in any order, and the size of a file independently of its content. A
sector and a truncation are atomic.
"""

import random
from dataclasses import dataclass

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class FileChange:
    """A write, or a truncation to a smaller size, `offset`, if `data` is None."""

    number: int
    offset: int
    data: bytes | None

    @property
    def end(self) -> int:
        return self.offset + len(self.data or b"")


class Choice:
    """Decides what of the pending changes is on disk: all, none, or a random part."""

    def __init__(self, kind: str, seed: int = 0) -> None:
        self.kind = kind
        self.rng = random.Random(seed)

    def __str__(self) -> str:
        return self.kind

    def for_node(self) -> "Choice":
        """Return the choice for one file: a random part of a disk may be all of one file."""
        if self.kind != "part":
            return self
        kind = self.rng.choice(("all", "none", "writes", "writes", "sectors", "sectors"))
        return Choice(kind, self.rng.getrandbits(32))

    def count(self, total: int) -> int:
        """Choose how many of `total` changes in a row are on disk."""
        if self.kind in ("all", "none"):
            return total if self.kind == "all" else 0
        return self.rng.randint(0, total)

    def is_on_disk(self) -> bool:
        return self.kind == "all" or (self.kind != "none" and self.rng.random() < 0.5)


def surviving_content(content: bytes, pending: list[FileChange], choice: Choice) -> bytes:
    """Apply the part of the pending changes that is on disk."""
    truncations = [change for change in pending if change.data is None]
    applied = choice.count(len(truncations))
    if applied < len(truncations):
        # The writes after a truncation are in other blocks, which are not part of the file yet.
        pending = [change for change in pending if change.number < truncations[applied].number]
    for truncation in truncations[:applied]:
        earlier = [change for change in pending if change.number < truncation.number]
        pending = [change for change in pending if change.number > truncation.number]
        content = _surviving_writes(content, earlier, choice)[: truncation.offset]
        content = content.ljust(truncation.offset, b"\0")
    return _surviving_writes(content, pending, choice)


def _surviving_writes(content: bytes, writes: list[FileChange], choice: Choice) -> bytes:
    """Choose a version of each sector, and a size."""
    if not writes or choice.kind == "none":
        return content
    if choice.kind == "all":
        return _with_writes(content, writes)
    sizes = [write.end for write in writes[: choice.count(len(writes))]]
    size = max(len(content), *sizes, 0)
    result = bytearray(content.ljust(max(size, *(write.end for write in writes)), b"\0"))
    versions: dict[int, list[FileChange]] = {}
    for write in writes:
        for sector in range(write.offset // SECTOR_BYTES, -(-write.end // SECTOR_BYTES)):
            versions.setdefault(sector, []).append(write)
    on_disk = {write.number for write in writes if choice.kind == "writes" and choice.is_on_disk()}
    for sector, changes in versions.items():
        chosen = choice.count(len(changes))
        if choice.kind == "writes":
            chosen = max(
                (at + 1 for at, change in enumerate(changes) if change.number in on_disk), default=0
            )
        for change in changes[:chosen]:
            start = max(change.offset, sector * SECTOR_BYTES)
            end = min(change.end, (sector + 1) * SECTOR_BYTES)
            assert change.data is not None
            result[start:end] = change.data[start - change.offset : end - change.offset]
    return bytes(result[:size])


def _with_writes(content: bytes, writes: list[FileChange]) -> bytes:
    result = bytearray(content.ljust(max(write.end for write in writes), b"\0"))
    for write in writes:
        result[write.offset : write.end] = write.data or b""
    return bytes(result)
