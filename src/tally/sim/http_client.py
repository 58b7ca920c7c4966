"""HTTP helpers of the virtual clients: sending, decoding, error classification and statistics.

Transient errors raise `Unavailable` or `RateLimited`; a request that the server will never accept
raises `ServerRejection`.
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

MAX_LATENCIES: Final = 20_000

T = TypeVar("T")


class ServerRejection(TallyError):
    """The server rejects this request and retrying does not help: a wrong key, an invalid body."""

    default_code = "refused"


@dataclass(slots=True)
class CallStats:
    """Counts of requests and failures, and the latencies of recent responses in seconds."""

    requests: int = 0
    failures: int = 0
    last_error: str = ""
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_LATENCIES))

    def quantile(self, share: float) -> float:
        """A latency quantile in seconds; 0 with fewer than two samples."""
        if len(self.latencies) < 2:
            return 0.0
        return statistics.quantiles(self.latencies, n=1000, method="inclusive")[
            min(998, round(share * 1000) - 1)
        ]

    @property
    def latency_text(self) -> str:
        """Median and 99th percentile for the display."""
        p50, p99 = self.quantile(0.5) * 1000, self.quantile(0.99) * 1000
        return f"p50 {p50:,.1f} ms, p99 {p99:,.1f} ms"


async def send_request(request: RequestBuilder) -> tuple[Response, bytes]:
    """Send a request and read the whole response body."""
    try:
        response = await request.build().send()
        return response, bytes(await response.bytes())
    except PyreqwestError as error:
        if is_cancelled():
            # pyreqwest may report a cancellation as a connection error.
            raise asyncio.CancelledError from error
        raise Unavailable(f"Cannot reach the server: {type(error).__name__}") from error


def is_cancelled() -> bool:
    """Whether the current task was cancelled, even if a library swallowed the cancellation."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def decode_body(content: bytes, kind: type[T]) -> T:
    """Decode the body of a successful response."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable("Invalid response body; a proxy may have sent it") from error


def transient_error(status: int, headers: Mapping[str, str], message: str) -> TallyError | None:
    """The error for a response that may succeed on retry; None for a permanent failure."""
    retry_after = headers.get("retry-after", "")
    wait = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    if status == 429:
        return RateLimited(message, retry_after=wait or 1.0)
    return Unavailable(message, retry_after=wait) if status == 408 or status >= 500 else None


class ProblemDetail(msgspec.Struct, frozen=True):
    """The part of an error response that clients use; empty if a proxy sent something else."""

    code: str = ""
    detail: str = ""

    @classmethod
    def decode(cls, content: bytes) -> "ProblemDetail":
        try:
            return msgspec.json.decode(content, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return cls()

    def describe(self, status: int) -> str:
        return f"{status} {self.code} {self.detail}".rstrip()


def normalize_server_url(url: str) -> str:
    """Validate a server URL and remove its trailing slash."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Invalid(f"{url} is not a server URL, for example http://127.0.0.1:8080")
    return url.rstrip("/")


def backend_url(url: str, backend: str) -> str:
    """The URL of a backend, given the server's URL or the backend's."""
    base = normalize_server_url(url)
    return base if urlsplit(url).path.rstrip("/").endswith(f"/{backend}") else f"{base}/{backend}"


def read_secret(file: Path) -> Secret:
    """Read a secret from a file."""
    try:
        return Secret(file.read_text(encoding="utf-8").strip())
    except OSError as error:
        raise Invalid(f"Cannot read {file}: {error.strerror}") from error
