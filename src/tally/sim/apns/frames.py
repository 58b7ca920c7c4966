"""HTTP/2 frames (RFC 9113): constants, encoding and parsing."""

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

_header = struct.Struct(">BHBBL")
_settings = struct.Struct(">HL")
_uint32 = struct.Struct(">L")


class Http2ErrorCode(IntEnum):
    """Error codes of RST_STREAM and GOAWAY frames."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    length = len(payload)
    return _header.pack(length >> 16, length & 0xFFFF, kind, flags, stream_id) + payload


def parse_frame_header(buffer: bytes, offset: int) -> tuple[int, int, int, int]:
    """Length, type, flags and stream id of the frame at `offset`."""
    high, low, kind, flags, stream_id = _header.unpack_from(buffer, offset)
    return high << 16 | low, kind, flags, stream_id & 0x7FFF_FFFF


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_settings.pack(*pair) for pair in values.items()))


def parse_settings(payload: bytes) -> dict[int, int]:
    return dict(_settings.iter_unpack(payload))


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, _uint32.pack(increment))


def parse_uint31(payload: bytes) -> int:
    """The 31-bit integer of a WINDOW_UPDATE or RST_STREAM frame."""
    number: int = _uint32.unpack(payload)[0]
    return number & 0x7FFF_FFFF


def reset(stream_id: int, code: Http2ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream_id, _uint32.pack(code))


def go_away(last_stream_id: int, code: Http2ErrorCode, debug_data: bytes = b"") -> bytes:
    payload = _uint32.pack(last_stream_id) + _uint32.pack(code) + debug_data
    return frame(GOAWAY, 0, 0, payload)
