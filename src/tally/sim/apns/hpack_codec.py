"""Header blocks of HTTP/2 (HPACK, RFC 7541), as a server reads and writes them.

A push brings the same dozen headers as the one before, but for the path. So the text of every value
that was read is remembered by its coded form, and the Huffman code is decoded a byte at a time with
a table that fills itself.
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
_MAX_REMEMBERED: Final = 8192
_END_OF_STRING: Final = 256


class HpackError(Exception):
    """The block cannot be read, and with it the connection is lost: the table of both sides no longer agree."""


class _Huffman:
    """Decodes bytewise: a state is what has been read of a symbol so far, as its bits behind a leading one."""

    def __init__(self) -> None:
        codes = zip(REQUEST_CODES, REQUEST_CODES_LENGTH, strict=True)
        self._symbols = {
            (1 << length) | code: symbol for symbol, (code, length) in enumerate(codes)
        }
        self._steps: dict[int, list[tuple[bytes, int] | None]] = {}

    def decode(self, coded: bytes) -> bytes:
        state, text = 1, []
        for byte in coded:
            row = self._steps.get(state) or self._steps.setdefault(state, [None] * 256)
            emitted, state = row[byte] or self._step(row, state, byte)
            text.append(emitted)
        # What is left must be the beginning of the end-of-string symbol: less than eight ones.
        if state.bit_length() > 8 or state & (state + 1):
            raise HpackError("a Huffman code breaks off")
        return b"".join(text)

    def _step(
        self, row: list[tuple[bytes, int] | None], state: int, byte: int
    ) -> tuple[bytes, int]:
        emitted = bytearray()
        for place in range(7, -1, -1):
            state = (state << 1) | (byte >> place & 1)
            symbol = self._symbols.get(state)
            if symbol is not None:
                if symbol == _END_OF_STRING:
                    raise HpackError("a Huffman code holds the end of the string")
                emitted.append(symbol)
                state = 1
        row[byte] = step = bytes(emitted), state
        return step


_huffman = _Huffman()


class HpackDecoder:
    """Reads the blocks of one connection, in their order."""

    def __init__(self) -> None:
        self._dynamic: deque[HeaderField] = deque()
        self._size = 0
        self._most = _TABLE_SIZE
        self._remembered: dict[bytes, bytes] = {}

    def read(self, block: bytes) -> dict[bytes, bytes]:
        """The headers by name; of a name that comes twice, the last value."""
        found: dict[bytes, bytes] = {}
        place, end = 0, len(block)
        try:
            while place < end:
                first = block[place]
                if first & 0x80:
                    index, place = _integer(block, place, 0x7F)
                    name, value = self._entry(index)
                elif first & 0xE0 == 0x20:
                    size, place = _integer(block, place, 0x1F)
                    self._resize(size)
                    continue
                else:
                    name, value, place = self._literal(block, place, is_kept=bool(first & 0x40))
                found[name] = value
        except IndexError as error:
            raise HpackError(
                "a header block breaks off or names an entry that is not there"
            ) from error
        return found

    def _literal(self, block: bytes, place: int, *, is_kept: bool) -> tuple[bytes, bytes, int]:
        index, place = _integer(block, place, 0x3F if is_kept else 0x0F)
        if index:
            name = self._entry(index)[0]
        else:
            name, place = self._string(block, place)
        value, place = self._string(block, place)
        if is_kept:
            self._dynamic.appendleft((name, value))
            self._size += len(name) + len(value) + _ENTRY_OVERHEAD
            self._evict()
        return name, value, place

    def _string(self, block: bytes, place: int) -> tuple[bytes, int]:
        is_coded = block[place] & 0x80
        length, place = _integer(block, place, 0x7F)
        text, place = block[place : place + length], place + length
        if place > len(block):
            raise HpackError("a header block breaks off")
        if not is_coded:
            return text, place
        known = self._remembered.get(text)
        if known is None:
            known = _huffman.decode(text)
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[text] = known
        return known, place

    def _entry(self, index: int) -> HeaderField:
        if index == 0:
            raise HpackError("a header has the index 0")
        return (
            _STATIC[index - 1] if index <= len(_STATIC) else self._dynamic[index - len(_STATIC) - 1]
        )

    def _resize(self, size: int) -> None:
        if size > _TABLE_SIZE:
            raise HpackError("a header table grows beyond what was allowed")
        self._most = size
        self._evict()

    def _evict(self) -> None:
        while self._size > self._most:
            name, value = self._dynamic.pop()
            self._size -= len(name) + len(value) + _ENTRY_OVERHEAD


def _integer(block: bytes, place: int, mask: int) -> tuple[int, int]:
    value = block[place] & mask
    place += 1
    if value < mask:
        return value, place
    shift = 0
    while True:
        byte = block[place]
        place += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, place
        if shift > 28:
            raise HpackError("a number in a header block is too large")


_STATUSES: Final = {
    status: 8 + place for place, status in enumerate((200, 204, 206, 304, 400, 404, 500))
}


def encode_headers(status: int, headers: Iterable[HeaderField]) -> bytes:
    """A block for an answer: plain literals that leave the other side's table alone.

    Values have less than 127 bytes.
    """
    known = _STATUSES.get(status)
    start = bytes((0x80 | known,)) if known is not None else b"\x08\x03%d" % status
    return start + b"".join(
        b"\x00%c%b%c%b" % (len(name), name, len(value), value) for name, value in headers
    )
