"""A client for the devices API, shared by all boards of a fleet.

`stats` counts the requests of all boards; `tally.sim.http_client` defines the errors.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from pyreqwest.client import Client

from tally.errors import TallyError, Unavailable
from tally.kit.clock import Clock
from tally.settings import Secret
from tally.sim.http_client import (
    CallStats,
    ProblemDetail,
    ServerRejection,
    decode_body,
    send_request,
    transient_error,
)

T = TypeVar("T")


class BatchTooLarge(ServerRejection):
    """The server rejected the request as too large."""

    default_code = "batch_too_large"


class BoardCapabilities(msgspec.Struct, frozen=True):
    """Sensors and features of a board."""

    sensors: tuple[str, ...]
    features: dict[str, bool]


class BoardRegistration(msgspec.Struct, frozen=True):
    """The body of a registration."""

    hardware_id: str
    boot_id: str
    firmware_version: str
    capabilities: BoardCapabilities
    state_version: int = 0


class BoardState(msgspec.Struct, frozen=True):
    """A desired state for the board to apply."""

    version: int
    state: dict[str, Any]


class BoardConfirmation(msgspec.Struct, frozen=True):
    """The response to a registration."""

    confirmation_id: str
    status: str
    desired_state: BoardState | None = None


class BoardReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values of one window; `boot_id` is set if the board restarted since."""

    batch_id: str
    timestamp_ms: int
    sensors: dict[str, float]
    sensor_status: dict[str, str]
    boot_id: str | None = None


class BoardBatch(msgspec.Struct, frozen=True):
    """The body of a data upload."""

    hardware_id: str
    boot_id: str
    firmware_version: str
    readings: tuple[BoardReading, ...]
    state_version: int = 0


class BoardRejection(msgspec.Struct, frozen=True):
    """A rejected reading of a batch."""

    index: int
    field: str
    why: str


class BatchReceipt(msgspec.Struct, frozen=True):
    """The response to a data upload."""

    acknowledged_batch_ids: frozenset[str]
    duplicate_batch_ids: frozenset[str]
    rejected: tuple[BoardRejection, ...]
    desired_state: BoardState | None = None


@dataclass(slots=True)
class BoardStats(CallStats):
    """Counts of readings by outcome."""

    sent: int = 0
    acknowledged: int = 0
    duplicates: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class DevicesClient:
    """The devices backend at `url`, for example http://127.0.0.1:8080/devices."""

    client: Client
    url: str
    api_key: Secret
    clock: Clock
    max_requests: int | None = None
    stats: BoardStats = field(default_factory=BoardStats)
    # Set when `max_requests` requests were sent.
    exhausted: asyncio.Event = field(default_factory=asyncio.Event)

    async def register(self, registration: BoardRegistration) -> BoardConfirmation:
        return await self._post("/register", registration, BoardConfirmation)

    async def send(self, data: BoardBatch) -> BatchReceipt:
        receipt = await self._post("/data", data, BatchReceipt)
        self.stats.acknowledged += len(receipt.acknowledged_batch_ids)
        self.stats.duplicates += len(receipt.duplicate_batch_ids)
        self.stats.rejected += len(receipt.rejected)
        return receipt

    async def _post(self, path: str, body: object, kind: type[T]) -> T:
        if self.exhausted.is_set():
            raise Unavailable("The maximum number of requests was sent")
        self.stats.requests += 1
        if self.stats.requests == self.max_requests:
            self.exhausted.set()
        if isinstance(body, BoardBatch):
            self.stats.sent += len(body.readings)
        started = self.clock.monotonic()
        try:
            response = await self._request(path, msgspec.json.encode(body), kind)
        except TallyError as error:
            self.stats.failures += 1
            self.stats.last_error = error.message
            raise
        self.stats.latencies.append(self.clock.monotonic() - started)
        return response

    async def _request(self, path: str, body: bytes, kind: type[T]) -> T:
        headers = {"X-API-Key": self.api_key.reveal(), "Content-Type": "application/json"}
        response, content = await send_request(
            self.client.post(self.url + path).headers(headers).body_bytes(body)
        )
        if response.status >= 300:
            raise _error_for(response.status, response.headers, content)
        return decode_body(content, kind)


def _error_for(status: int, headers: Mapping[str, str], content: bytes) -> TallyError:
    message = ProblemDetail.decode(content).describe(status)
    permanent = BatchTooLarge if status == 413 else ServerRejection
    return transient_error(status, headers, message) or permanent(message)
