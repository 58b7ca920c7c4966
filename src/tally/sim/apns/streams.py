"""The interface between the HTTP/2 server and its handlers: a request stream and its response."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import msgspec

from tally.sim.apns.frames import Http2ErrorCode
from tally.sim.apns.hpack_codec import HeaderField

# Longer bodies are truncated; APNs accepts at most 5 KiB.
MAX_BODY_BYTES: Final = 64 * 1024


class StreamConnection(Protocol):
    """The connection of a stream, with the ways a fault can break it."""

    number: int

    @property
    def streams(self) -> Mapping[int, object]:
        """The open streams by id."""

    def respond(self, stream: "Http2Stream", response: "Http2Response") -> None: ...

    def abort(self) -> None: ...

    def reset_stream(self, stream_id: int, code: Http2ErrorCode) -> None: ...

    def go_away(self, last_stream_id: int, debug_data: bytes = b"") -> None: ...


class Http2Response(msgspec.Struct, frozen=True):
    """Status, headers and body of a response."""

    status: int
    headers: tuple[HeaderField, ...] = ()
    body: bytes = b""


class Http2Stream:
    """One request on a connection."""

    __slots__ = ("body", "connection", "headers", "is_complete", "stream_id", "unsent", "window")

    def __init__(
        self, connection: StreamConnection, stream_id: int, headers: dict[bytes, bytes], window: int
    ) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.headers = headers
        self.body = b""
        self.is_complete = False
        self.window = window
        self.unsent = b""

    def respond(self, response: Http2Response) -> None:
        """Send the response; does nothing if the stream or the connection is closed."""
        self.connection.respond(self, response)


StreamHandler: TypeAlias = Callable[[Http2Stream], Http2Response | None]
