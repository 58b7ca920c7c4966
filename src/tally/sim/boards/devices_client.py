"""The board's network: registration and readings over HTTP, and what the server's answers mean to a board.

`figures` count what all boards of a process did; `calling` tells which errors there are.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
from pyreqwest.client import Client

from tally.errors import TallyError, Unavailable
from tally.kit.clock import Clock
from tally.settings import Secret
from tally.sim.http_client import (
    CallStats,
    RequestRejected,
    decode_body,
    send_request,
    transient_error,
)

TIMEOUT: Final = timedelta(seconds=30)

T = TypeVar("T")


class BatchTooLarge(RequestRejected):
    """The request was too large."""

    default_code = "too_much"


class BoardCapabilities(msgspec.Struct, frozen=True):
    sensors: tuple[str, ...]
    features: dict[str, bool]


class BoardRegistration(msgspec.Struct, frozen=True):
    hardware_id: str
    boot_id: str
    firmware_version: str
    capabilities: BoardCapabilities


class BoardConfirmation(msgspec.Struct, frozen=True):
    confirmation_id: str
    status: str


class BoardReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """One window's values. `boot_id` only where the board has been restarted since."""

    batch_id: str
    timestamp_ms: int
    sensors: dict[str, float]
    sensor_status: dict[str, str]
    boot_id: str | None = None


class BoardBatch(msgspec.Struct, frozen=True):
    hardware_id: str
    boot_id: str
    firmware_version: str
    readings: tuple[BoardReading, ...]


class BoardRejection(msgspec.Struct, frozen=True):
    index: int
    field: str
    why: str


class BatchReceipt(msgspec.Struct, frozen=True):
    acknowledged_batch_ids: frozenset[str]
    duplicate_batch_ids: frozenset[str]
    rejected: tuple[BoardRejection, ...]


@dataclass(slots=True)
class BoardStats(CallStats):
    """What was sent and what came of it."""

    sent: int = 0
    acknowledged: int = 0
    duplicates: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class DevicesClient:
    """The way to a server: `url` is that of its devices backend, such as http://127.0.0.1:8080/devices."""

    client: Client
    url: str
    api_key: Secret
    clock: Clock
    most_requests: int | None = None
    stats: BoardStats = field(default_factory=BoardStats)
    # Set when the last of `most_requests` has been sent.
    spent: asyncio.Event = field(default_factory=asyncio.Event)

    async def register(self, registration: BoardRegistration) -> BoardConfirmation:
        return await self._post("/register", registration, BoardConfirmation)

    async def send(self, data: BoardBatch) -> BatchReceipt:
        receipt = await self._post("/data", data, BatchReceipt)
        self.stats.acknowledged += len(receipt.acknowledged_batch_ids)
        self.stats.duplicates += len(receipt.duplicate_batch_ids)
        self.stats.rejected += len(receipt.rejected)
        return receipt

    async def _post(self, path: str, body: object, kind: type[T]) -> T:
        if self.spent.is_set():
            raise Unavailable("As many requests as were wanted have been sent")
        self.stats.requests += 1
        if self.stats.requests == self.most_requests:
            self.spent.set()
        if isinstance(body, BoardBatch):
            self.stats.sent += len(body.readings)
        started = self.clock.monotonic()
        try:
            answer = await self._answer(path, msgspec.json.encode(body), kind)
        except TallyError as error:
            self.stats.failures += 1
            self.stats.last_error = error.message
            raise
        self.stats.latencies.append(self.clock.monotonic() - started)
        return answer

    async def _answer(self, path: str, body: bytes, kind: type[T]) -> T:
        headers = {"X-API-Key": self.api_key.reveal(), "Content-Type": "application/json"}
        response, content = await send_request(
            self.client.post(self.url + path).headers(headers).body_bytes(body)
        )
        if response.status >= 300:
            raise _trouble(response.status, response.headers, content)
        return decode_body(content, kind)


class _Told(msgspec.Struct, frozen=True):
    error: str = ""
    message: str = ""


def _trouble(status: int, headers: Mapping[str, str], content: bytes) -> TallyError:
    try:
        told = msgspec.json.decode(content, type=_Told)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = _Told()
    message = f"{status} {told.error} {told.message}".rstrip()
    lasting = BatchTooLarge if status == 413 else RequestRejected
    return transient_error(status, headers, message) or lasting(message)
