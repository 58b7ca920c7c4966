"""Password hashing with Argon2id, and estimates of strength, in a small thread pool.

A hash takes tens of milliseconds and 19 MiB by design. The number of threads bounds the memory, and
a bounded queue rejects logins under overload so that other requests are not affected.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from zxcvbn import zxcvbn

from tally.errors import Invalid, Unavailable

T = TypeVar("T")

THREADS: Final = 2
MAX_PENDING: Final = 100
# zxcvbn's limit for passwords that are guessable online. Its lists contain the 30,000 most common
# passwords; it also recognises words, names, keyboard patterns, repetitions and dates.
MIN_GUESSES: Final = 10**6
# The time of an estimate grows with the square of the length.
MAX_ESTIMATED_LENGTH: Final = 72


class ThreadedPasswordHasher:
    """Hashes and verifies passwords; an async context manager that owns its threads."""

    def __init__(self) -> None:
        # The parameters that OWASP recommends for Argon2id with 19 MiB.
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
        self._threads = ThreadPoolExecutor(THREADS, "passwords")
        self._pending = 0
        # Verified when the account does not exist, so that both cases take the same time. No
        # password matches it: the bytes are not valid UTF-8.
        self._dummy_hash = self._hasher.hash(b"\xff\xfe")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def hash(self, password: str) -> str:
        """Return the hash to store."""
        return await self._run(lambda: self._hasher.hash(password))

    async def verify(self, password: str, password_hash: str | None) -> bool:
        """Return whether the password matches.

        None means that there is no account: false, after the same time.
        """
        matches = await self._run(
            lambda: self._matches(password_hash or self._dummy_hash, password)
        )
        return matches and password_hash is not None

    async def check_strength(self, password: str, username: str, field: str = "password") -> None:
        """Raise Invalid for a password that contains the username or is easy to guess."""
        if username.lower() in password.lower():
            raise Invalid(
                f"{field} must not contain the username", code="weak_password", field=field
            )
        estimate = await self._run(lambda: zxcvbn(password[:MAX_ESTIMATED_LENGTH], [username]))
        if estimate["guesses"] < MIN_GUESSES:
            raise Invalid(
                f"{field} is common or easy to guess; use several uncommon words",
                code="weak_password",
                field=field,
            )

    def needs_rehash(self, password_hash: str) -> bool:
        """Return whether the hash uses other parameters than the current ones."""
        return self._hasher.check_needs_rehash(password_hash)

    def _matches(self, password_hash: str, password: str) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _run(self, work: Callable[[], T]) -> T:
        if self._pending >= MAX_PENDING:
            raise Unavailable("Too many login requests are in progress", retry_after=1)
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._pending -= 1
