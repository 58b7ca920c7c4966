"""ThreadedPasswordHasher: hashed with Argon2id in threads of their own, a few at a time, and checked in the same time for everyone.

A hash takes some tens of milliseconds and 19 MiB on purpose. So only as many are made at once as
there are threads, and only so many may wait: beyond that, signing in is refused for a moment, and
all else goes on.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from tally.errors import Unavailable

T = TypeVar("T")

THREADS: Final = 2
MAX_WAITING: Final = 100


class ThreadedPasswordHasher:
    """Hashes passwords and checks them, for as long as it is open."""

    def __init__(self) -> None:
        # What OWASP advises: enough for a graphics card to be no better at it, little enough for a
        # small server.
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
        self._threads = ThreadPoolExecutor(THREADS, "passwords")
        self._waiting = 0
        # Of a password that nobody has: what is checked where there is no account.
        self._nobodys = self._hasher.hash(b"\xff\xfe")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def hash(self, password: str) -> str:
        """What to keep of the password."""
        return await self._apart(lambda: self._hasher.hash(password))

    async def verify(self, password: str, password_hash: str | None) -> bool:
        """Whether it is the password; where there is no account (None) this takes as long, and the answer is no."""
        found = await self._apart(lambda: self._verify(password_hash or self._nobodys, password))
        return found and password_hash is not None

    def needs_rehash(self, password_hash: str) -> bool:
        """Whether the hash was made with other parameters than those of today."""
        return self._hasher.check_needs_rehash(password_hash)

    def _verify(self, password_hash: str, password: str) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _apart(self, work: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise Unavailable("Too many are signing in at this moment", retry_after=1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1
