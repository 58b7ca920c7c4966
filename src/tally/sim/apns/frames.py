"""The frames of HTTP/2 (RFC 9113) by number, and how one is put together."""

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME_BYTES: Final = 16_384
FRAME_HEADER_BYTES: Final = 9
DEFAULT_WINDOW: Final = 65_535

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY_FLAG: Final = 0x20

MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4

_head = struct.Struct(">BHBBL")
_settings = struct.Struct(">HL")
_number = struct.Struct(">L")


class Http2ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    length = len(content)
    return _head.pack(length >> 16, length & 0xFFFF, kind, flags, stream) + content


def parse_frame_header(buffer: bytes, place: int) -> tuple[int, int, int, int]:
    """Length, kind, flags and stream of the frame that begins at `place`."""
    high, low, kind, flags, stream = _head.unpack_from(buffer, place)
    return high << 16 | low, kind, flags, stream & 0x7FFF_FFFF


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_settings.pack(*pair) for pair in values.items()))


def parse_settings(content: bytes) -> dict[int, int]:
    return dict(_settings.iter_unpack(content))


def window_update(stream: int, more: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _number.pack(more))


def parse_uint31(content: bytes) -> int:
    """The one number that a WINDOW_UPDATE or an RST_STREAM holds."""
    number: int = _number.unpack(content)[0]
    return number & 0x7FFF_FFFF


def reset(stream: int, code: Http2ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream, _number.pack(code))


def go_away(last_stream: int, code: Http2ErrorCode, told: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, _number.pack(last_stream) + _number.pack(code) + told)
