"""Generates request ids as the service sends them: 52 random letters and digits."""

import os
from typing import Final

_LENGTH: Final = 52
_BLOCK: Final = 64
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" * 8


class RequestIds:
    """Draws the ids in blocks, because a system call per request costs more than the id."""

    def __init__(self) -> None:
        self._block = b""
        self._position = 0

    def next(self) -> bytes:
        """Return a new id."""
        if self._position == len(self._block):
            self._block = os.urandom(_LENGTH * _BLOCK).translate(_LETTERS)
            self._position = 0
        start = self._position
        self._position = start + _LENGTH
        return self._block[start : self._position]
