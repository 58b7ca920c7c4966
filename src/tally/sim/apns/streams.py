"""One request and its answer, as the HTTP/2 server and the service that it serves hand them to each other."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import msgspec

from tally.sim.apns.frames import Http2ErrorCode
from tally.sim.apns.hpack_codec import HeaderField

# Bodies are cut off here, beyond anything that is accepted.
MAX_BODY_BYTES: Final = 64 * 1024


class StreamConnection(Protocol):
    """The connection that a request came on, and how it can be made to fail."""

    number: int

    @property
    def streams(self) -> Mapping[int, object]:
        """What is under way."""

    def answer(self, exchange: "Http2Stream", answer: "Http2Response") -> None: ...

    def abort(self) -> None: ...

    def reset_stream(self, stream: int, code: Http2ErrorCode) -> None: ...

    def go_away(self, last_stream: int, told: bytes = b"") -> None: ...


class Http2Response(msgspec.Struct, frozen=True):
    status: int
    headers: tuple[HeaderField, ...] = ()
    body: bytes = b""


class Http2Stream:
    """One request on a connection, and the way to answer it."""

    __slots__ = ("body", "connection", "headers", "is_whole", "stream", "unsent", "window")

    def __init__(
        self, connection: StreamConnection, stream: int, headers: dict[bytes, bytes], window: int
    ) -> None:
        self.connection = connection
        self.stream = stream
        self.headers = headers
        # Bodies beyond MAX_KEPT bytes are cut off there: longer than anything that is accepted.
        self.body = b""
        self.is_whole = False
        self.window = window
        self.unsent = b""

    def answer(self, answer: Http2Response) -> None:
        """Answer now; nothing happens if the stream or the connection is gone."""
        self.connection.answer(self, answer)


StreamHandler: TypeAlias = Callable[[Http2Stream], Http2Response | None]
