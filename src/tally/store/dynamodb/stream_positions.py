"""Positions of a DynamoDB stream: how far each of its shards was read.

A stream has several open shards, so a position covers all of them. It names the shards in progress
only: their ancestors are read completely, and their descendants not at all. Shard ids are hashed,
so that a shard takes about 20 characters.

    0f3a9c51d2e7.Zk3x9QbAaAbc12~Pq81mmC4s
    stream       change         another shard, not begun
"""

import binascii
import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

# s: before the first record; t: before the record with the number; a: after it; e: at the end.
PointerKind: TypeAlias = Literal["s", "t", "a", "e"]

MIN_SEQUENCE_LENGTH: Final = 21  # of DynamoDB's sequence numbers, which emulators pad with zeros
_POINTER: Final = re.compile(r"([\w-]{8})(?:([se])|([ta])([\w-]{1,32}))", re.ASCII)


class ShardPointer(NamedTuple):
    """How far a shard was read."""

    kind: PointerKind
    sequence: int = 0

    @property
    def lower(self) -> int:
        """The records after the pointer have greater numbers than this."""
        return self.sequence - 1 if self.kind == "t" else self.sequence

    @property
    def sequence_number(self) -> str:
        """The number as the service writes it."""
        return str(self.sequence).zfill(MIN_SEQUENCE_LENGTH)


BEGINNING: Final = ShardPointer("s")
END: Final = ShardPointer("e")


def after_record(sequence_number: str) -> ShardPointer:
    """The pointer after a record."""
    return ShardPointer("a", int(sequence_number))


def before_record(sequence_number: str) -> ShardPointer:
    """The pointer before a record."""
    return ShardPointer("t", int(sequence_number))


def stream_key(arn: str) -> str:
    """Identify a stream within positions; the ARN has the account, the table and the time."""
    return hashlib.sha256(arn.encode()).hexdigest()[:12]


def shard_key(shard_id: str) -> str:
    """Identify a shard within positions."""
    return urlsafe_b64encode(hashlib.sha256(shard_id.encode()).digest()[:6]).decode()


class Frontier:
    """The shards in progress and their pointers; no shard is an ancestor of another."""

    def __init__(self, stream: str, pointers: Mapping[str, ShardPointer]) -> None:
        self._stream = stream
        self.pointers = dict(pointers)
        self._texts = {key: _encode(key, pointer) for key, pointer in pointers.items()}

    def move(self, key: str, pointer: ShardPointer) -> None:
        """Set the pointer of a shard."""
        self.pointers[key] = pointer
        self._texts[key] = _encode(key, pointer)

    @property
    def unfinished(self) -> list[str]:
        """The keys of the shards that may have more records."""
        return [key for key, pointer in self.pointers.items() if pointer != END]

    @property
    def has_ended(self) -> bool:
        """Whether a shard was read to its end, or none exists yet."""
        return END in self.pointers.values() or not self.pointers

    def has_reached(self, until: Mapping[str, ShardPointer]) -> bool:
        """Whether the shards were read up to these pointers."""
        return all(
            key in self.pointers
            and (self.pointers[key] == END or self.pointers[key].lower >= pointer.lower)
            for key, pointer in until.items()
        )

    def position(self, first: str | None = None) -> str:
        """Encode all pointers, beginning with the shard of the change that was read last."""
        rest = [text for key, text in self._texts.items() if key != first]
        own = "" if first is None else self._texts[first]
        return "~".join([f"{self._stream}.{own}", *rest])


def parse_position(position: str) -> tuple[str, dict[str, ShardPointer]] | None:
    """Return the stream and the pointers of a position, or None if it is not one."""
    stream, separator, rest = position.partition(".")
    pointers: dict[str, ShardPointer] = {}
    for text in filter(None, rest.split("~")):
        match = _POINTER.fullmatch(text)
        if match is None:
            return None
        key, plain, kind, number = match.groups()
        if plain:
            pointers[key] = END if plain == "e" else BEGINNING
        else:
            try:
                content = urlsafe_b64decode(number + "=" * (-len(number) % 4))
            except binascii.Error:  # cut off
                return None
            sequence = int.from_bytes(content, "big")
            pointers[key] = ShardPointer("t" if kind == "t" else "a", sequence)
    return (stream, pointers) if separator else None


def _encode(key: str, pointer: ShardPointer) -> str:
    if pointer.kind in "se":
        return key + pointer.kind
    number = pointer.sequence.to_bytes((pointer.sequence.bit_length() + 7) // 8 or 1, "big")
    return f"{key}{pointer.kind}{urlsafe_b64encode(number).decode().rstrip('=')}"


def own_sequence(position: str) -> int:
    """Return the number of the change that a position names, or 0 if it names none."""
    parsed = parse_position(position.partition("~")[0])
    pointers = [] if parsed is None else [*parsed[1].values()]
    return pointers[0].sequence if pointers and pointers[0].kind == "a" else 0
