"""A running server with its HTTP client, and boards that speak to it: what the tests of the API are written in.

answer = await site.post("/data", board.data(board.reading(3)), key=key)
expect_refused(answer, 401, "KEY_REVOKED")
"""

import asyncio
import itertools
import secrets
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
from pyreqwest.client import Client, ClientBuilder

from tally.app import Application, build_app, open_application
from tally.kit.clock import Clock, ManualClock
from tally.kit.server import serving
from tally.settings import Secret, Settings

Json: TypeAlias = dict[str, Any]

ADMIN = "the-token-of-the-operators-0123456789"
MINUTE_MS = 60_000
DAY_MS = 86_400_000
# Where the clock of a test stands at first: so late that no service takes what is stored for
# expired by its own clock.
START = datetime(2080, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp()) * 1000
# When the boards of the tests began to measure: lately enough to be kept, long enough ago for many
# readings.
FIRST_MS = START_MS - 30 * DAY_MS


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass(frozen=True, slots=True)
class Site:
    """A server and how to reach it; `clock` is the server's."""

    url: str
    parts: Application
    clock: ManualClock
    client: Client

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer to a request at a path of the backend."""
        request = self.client.request(method, f"{self.url}/devices{path}").headers(
            dict(headers or {})
        )
        response = await (request if body is None else request.body_bytes(body)).build().send()
        answered = Answer(
            response.status, dict(response.headers.items()), bytes(await response.bytes())
        )
        assert answered.headers["x-request-id"], "every answer has the id of its request"
        return answered

    async def post(
        self,
        path: str,
        content: object,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """What a board gets for a JSON body."""
        told = (
            {"Content-Type": "application/json"}
            | ({} if key is None else {"X-API-Key": key})
            | dict(headers or {})
        )
        return await self.send("POST", path, msgspec.json.encode(content), told)

    async def ask(
        self, path: str, method: str = "GET", content: object = None, token: str | None = ADMIN
    ) -> Answer:
        """What an operator gets."""
        told = {} if token is None else {"Authorization": f"Bearer {token}"}
        if content is None:
            return await self.send(method, path, None, told)
        return await self.send(
            method, path, msgspec.json.encode(content), told | {"Content-Type": "application/json"}
        )

    async def found(self, path: str) -> Any:
        """What an operator is shown, as JSON."""
        answer = await self.ask(path)
        assert answer.status == 200, answer
        assert answer.headers["content-type"] == "application/json"
        return answer.json

    async def new_key(self, description: str | None = None) -> str:
        """A fresh API key."""
        answer = await self.ask("/api-keys", "POST", {"description": description})
        assert answer.status == 201, answer
        return str(answer.json["api_key"])

    async def store(self, board: "Board", readings: Iterable[Json], key: str | None = None) -> None:
        """Send the readings, a hundred at a time; all must be new and good."""
        waiting, key = list(readings), key or await self.new_key()
        for start in range(0, len(waiting), 100):
            some = waiting[start : start + 100]
            answer = await self.post("/data", board.data(*some), key=key)
            assert answer.status == 200, answer
            assert answer.json["acknowledged_batch_ids"] == [
                reading["batch_id"] for reading in some
            ], answer

    async def patterns(self) -> dict[str, Json]:
        """The access patterns of the backend by name, with what they have cost the server so far."""
        response = await self.client.get(f"{self.url}/patterns").build().send()
        return {row["pattern"]: row for row in await response.json() if row["backend"] == "devices"}

    async def readings(self, board: "Board", query: str = "") -> list[Json]:
        """All readings of a board, over as many pages as there are."""
        path = f"/devices/{board.hardware_id}/readings?limit=1000{query}"
        page = await self.found(path)
        found: list[Json] = page["readings"]
        while page["next_cursor"] is not None:
            page = await self.found(f"{path}&cursor={page['next_cursor']}")
            found += page["readings"]
        return found


@asynccontextmanager
async def running(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Site]:
    """The program on a free port, with this backend alone, no jobs, and a clock that stands still until it is moved."""
    moved = clock if isinstance(clock, ManualClock) else ManualClock(START)
    async with (
        open_application(settings, clock or moved) as parts,
        serving(build_app(replace(parts, jobs=())), on_stopping=parts.drain) as url,
        ClientBuilder().no_proxy().build() as client,
    ):
        yield Site(url, parts, moved, client)


def settings_of(**changes: Any) -> Settings:
    """Settings with a known operator's token, and a rate that no test reaches by accident on a clock that stands still."""
    usual: Json = {
        "backends": ("devices",),
        "devices_admin_token": Secret(ADMIN),
        "devices_rate_limit": 1_000_000,
        "port": 0,
    }
    return Settings(**(usual | changes))


def new_hardware_id() -> str:
    return secrets.token_bytes(6).hex(":").upper()


@dataclass(frozen=True, slots=True)
class Board:
    """A board in the field: an address that nobody else has, and a boot."""

    hardware_id: str = field(default_factory=new_hardware_id)
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    firmware_version: str = "1.0.16"
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def registration(self, **changes: Any) -> Json:
        capabilities = {"sensors": ["bme280", "soil_moisture"], "features": {"tft_display": True}}
        return self._head() | {"capabilities": capabilities} | changes

    def reading(self, number: int | None = None, **changes: Any) -> Json:
        """What it measured in the minute of that number."""
        number = next(self.numbers) if number is None else number
        end = FIRST_MS + number * MINUTE_MS
        return {
            "batch_id": f"{self.hardware_id}_{self.boot_id}_{end - MINUTE_MS}_{end}",
            "timestamp_ms": end,
            "sensors": {"bme280_temp_c": 20 + number % 10 / 4, "humidity_pct": 45.25},
            "sensor_status": {"bme280": "ok"},
        } | changes

    def readings(self, count: int) -> list[Json]:
        return [self.reading(number) for number in range(count)]

    def data(self, *readings: object, **changes: Any) -> Json:
        return self._head() | {"readings": list(readings)} | changes

    def _head(self) -> Json:
        return {
            "hardware_id": self.hardware_id,
            "boot_id": self.boot_id,
            "firmware_version": self.firmware_version,
        }


def expect_refused(answer: Answer, status: int, code: str, *words: str) -> Json:
    """The one shape that every error has: a code for programs, a message for people, and nothing else."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/json"
    told: Json = answer.json
    assert set(told) == {"error", "message"}, told
    assert told["error"] == code, told
    assert isinstance(told["message"], str)
    assert told["message"]
    for word in words:
        assert word in told["message"], told
    return told


async def together(*waiting: Any) -> list[Any]:
    """The results of all, in their order; they run at the same time."""
    return list(await asyncio.gather(*waiting))
