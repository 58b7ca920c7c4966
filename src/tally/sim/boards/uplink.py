"""The board's network: registration and readings over HTTP, and what the server's answers mean to a board.

An answer that may be another one later is `Unavailable` or `RateLimited`, a broken connection too; a request that will never be
taken as it stands is `Refused`. `figures` count what all boards of a process did.
"""

import asyncio
import statistics
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError

from tally.errors import RateLimited, TallyError, Unavailable
from tally.kit.clock import Clock
from tally.settings import Secret

LATENCIES: Final = 20_000
TIMEOUT: Final = timedelta(seconds=30)

T = TypeVar("T")


class Refused(TallyError):
    """The server will not take this request, however often it is sent: a wrong key, a wrong body."""

    default_code = "refused"


class TooMuch(Refused):
    """The request was too large."""

    default_code = "too_much"


class Capabilities(msgspec.Struct, frozen=True):
    sensors: tuple[str, ...]
    features: dict[str, bool]


class Registration(msgspec.Struct, frozen=True):
    hardware_id: str
    boot_id: str
    firmware_version: str
    capabilities: Capabilities


class Confirmation(msgspec.Struct, frozen=True):
    confirmation_id: str
    status: str


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """One window's values. `boot_id` only where the board has been restarted since."""

    batch_id: str
    timestamp_ms: int
    sensors: dict[str, float]
    sensor_status: dict[str, str]
    boot_id: str | None = None


class Data(msgspec.Struct, frozen=True):
    hardware_id: str
    boot_id: str
    firmware_version: str
    readings: tuple[Reading, ...]


class Rejection(msgspec.Struct, frozen=True):
    index: int
    field: str
    why: str


class Receipt(msgspec.Struct, frozen=True):
    acknowledged_batch_ids: frozenset[str]
    duplicate_batch_ids: frozenset[str]
    rejected: tuple[Rejection, ...]


@dataclass(slots=True)
class Figures:
    """What was sent and what came of it."""

    requests: int = 0
    failures: int = 0
    sent: int = 0
    acknowledged: int = 0
    duplicates: int = 0
    rejected: int = 0
    last_trouble: str = ""
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))

    def quantile(self, share: float) -> float:
        """How long the given share of the latest answers took at most, in seconds; 0 before there are two."""
        if len(self.seconds) < 2:
            return 0.0
        return statistics.quantiles(self.seconds, n=1000, method="inclusive")[min(998, round(share * 1000) - 1)]


@dataclass(frozen=True, slots=True)
class Uplink:
    """The way to a server: `url` is that of its devices backend, such as http://127.0.0.1:8080/devices."""

    client: Client
    url: str
    api_key: Secret
    clock: Clock
    most_requests: int | None = None
    figures: Figures = field(default_factory=Figures)
    # Set when the last of `most_requests` has been sent.
    spent: asyncio.Event = field(default_factory=asyncio.Event)

    async def register(self, registration: Registration) -> Confirmation:
        return await self._post("/register", registration, Confirmation)

    async def send(self, data: Data) -> Receipt:
        receipt = await self._post("/data", data, Receipt)
        self.figures.acknowledged += len(receipt.acknowledged_batch_ids)
        self.figures.duplicates += len(receipt.duplicate_batch_ids)
        self.figures.rejected += len(receipt.rejected)
        return receipt

    async def _post(self, path: str, body: object, kind: type[T]) -> T:
        if self.spent.is_set():
            raise Unavailable("As many requests as were wanted have been sent")
        self.figures.requests += 1
        if self.figures.requests == self.most_requests:
            self.spent.set()
        if isinstance(body, Data):
            self.figures.sent += len(body.readings)
        started = self.clock.monotonic()
        try:
            answer = await self._answer(path, msgspec.json.encode(body), kind)
        except TallyError as error:
            self.figures.failures += 1
            self.figures.last_trouble = error.message
            raise
        self.figures.seconds.append(self.clock.monotonic() - started)
        return answer

    async def _answer(self, path: str, body: bytes, kind: type[T]) -> T:
        headers = {"X-API-Key": self.api_key.reveal(), "Content-Type": "application/json"}
        try:
            response = await self.client.post(self.url + path).headers(headers).body_bytes(body).build().send()
            content = bytes(await response.bytes())
        except PyreqwestError as error:
            if is_cancelled():
                # The client takes a cancellation at the wrong moment for a broken connection.
                raise asyncio.CancelledError from error
            raise Unavailable(f"The server cannot be reached: {type(error).__name__}") from error
        if response.status >= 300:
            raise _trouble(response.status, response.headers, content)
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable("The answer cannot be read: something else than the server may have given it") from error


def is_cancelled() -> bool:
    """Whether the running task has been told to end, even if a library has kept that to itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Told(msgspec.Struct, frozen=True):
    error: str = ""
    message: str = ""


def _trouble(status: int, headers: Any, content: bytes) -> TallyError:
    try:
        told = msgspec.json.decode(content, type=_Told)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = _Told()
    message = f"{status} {told.error} {told.message}".rstrip()
    asked = headers.get("retry-after", "")
    wait = float(asked) if asked.isascii() and asked.isdigit() else None
    if status == 429:
        return RateLimited(message, retry_after=wait or 1.0)
    if status == 408 or status >= 500:
        return Unavailable(message, retry_after=wait)
    return TooMuch(message) if status == 413 else Refused(message)
