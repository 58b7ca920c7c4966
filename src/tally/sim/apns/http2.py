"""A small, fast HTTP/2 server: requests come whole, answers are short, and a connection can be made to fail in every way.

A handler gets each `Http2Stream` when its request is complete. It returns the answer, or None and
calls `exchange.answer(…)` later. Flow control, limits on streams and the end of a connection by
GOAWAY are kept as RFC 9113 has them; what a peer does against them ends the connection.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Final, cast

from tally.sim.apns import frames
from tally.sim.apns.frames import Http2ErrorCode
from tally.sim.apns.hpack_codec import HpackDecoder, HpackError, encode_headers
from tally.sim.apns.streams import MAX_BODY_BYTES, Http2Response, Http2Stream, StreamHandler

MAX_STREAMS: Final = 1000
_MAX_IN_A_BLOCK: Final = 32 * 1024
# A request without one of these is malformed: its stream is reset, and nobody is asked to answer
# it.
_ALWAYS_TOLD: Final = frozenset({b":method", b":scheme", b":path"})
# How much a peer may send before it has to wait for us; topped up when half of it is used.
_RECEIVE_WINDOW: Final = 16 * 1024 * 1024


class _PeerError(Exception):
    def __init__(self, code: Http2ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class Http2Connection(asyncio.Protocol):
    """One client. `number` tells connections apart in logs."""

    def __init__(
        self, number: int, handler: StreamHandler, on_end: Callable[["Http2Connection"], object]
    ) -> None:
        self.number = number
        self.streams: dict[int, Http2Stream] = {}
        self._handler = handler
        self._on_end = on_end
        self._reader = HpackDecoder()
        self._received = b""
        self._has_greeted = False
        self._out: list[bytes] = []
        self._last_stream = 0
        # The last stream that will still be served after a GOAWAY.
        self._until: int | None = None
        self._block: tuple[int, int, bytes] | None = None
        self._send_window = frames.DEFAULT_WINDOW
        self._stream_window = frames.DEFAULT_WINDOW
        self._uncredited = 0
        self._transport: asyncio.Transport | None = None
        self._deals: dict[int, Callable[[int, int, bytes], None]] = {
            frames.DATA: self._on_data,
            frames.HEADERS: self._on_headers,
            frames.CONTINUATION: self._on_continuation,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PING: self._on_ping,
            frames.WINDOW_UPDATE: self._on_window,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._out.append(frames.settings({frames.MAX_CONCURRENT_STREAMS: MAX_STREAMS}))
        self._out.append(frames.window_update(0, _RECEIVE_WINDOW - frames.DEFAULT_WINDOW))
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (why makes no difference)
        self.streams.clear()
        self._transport = None
        self._on_end(self)

    def data_received(self, data: bytes) -> None:
        buffer = self._received + data if self._received else data
        place = 0
        try:
            if not self._has_greeted:
                place = self._greeting(buffer)
            place = self._frames(buffer, place)
        except (_PeerError, HpackError, struct.error) as error:
            code = error.code if isinstance(error, _PeerError) else Http2ErrorCode.COMPRESSION_ERROR
            self._out.append(frames.go_away(self._last_stream, code, str(error).encode()))
            self._flush()
            self.close()
            return
        self._received = buffer[place:]
        self._credit()
        self._flush()

    def answer(self, exchange: Http2Stream, answer: Http2Response) -> None:
        if exchange.stream in self.streams and self.streams[exchange.stream] is exchange:
            self._put_answer(exchange, answer)
            self._flush()

    def abort(self) -> None:
        """Cut the connection, with whatever is under way."""
        if self._transport is not None:
            self._out.clear()
            self._transport.abort()

    def reset_stream(self, stream: int, code: Http2ErrorCode) -> None:
        if self.streams.pop(stream, None) is not None:
            self._out.append(frames.reset(stream, code))
            self._flush()

    def go_away(self, last_stream: int, told: bytes = b"") -> None:
        """Serve streams up to `last_stream` to their end, and then close; later ones were never seen here."""
        self._until = last_stream
        for stream in [stream for stream in self.streams if stream > last_stream]:
            del self.streams[stream]
        self._out.append(frames.go_away(last_stream, Http2ErrorCode.NO_ERROR, told))
        self._flush()

    def close(self) -> None:
        self.streams.clear()
        if self._transport is not None:
            self._transport.close()

    def _greeting(self, buffer: bytes) -> int:
        if not frames.PREFACE.startswith(buffer[: len(frames.PREFACE)]):
            raise _PeerError(Http2ErrorCode.PROTOCOL_ERROR, "this is no HTTP/2")
        if len(buffer) < len(frames.PREFACE):
            return 0
        self._has_greeted = True
        return len(frames.PREFACE)

    def _frames(self, buffer: bytes, place: int) -> int:
        """Deal with every whole frame, and say where the first one begins that is not."""
        end = len(buffer)
        while self._has_greeted and end - place >= frames.FRAME_HEADER_BYTES:
            length, kind, flags, stream = frames.parse_frame_header(buffer, place)
            if length > frames.MAX_FRAME_BYTES:
                raise _PeerError(Http2ErrorCode.FRAME_SIZE_ERROR, "a frame is too large")
            start = place + frames.FRAME_HEADER_BYTES
            if end - start < length:
                break
            place = start + length
            content = buffer[start:place]
            if self._block is not None and kind != frames.CONTINUATION:
                raise _PeerError(Http2ErrorCode.PROTOCOL_ERROR, "a header block was interrupted")
            deal = self._deals.get(kind)
            if deal is not None:
                deal(flags, stream, content)
        return place

    def _on_headers(self, flags: int, stream: int, content: bytes) -> None:
        if stream % 2 == 0 or (stream <= self._last_stream and stream not in self.streams):
            raise _PeerError(
                Http2ErrorCode.PROTOCOL_ERROR, "a stream has a number that it must not have"
            )
        content = _unpadded(flags, content)
        if flags & frames.PRIORITY_FLAG:
            content = content[5:]
        if flags & frames.END_HEADERS:
            self._on_block(flags, stream, content)
        else:
            self._block = (flags, stream, content)

    def _on_continuation(self, flags: int, stream: int, content: bytes) -> None:
        if self._block is None or self._block[1] != stream or len(self._block[2]) > _MAX_IN_A_BLOCK:
            raise _PeerError(
                Http2ErrorCode.PROTOCOL_ERROR, "a continuation of nothing, or without an end"
            )
        opening, _, begun = self._block
        self._block = (opening, stream, begun + content)
        if flags & frames.END_HEADERS:
            self._block = None
            self._on_block(opening, stream, begun + content)

    def _on_block(self, flags: int, stream: int, block: bytes) -> None:
        headers = self._reader.read(block)
        self._last_stream = max(self._last_stream, stream)
        if self._until is not None and stream > self._until:
            return
        if len(self.streams) >= MAX_STREAMS:
            self._out.append(frames.reset(stream, Http2ErrorCode.REFUSED_STREAM))
            return
        exchange = self.streams.get(stream)
        if exchange is None:
            if not headers.keys() >= _ALWAYS_TOLD:
                self._out.append(frames.reset(stream, Http2ErrorCode.PROTOCOL_ERROR))
                return
            exchange = self.streams[stream] = Http2Stream(
                self, stream, headers, self._stream_window
            )
        elif exchange.is_whole:
            raise _PeerError(Http2ErrorCode.STREAM_CLOSED, "headers after the end of a request")
        if flags & frames.END_STREAM:
            self._complete(exchange)

    def _on_data(self, flags: int, stream: int, content: bytes) -> None:
        self._uncredited += len(content)
        exchange = self.streams.get(stream)
        if exchange is None or exchange.is_whole:
            return  # refused, reset or given up: the frames were on their way
        if len(exchange.body) < MAX_BODY_BYTES:
            exchange.body += _unpadded(flags, content)
        if flags & frames.END_STREAM:
            self._complete(exchange)
        elif len(exchange.body) > frames.DEFAULT_WINDOW // 2:
            self._out.append(frames.window_update(stream, len(content)))

    def _complete(self, exchange: Http2Stream) -> None:
        exchange.is_whole = True
        answer = self._handler(exchange)
        if answer is not None and exchange.stream in self.streams:
            self._put_answer(exchange, answer)

    def _on_reset(self, _: int, stream: int, __: bytes) -> None:
        self.streams.pop(stream, None)
        self._close_if_done()

    def _on_settings(self, flags: int, _: int, content: bytes) -> None:
        if flags & frames.ACK:
            return
        window = frames.parse_settings(content).get(frames.INITIAL_WINDOW_SIZE, self._stream_window)
        for exchange in self.streams.values():
            exchange.window += window - self._stream_window
        self._stream_window = window
        self._out.append(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self._send_waiting()

    def _on_ping(self, flags: int, _: int, content: bytes) -> None:
        if len(content) != 8:
            raise _PeerError(Http2ErrorCode.FRAME_SIZE_ERROR, "a ping has eight bytes")
        if not flags & frames.ACK:
            self._out.append(frames.frame(frames.PING, frames.ACK, 0, content))

    def _on_window(self, _: int, stream: int, content: bytes) -> None:
        more = frames.parse_uint31(content)
        if stream == 0:
            self._send_window += more
        elif stream in self.streams:
            self.streams[stream].window += more
        self._send_waiting()

    def _put_answer(self, exchange: Http2Stream, answer: Http2Response) -> None:
        flags = frames.END_HEADERS if answer.body else frames.END_HEADERS | frames.END_STREAM
        self._out.append(
            frames.frame(
                frames.HEADERS,
                flags,
                exchange.stream,
                encode_headers(answer.status, answer.headers),
            )
        )
        exchange.unsent = answer.body
        if answer.body:
            self._send_body(exchange)
        else:
            self._finish(exchange)

    def _send_body(self, exchange: Http2Stream) -> None:
        while exchange.unsent:
            room = min(self._send_window, exchange.window, frames.MAX_FRAME_BYTES)
            if room <= 0:
                return
            part, exchange.unsent = exchange.unsent[:room], exchange.unsent[room:]
            self._send_window -= len(part)
            exchange.window -= len(part)
            is_last = 0 if exchange.unsent else frames.END_STREAM
            self._out.append(frames.frame(frames.DATA, is_last, exchange.stream, part))
        self._finish(exchange)

    def _send_waiting(self) -> None:
        for exchange in [exchange for exchange in self.streams.values() if exchange.unsent]:
            self._send_body(exchange)

    def _finish(self, exchange: Http2Stream) -> None:
        self.streams.pop(exchange.stream, None)
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._until is not None and not self.streams:
            self._flush()
            self.close()

    def _credit(self) -> None:
        if self._uncredited > _RECEIVE_WINDOW // 2:
            self._out.append(frames.window_update(0, self._uncredited))
            self._uncredited = 0

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
        self._out.clear()


def _unpadded(flags: int, content: bytes) -> bytes:
    if not flags & frames.PADDED:
        return content
    if not content or content[0] >= len(content):
        raise _PeerError(Http2ErrorCode.PROTOCOL_ERROR, "a frame is all padding")
    return content[1 : len(content) - content[0]]
