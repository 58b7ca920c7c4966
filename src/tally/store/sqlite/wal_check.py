"""Checks the write-ahead log before SQLite recovers it.

SQLite applies a log up to its first invalid frame and ignores the rest. That is right after a power
loss: the last transaction was not synced, so its frames may be incomplete. It is wrong after a
flipped byte: all later transactions were acknowledged, and they would be lost without an error.

What follows the invalid frame shows the difference. A transaction is synced before the next one
writes, so two commits in an unbroken chain of frames prove that the first of them was acknowledged.
Writes that failed leave at most one commit per chain: each of them starts at the same frame.

A frame's checksum continues that of the previous frame. The stored checksum of a damaged frame
therefore validates the frame after it, or, if that checksum itself is damaged, the computed one.
"""

import os
import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from operator import mul
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

WAL_SUFFIX: Final = "-wal"
WAL_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
WAL_PAGE_BYTES: Final = 4096  # the page size of every store
_MAGIC: Final = 0x377F0682  # plus 1 if checksums read words as big-endian
_MASK: Final = 2**32 - 1
# A sum of products of 32-bit numbers fits below the second half of a combined weight.
_HALF_BITS: Final = 96

_Checksum: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WalDamage:
    """The first invalid frame, counted from 1 (0 is the header).

    At least `transactions` acknowledged or complete transactions follow it.
    """

    frame: int
    transactions: int

    @property
    def offset(self) -> int:
        """Where the valid part of the log ends."""
        return _frame_offset(self.frame) if self.frame else 0


@dataclass(frozen=True, slots=True)
class _Frame:
    number: int
    is_commit: bool
    salt: bytes
    is_valid: bool


def find_wal_damage(path: Path) -> WalDamage | None:
    """Return the damage of the log at this path; None if it is intact, torn or missing.

    A damaged log is read twice, because another process may be restarting it.
    """
    found = _scan(path)
    return found if found is not None and _scan(path) == found else None


def cut_log(path: Path, damage: WalDamage) -> Path:
    """Keep a copy of the log and cut it before the damage; return the copy's path."""
    copy = path.with_name(f"{path.name}.damaged")
    for number in count(2):
        if not copy.exists():
            break
        copy = path.with_name(f"{path.name}.damaged-{number}")
    copy.touch(mode=0o600)
    copy.write_bytes(path.read_bytes())
    with path.open("r+b") as file:
        file.truncate(damage.offset)
        os.fsync(file.fileno())
    return copy


def _scan(path: Path) -> WalDamage | None:
    try:
        with path.open("rb") as file:
            header = file.read(WAL_HEADER_BYTES)
            if len(header) < WAL_HEADER_BYTES:
                return None
            salt = header[16:24] if _is_valid_header(header) else None
            return _find_damage(_frames(file, header), salt)
    except FileNotFoundError:
        return None


def _find_damage(frames: Iterator[_Frame], salt: bytes | None) -> WalDamage | None:
    """Find a chain with two commits after the first invalid frame.

    Without a valid header, the salt of a chain is that of its first frame.
    """
    first_invalid = None if salt is not None else 0
    chain_salt, commits, most_commits = salt, 0, 0
    for frame in frames:
        has_salt = frame.salt == (salt or chain_salt)
        if not frame.is_valid or not has_salt:
            first_invalid = frame.number if first_invalid is None else first_invalid
            # A commit whose page is damaged begins a chain if the next frame continues it.
            commits, chain_salt = 0, salt or frame.salt
            if not frame.is_valid and not has_salt:
                continue
        commits += frame.is_commit
        if first_invalid is not None:
            most_commits = max(most_commits, commits)
    if first_invalid is None or most_commits <= 1:
        return None
    return WalDamage(first_invalid, most_commits)


def _frames(file: BinaryIO, header: bytes) -> Iterator[_Frame]:
    """Yield all frames; each is valid if it continues the previous frame's checksum."""
    swap = _swaps_words(header)
    seeds: tuple[_Checksum, ...] = (_unpack_pair(header[24:]),)
    for number in count(1):
        frame = file.read(FRAME_HEADER_BYTES + WAL_PAGE_BYTES)
        if len(frame) < FRAME_HEADER_BYTES + WAL_PAGE_BYTES:
            return
        own = _weigh(frame[:8] + frame[FRAME_HEADER_BYTES:], swap, _FRAME_WEIGHTS)
        computed = [_continue(seed, own, _FRAME_PAIRS) for seed in seeds]
        stored = _unpack_pair(frame[16:24])
        page, size = _unpack_pair(frame[:8])
        yield _Frame(number, size > 0, frame[8:16], page > 0 and stored in computed)
        seeds = (stored, computed[0])


def _is_valid_header(header: bytes) -> bool:
    magic, _, page_bytes = struct.unpack(">3I", header[:12])
    if magic & ~1 != _MAGIC or page_bytes != WAL_PAGE_BYTES:
        return False
    own = _weigh(header[:24], _swaps_words(header), _HEADER_WEIGHTS)
    return own == _unpack_pair(header[24:])


def _swaps_words(header: bytes) -> bool:
    order = {_MAGIC: "little", _MAGIC + 1: "big"}.get(struct.unpack(">I", header[:4])[0])
    return order is not None and order != sys.byteorder


def _frame_offset(number: int) -> int:
    return WAL_HEADER_BYTES + (number - 1) * (FRAME_HEADER_BYTES + WAL_PAGE_BYTES)


def _unpack_pair(packed: bytes) -> _Checksum:
    first, second = struct.unpack(">2I", packed)
    return first, second


# SQLite adds pairs of words (a, b): s1 += a + s2, then s2 += b + s1. The checksum is linear
# in the words and in the seed, so a sum of products computes it, many times faster than a loop.


def _weigh(content: bytes, swap: bool, weights: list[int]) -> _Checksum:
    words = array("I", content)
    if swap:
        words.byteswap()
    total = sum(map(mul, words, weights))
    return total & _MASK, (total >> _HALF_BITS) & _MASK


def _continue(seed: _Checksum, own: _Checksum, pairs: tuple[int, int, int]) -> _Checksum:
    """Add the seed's contribution, which is multiplied by the matrix (1 1, 1 2) for each pair."""
    low, middle, high = pairs
    first, second = seed
    return (
        (own[0] + low * first + middle * second) & _MASK,
        (own[1] + middle * first + high * second) & _MASK,
    )


def _make_weights(content_bytes: int) -> tuple[list[int], tuple[int, int, int]]:
    """Return the weight of each word, and the matrix by which a seed is multiplied."""
    weights: list[int] = []
    low, middle, high = 1, 0, 1  # the identity; the matrices are symmetric
    for _ in range(content_bytes // 8):
        weights += (
            middle | high << _HALF_BITS,
            ((low + middle) & _MASK) | ((middle + high) & _MASK) << _HALF_BITS,
        )
        low, middle, high = (
            (low + middle) & _MASK,
            (middle + high) & _MASK,
            (middle + 2 * high) & _MASK,
        )
    return weights[::-1], (low, middle, high)


_HEADER_WEIGHTS, _ = _make_weights(24)
_FRAME_WEIGHTS, _FRAME_PAIRS = _make_weights(8 + WAL_PAGE_BYTES)
