"""What the engine and its scribe say to each other: whole messages over a socket, each with its length before it.

Rows go there by `marshal`, the fastest there is for tuples of bytes, and outcomes come back by
`pickle`: both ends are the same program, and nobody else has the socket.
"""

import asyncio
import marshal
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from tally.store.expressions import not_exists
from tally.store.sqlite.bulk import PreparedBatch, PreparedPuts
from tally.store.sqlite.expiry import ExpiryRange
from tally.store.sqlite.table_registry import cached_layout

_HEAD_BYTES: Final = 4
_PLAIN: Final = 2  # the version of marshal that does not look for what comes twice


class MessageConnection(asyncio.Protocol):
    """One end of the socket."""

    def __init__(self, on_message: Callable[[bytes], object], on_end: Callable[[], object]) -> None:
        self._on_message = on_message
        self._on_end = on_end
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, message: bytes) -> None:
        """Send it, if there is still somebody to read it."""
        if self._transport is not None:
            self._transport.write(len(message).to_bytes(_HEAD_BYTES, "big") + message)

    def say_no_more(self) -> None:
        """What the other end still has to say is read."""
        if self._transport is not None:
            with suppress(OSError, RuntimeError):  # it has just ended by itself
                self._transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        place = 0
        while len(received) - place >= _HEAD_BYTES:
            start = place + _HEAD_BYTES
            end = start + int.from_bytes(received[place:start], "big")
            if len(received) < end:
                break
            self._on_message(bytes(received[start:end]))
            place = end
        del received[:place]

    def eof_received(self) -> bool:
        self._on_end()
        return True  # answers may still be sent

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (why makes no difference)
        self._transport = None
        self.lost.set()
        self._on_end()


def encode_request(number: int, work: PreparedBatch) -> bytes:
    """The message that asks for the work."""
    columns = [
        (
            column.layout.declaration,
            column.condition is not None,
            column.rows,
            [*map(tuple, column.notes)],
        )
        for column in work.columns
    ]
    return marshal.dumps((number, columns), _PLAIN)


def decode_request(message: bytes) -> tuple[int, PreparedBatch]:
    """What a message asks for."""
    number, columns = marshal.loads(message)  # noqa: S302  (it is our own)
    return number, PreparedBatch([_column(*told) for told in columns])


def _column(declaration: str, is_new: bool, rows: list[Any], notes: list[Any]) -> PreparedPuts:
    layout = cached_layout(declaration)
    condition = not_exists(layout.table.partition.name) if is_new else None
    return PreparedPuts(
        layout, condition, [row[:2] for row in rows], rows, [ExpiryRange(*note) for note in notes]
    )


def encode_response(number: int, outcome: Any) -> bytes:
    """The message that says what became of it: the result, or the error that is to be raised."""
    return pickle.dumps((number, outcome), pickle.HIGHEST_PROTOCOL)


def decode_response(message: bytes) -> tuple[int, Any]:
    """What a message says."""
    told: tuple[int, Any] = pickle.loads(message)  # noqa: S301  (it is our own)
    return told
