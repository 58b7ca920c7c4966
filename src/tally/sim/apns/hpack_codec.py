"""HPACK (RFC 7541): decodes request headers and encodes response headers.

Pushes repeat the same dozen headers except for the path. The decoder therefore caches decoded
strings by their encoded form, and decodes Huffman codes bytewise with a lazily built table.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable

HeaderField: TypeAlias = tuple[bytes, bytes]

_STATIC: Final = tuple(HeaderTable.STATIC_TABLE)
_ENTRY_OVERHEAD: Final = 32
_TABLE_SIZE: Final = 4096
_MAX_CACHED_STRINGS: Final = 8192
_END_OF_STRING: Final = 256


class HpackError(Exception):
    """An invalid header block. The connection is unusable: the dynamic tables no longer match."""


class _Huffman:
    """A bytewise Huffman decoder.

    A state is the bits read of the current symbol, prefixed with a 1 bit.
    """

    def __init__(self) -> None:
        codes = zip(REQUEST_CODES, REQUEST_CODES_LENGTH, strict=True)
        self._symbols = {
            (1 << length) | code: symbol for symbol, (code, length) in enumerate(codes)
        }
        self._transitions: dict[int, list[tuple[bytes, int] | None]] = {}

    def decode(self, encoded: bytes) -> bytes:
        state, text = 1, []
        for byte in encoded:
            row = self._transitions.get(state) or self._transitions.setdefault(state, [None] * 256)
            emitted, state = row[byte] or self._step(row, state, byte)
            text.append(emitted)
        # Padding is a prefix of the end-of-string symbol: fewer than eight 1 bits.
        if state.bit_length() > 8 or state & (state + 1):
            raise HpackError("invalid Huffman padding")
        return b"".join(text)

    def _step(
        self, row: list[tuple[bytes, int] | None], state: int, byte: int
    ) -> tuple[bytes, int]:
        emitted = bytearray()
        for bit in range(7, -1, -1):
            state = (state << 1) | (byte >> bit & 1)
            symbol = self._symbols.get(state)
            if symbol is not None:
                if symbol == _END_OF_STRING:
                    raise HpackError("Huffman code contains the end-of-string symbol")
                emitted.append(symbol)
                state = 1
        row[byte] = transition = bytes(emitted), state
        return transition


_huffman = _Huffman()


class HpackDecoder:
    """Decodes the header blocks of one connection, in order."""

    def __init__(self) -> None:
        self._dynamic: deque[HeaderField] = deque()
        self._size = 0
        self._max_size = _TABLE_SIZE
        self._strings: dict[bytes, bytes] = {}

    def decode(self, block: bytes) -> dict[bytes, bytes]:
        """The headers by name; the last value of a repeated name."""
        headers: dict[bytes, bytes] = {}
        offset, end = 0, len(block)
        try:
            while offset < end:
                first = block[offset]
                if first & 0x80:
                    index, offset = _integer(block, offset, 0x7F)
                    name, value = self._entry(index)
                elif first & 0xE0 == 0x20:
                    size, offset = _integer(block, offset, 0x1F)
                    self._resize(size)
                    continue
                else:
                    name, value, offset = self._literal(
                        block, offset, is_indexed=bool(first & 0x40)
                    )
                headers[name] = value
        except IndexError as error:
            raise HpackError("truncated header block or unknown table entry") from error
        return headers

    def _literal(self, block: bytes, offset: int, *, is_indexed: bool) -> tuple[bytes, bytes, int]:
        index, offset = _integer(block, offset, 0x3F if is_indexed else 0x0F)
        if index:
            name = self._entry(index)[0]
        else:
            name, offset = self._string(block, offset)
        value, offset = self._string(block, offset)
        if is_indexed:
            self._dynamic.appendleft((name, value))
            self._size += len(name) + len(value) + _ENTRY_OVERHEAD
            self._evict()
        return name, value, offset

    def _string(self, block: bytes, offset: int) -> tuple[bytes, int]:
        is_huffman = block[offset] & 0x80
        length, offset = _integer(block, offset, 0x7F)
        text, offset = block[offset : offset + length], offset + length
        if offset > len(block):
            raise HpackError("truncated header block")
        if not is_huffman:
            return text, offset
        cached = self._strings.get(text)
        if cached is None:
            cached = _huffman.decode(text)
            if len(self._strings) >= _MAX_CACHED_STRINGS:
                self._strings.clear()
            self._strings[text] = cached
        return cached, offset

    def _entry(self, index: int) -> HeaderField:
        if index == 0:
            raise HpackError("header index 0")
        return (
            _STATIC[index - 1] if index <= len(_STATIC) else self._dynamic[index - len(_STATIC) - 1]
        )

    def _resize(self, size: int) -> None:
        if size > _TABLE_SIZE:
            raise HpackError("header table size exceeds the limit")
        self._max_size = size
        self._evict()

    def _evict(self) -> None:
        while self._size > self._max_size:
            name, value = self._dynamic.pop()
            self._size -= len(name) + len(value) + _ENTRY_OVERHEAD


def _integer(block: bytes, offset: int, mask: int) -> tuple[int, int]:
    value = block[offset] & mask
    offset += 1
    if value < mask:
        return value, offset
    shift = 0
    while True:
        byte = block[offset]
        offset += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, offset
        if shift > 28:
            raise HpackError("integer too large")


_STATUSES: Final = {
    status: 8 + index for index, status in enumerate((200, 204, 206, 304, 400, 404, 500))
}


def encode_headers(status: int, headers: Iterable[HeaderField]) -> bytes:
    """Encode response headers as literals without indexing. Values must be under 127 bytes."""
    index = _STATUSES.get(status)
    start = bytes((0x80 | index,)) if index is not None else b"\x08\x03%d" % status
    return start + b"".join(
        b"\x00%c%b%c%b" % (len(name), name, len(value), value) for name, value in headers
    )
