"""How made-up callers reach a server that they are pointed at, what its answers mean to them, and how many there were.

An answer that may be another one later is `Unavailable` or `RateLimited`, a broken connection too;
a request that will never be taken as it stands is `Refused`.
"""

import asyncio
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.request import RequestBuilder
from pyreqwest.response import Response

from tally.errors import Invalid, RateLimited, TallyError, Unavailable
from tally.settings import Secret

LATENCIES: Final = 20_000

T = TypeVar("T")


class Refused(TallyError):
    """The server will not take this request, however often it is sent: a wrong key, a wrong body."""

    default_code = "refused"


@dataclass(slots=True)
class Calls:
    """What was asked, and how long the latest answers took."""

    requests: int = 0
    failures: int = 0
    last_trouble: str = ""
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))

    def quantile(self, share: float) -> float:
        """How long the given share of the latest answers took at most, in seconds; 0 before there are two."""
        if len(self.seconds) < 2:
            return 0.0
        return statistics.quantiles(self.seconds, n=1000, method="inclusive")[
            min(998, round(share * 1000) - 1)
        ]


async def sent(request: RequestBuilder) -> tuple[Response, bytes]:
    """The answer to a request, with its whole content."""
    try:
        response = await request.build().send()
        return response, bytes(await response.bytes())
    except PyreqwestError as error:
        if is_cancelled():
            # The client takes a cancellation at the wrong moment for a broken connection.
            raise asyncio.CancelledError from error
        raise Unavailable(f"The server cannot be reached: {type(error).__name__}") from error


def is_cancelled() -> bool:
    """Whether the running task has been told to end, even if a library has kept that to itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def decoded(content: bytes, kind: type[T]) -> T:
    """What a server answered when all went well."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(
            "The answer cannot be read: something else than the server may have given it"
        ) from error


def passing_trouble(status: int, headers: Mapping[str, str], message: str) -> TallyError | None:
    """What an answer means that is no success and may be another one later; None if it will stay as it is."""
    asked = headers.get("retry-after", "")
    wait = float(asked) if asked.isascii() and asked.isdigit() else None
    if status == 429:
        return RateLimited(message, retry_after=wait or 1.0)
    return Unavailable(message, retry_after=wait) if status == 408 or status >= 500 else None


def server_url(url: str) -> str:
    """The address of a server as it was given, without a slash at its end."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Invalid(f"{url} is no address of a server, such as http://127.0.0.1:8080")
    return url.rstrip("/")


def backend_url(url: str, backend: str) -> str:
    """The address of a backend of a server, whether or not its name was given too."""
    bare = server_url(url)
    return bare if urlsplit(url).path.rstrip("/").endswith(f"/{backend}") else f"{bare}/{backend}"


def secret_in(file: Path) -> Secret:
    """The secret that a file holds."""
    try:
        return Secret(file.read_text(encoding="utf-8").strip())
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}") from error
