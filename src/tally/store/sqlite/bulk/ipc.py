"""Messages between the engine and its writer process over a socket, each prefixed with its length.

Requests use `marshal`, the fastest format for tuples of bytes; responses use `pickle`. Both ends
run the same program, and no other process has the socket.
"""

import asyncio
import marshal
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from tally.store.expressions import not_exists
from tally.store.sqlite.bulk.batches import PreparedBatch, PreparedPuts
from tally.store.sqlite.expiry import ExpiryRecord
from tally.store.sqlite.table_registry import LayoutCache

_LENGTH_BYTES: Final = 4
_MARSHAL_VERSION: Final = 2  # later versions search for repeated objects


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
        """Send a message, unless the connection is lost."""
        if self._transport is not None:
            self._transport.write(len(message).to_bytes(_LENGTH_BYTES, "big") + message)

    def end_sending(self) -> None:
        """Close the sending direction; messages of the other end are still received."""
        if self._transport is not None:
            with suppress(OSError, RuntimeError):  # the other end has closed the connection
                self._transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        position = 0
        while len(received) - position >= _LENGTH_BYTES:
            start = position + _LENGTH_BYTES
            end = start + int.from_bytes(received[position:start], "big")
            if len(received) < end:
                break
            self._on_message(bytes(received[start:end]))
            position = end
        del received[:position]

    def eof_received(self) -> bool:
        self._on_end()
        return True  # keep the sending direction open for responses

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the cause does not matter
        self._transport = None
        self.lost.set()
        self._on_end()


def encode_request(number: int, batch: PreparedBatch, now: float) -> bytes:
    """Encode a request to run a batch. `now` is the time of its changes in epoch seconds."""
    puts_by_table = [
        (
            puts.layout.declaration,
            puts.condition is not None,
            puts.rows,
            [*map(tuple, puts.expiry)],
        )
        for puts in batch.puts_by_table
    ]
    return marshal.dumps((number, now, puts_by_table), _MARSHAL_VERSION)


def decode_request(message: bytes, layouts: LayoutCache) -> tuple[int, float, PreparedBatch]:
    """Decode the number, the time and the batch of a request."""
    number, now, puts_by_table = marshal.loads(message)  # noqa: S302 - from our own process
    return number, now, PreparedBatch([_decode_puts(layouts, *puts) for puts in puts_by_table])


def _decode_puts(
    layouts: LayoutCache,
    declaration: str,
    is_conditional: bool,
    rows: list[Any],
    expiry: list[Any],
) -> PreparedPuts:
    layout = layouts.layout(declaration)
    condition = not_exists(layout.table.partition.name) if is_conditional else None
    keys = [row[:2] for row in rows]
    return PreparedPuts(layout, condition, keys, rows, [ExpiryRecord(*each) for each in expiry])


def encode_response(number: int, outcome: Any) -> bytes:
    """Encode the result of a request, or the error to raise."""
    return pickle.dumps((number, outcome), pickle.HIGHEST_PROTOCOL)


def decode_response(message: bytes) -> tuple[int, Any]:
    """Decode the number and the outcome of a response."""
    response: tuple[int, Any] = pickle.loads(message)  # noqa: S301 - from our own process
    return response
