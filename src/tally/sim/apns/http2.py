"""A small, fast HTTP/2 server connection that supports fault injection.

The handler receives each `Http2Stream` when its request is complete. It returns the response, or
None and calls `stream.respond(…)` later. Flow control, stream limits and GOAWAY follow RFC 9113;
a protocol violation closes the connection.
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
_MAX_HEADER_BLOCK_BYTES: Final = 32 * 1024
# A request without these is malformed: the server resets its stream.
_REQUIRED_HEADERS: Final = frozenset({b":method", b":scheme", b":path"})
# The connection's receive window; replenished when half of it is used.
_RECEIVE_WINDOW: Final = 16 * 1024 * 1024


class _ProtocolError(Exception):
    def __init__(self, code: Http2ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Http2Connection(asyncio.Protocol):
    """The connection of one client. `number` identifies it in the request log."""

    def __init__(
        self, number: int, handler: StreamHandler, on_close: Callable[["Http2Connection"], object]
    ) -> None:
        self.number = number
        self.streams: dict[int, Http2Stream] = {}
        self._handler = handler
        self._on_close = on_close
        self._decoder = HpackDecoder()
        self._buffer = b""
        self._has_preface = False
        self._out: list[bytes] = []
        self._last_stream_id = 0
        # The last stream that is served after a GOAWAY.
        self._last_served: int | None = None
        self._partial_block: tuple[int, int, bytes] | None = None
        self._send_window = frames.DEFAULT_WINDOW
        self._stream_window = frames.DEFAULT_WINDOW
        self._unacknowledged = 0
        self._transport: asyncio.Transport | None = None
        self._frame_handlers: dict[int, Callable[[int, int, bytes], None]] = {
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

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.streams.clear()
        self._transport = None
        self._on_close(self)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        offset = 0
        try:
            if not self._has_preface:
                offset = self._read_preface(buffer)
            offset = self._read_frames(buffer, offset)
        except (_ProtocolError, HpackError, struct.error) as error:
            code = (
                error.code
                if isinstance(error, _ProtocolError)
                else Http2ErrorCode.COMPRESSION_ERROR
            )
            self._out.append(frames.go_away(self._last_stream_id, code, str(error).encode()))
            self._flush()
            self.close()
            return
        self._buffer = buffer[offset:]
        self._replenish_window()
        self._flush()

    def respond(self, stream: Http2Stream, response: Http2Response) -> None:
        if stream.stream_id in self.streams and self.streams[stream.stream_id] is stream:
            self._write_response(stream, response)
            self._flush()

    def abort(self) -> None:
        """Drop the connection and its open streams."""
        if self._transport is not None:
            self._out.clear()
            self._transport.abort()

    def reset_stream(self, stream_id: int, code: Http2ErrorCode) -> None:
        if self.streams.pop(stream_id, None) is not None:
            self._out.append(frames.reset(stream_id, code))
            self._flush()

    def go_away(self, last_stream_id: int, debug_data: bytes = b"") -> None:
        """Send GOAWAY: complete streams up to `last_stream_id`, ignore later ones, then close."""
        self._last_served = last_stream_id
        for stream_id in [stream_id for stream_id in self.streams if stream_id > last_stream_id]:
            del self.streams[stream_id]
        self._out.append(frames.go_away(last_stream_id, Http2ErrorCode.NO_ERROR, debug_data))
        self._flush()

    def close(self) -> None:
        self.streams.clear()
        if self._transport is not None:
            self._transport.close()

    def _read_preface(self, buffer: bytes) -> int:
        if not frames.PREFACE.startswith(buffer[: len(frames.PREFACE)]):
            raise _ProtocolError(Http2ErrorCode.PROTOCOL_ERROR, "missing HTTP/2 connection preface")
        if len(buffer) < len(frames.PREFACE):
            return 0
        self._has_preface = True
        return len(frames.PREFACE)

    def _read_frames(self, buffer: bytes, offset: int) -> int:
        """Process every complete frame; return the offset of the first incomplete one."""
        end = len(buffer)
        while self._has_preface and end - offset >= frames.FRAME_HEADER_BYTES:
            length, kind, flags, stream_id = frames.parse_frame_header(buffer, offset)
            if length > frames.MAX_FRAME_BYTES:
                raise _ProtocolError(Http2ErrorCode.FRAME_SIZE_ERROR, "frame too large")
            start = offset + frames.FRAME_HEADER_BYTES
            if end - start < length:
                break
            offset = start + length
            content = buffer[start:offset]
            if self._partial_block is not None and kind != frames.CONTINUATION:
                raise _ProtocolError(Http2ErrorCode.PROTOCOL_ERROR, "interrupted header block")
            handle = self._frame_handlers.get(kind)
            if handle is not None:
                handle(flags, stream_id, content)
        return offset

    def _on_headers(self, flags: int, stream_id: int, content: bytes) -> None:
        if stream_id % 2 == 0 or (
            stream_id <= self._last_stream_id and stream_id not in self.streams
        ):
            raise _ProtocolError(Http2ErrorCode.PROTOCOL_ERROR, "invalid stream id")
        content = _unpadded(flags, content)
        if flags & frames.PRIORITY_FLAG:
            content = content[5:]
        if flags & frames.END_HEADERS:
            self._on_block(flags, stream_id, content)
        else:
            self._partial_block = (flags, stream_id, content)

    def _on_continuation(self, flags: int, stream_id: int, content: bytes) -> None:
        if (
            self._partial_block is None
            or self._partial_block[1] != stream_id
            or len(self._partial_block[2]) > _MAX_HEADER_BLOCK_BYTES
        ):
            raise _ProtocolError(
                Http2ErrorCode.PROTOCOL_ERROR, "unexpected CONTINUATION or header block too large"
            )
        first_flags, _, block = self._partial_block
        self._partial_block = (first_flags, stream_id, block + content)
        if flags & frames.END_HEADERS:
            self._partial_block = None
            self._on_block(first_flags, stream_id, block + content)

    def _on_block(self, flags: int, stream_id: int, block: bytes) -> None:
        headers = self._decoder.decode(block)
        self._last_stream_id = max(self._last_stream_id, stream_id)
        if self._last_served is not None and stream_id > self._last_served:
            return
        if len(self.streams) >= MAX_STREAMS:
            self._out.append(frames.reset(stream_id, Http2ErrorCode.REFUSED_STREAM))
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            if not headers.keys() >= _REQUIRED_HEADERS:
                self._out.append(frames.reset(stream_id, Http2ErrorCode.PROTOCOL_ERROR))
                return
            stream = self.streams[stream_id] = Http2Stream(
                self, stream_id, headers, self._stream_window
            )
        elif stream.is_complete:
            raise _ProtocolError(Http2ErrorCode.STREAM_CLOSED, "HEADERS after END_STREAM")
        if flags & frames.END_STREAM:
            self._complete(stream)

    def _on_data(self, flags: int, stream_id: int, content: bytes) -> None:
        self._unacknowledged += len(content)
        stream = self.streams.get(stream_id)
        if stream is None or stream.is_complete:
            return  # frames of a closed stream may still arrive
        if len(stream.body) < MAX_BODY_BYTES:
            stream.body += _unpadded(flags, content)
        if flags & frames.END_STREAM:
            self._complete(stream)
        elif len(stream.body) > frames.DEFAULT_WINDOW // 2:
            self._out.append(frames.window_update(stream_id, len(content)))

    def _complete(self, stream: Http2Stream) -> None:
        stream.is_complete = True
        response = self._handler(stream)
        if response is not None and stream.stream_id in self.streams:
            self._write_response(stream, response)

    def _on_reset(self, _: int, stream_id: int, __: bytes) -> None:
        self.streams.pop(stream_id, None)
        self._close_if_done()

    def _on_settings(self, flags: int, _: int, content: bytes) -> None:
        if flags & frames.ACK:
            return
        window = frames.parse_settings(content).get(frames.INITIAL_WINDOW_SIZE, self._stream_window)
        for stream in self.streams.values():
            stream.window += window - self._stream_window
        self._stream_window = window
        self._out.append(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self._send_pending()

    def _on_ping(self, flags: int, _: int, content: bytes) -> None:
        if len(content) != 8:
            raise _ProtocolError(Http2ErrorCode.FRAME_SIZE_ERROR, "PING payload must be 8 bytes")
        if not flags & frames.ACK:
            self._out.append(frames.frame(frames.PING, frames.ACK, 0, content))

    def _on_window(self, _: int, stream_id: int, content: bytes) -> None:
        increment = frames.parse_uint31(content)
        if stream_id == 0:
            self._send_window += increment
        elif stream_id in self.streams:
            self.streams[stream_id].window += increment
        self._send_pending()

    def _write_response(self, stream: Http2Stream, response: Http2Response) -> None:
        flags = frames.END_HEADERS if response.body else frames.END_HEADERS | frames.END_STREAM
        self._out.append(
            frames.frame(
                frames.HEADERS,
                flags,
                stream.stream_id,
                encode_headers(response.status, response.headers),
            )
        )
        stream.unsent = response.body
        if response.body:
            self._send_body(stream)
        else:
            self._finish(stream)

    def _send_body(self, stream: Http2Stream) -> None:
        while stream.unsent:
            size = min(self._send_window, stream.window, frames.MAX_FRAME_BYTES)
            if size <= 0:
                return
            chunk, stream.unsent = stream.unsent[:size], stream.unsent[size:]
            self._send_window -= len(chunk)
            stream.window -= len(chunk)
            is_last = 0 if stream.unsent else frames.END_STREAM
            self._out.append(frames.frame(frames.DATA, is_last, stream.stream_id, chunk))
        self._finish(stream)

    def _send_pending(self) -> None:
        for stream in [stream for stream in self.streams.values() if stream.unsent]:
            self._send_body(stream)

    def _finish(self, stream: Http2Stream) -> None:
        self.streams.pop(stream.stream_id, None)
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._last_served is not None and not self.streams:
            self._flush()
            self.close()

    def _replenish_window(self) -> None:
        if self._unacknowledged > _RECEIVE_WINDOW // 2:
            self._out.append(frames.window_update(0, self._unacknowledged))
            self._unacknowledged = 0

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
        self._out.clear()


def _unpadded(flags: int, content: bytes) -> bytes:
    if not flags & frames.PADDED:
        return content
    if not content or content[0] >= len(content):
        raise _ProtocolError(Http2ErrorCode.PROTOCOL_ERROR, "padding exceeds the frame")
    return content[1 : len(content) - content[0]]
