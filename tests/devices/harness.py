"""A running devices server with an HTTP client, and boards that send requests to it.

response = await server.post("/data", board.data(board.reading(3)), key=key)
expect_error(response, 401, "key_revoked")
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
from tally.devices.jobs import DELETION_SCHEDULE
from tally.devices.repository.rollups import ALL_BUILT, RollupRepository
from tally.devices.service.deletions import SETTLE_SECONDS
from tally.kit.clock import Clock, ManualClock
from tally.kit.server import serving
from tally.settings import Secret, Settings
from tally.store.dynamodb.engine import DynamoDBEngine
from tests.api_response import ApiResponse

Json: TypeAlias = dict[str, Any]

ADMIN = "the-token-of-the-operators-0123456789"
MINUTE_MS = 60_000
DAY_MS = 86_400_000
# The initial time of the test clock. In the far future, so that no external service expires items
# by its own clock.
START = datetime(2080, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp()) * 1000
# The first timestamp of test readings: within the retention, with room for many readings.
FIRST_MS = START_MS - 30 * DAY_MS


@dataclass(frozen=True, slots=True, repr=False)
class DevicesServer:
    """A server and its client. `clock` is the server's clock."""

    url: str
    application: Application
    clock: ManualClock
    client: Client

    def __repr__(self) -> str:
        return f"DevicesServer({self.url})"

    @property
    def has_stream_delay(self) -> bool:
        """Whether roll-ups include readings some time after they are acknowledged."""
        return isinstance(self.application.engine, DynamoDBEngine)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiResponse:
        """Send a request to a path of the backend."""
        request = self.client.request(method, f"{self.url}/devices{path}").headers(
            dict(headers or {})
        )
        if body is not None:
            request = request.body_bytes(body)
        return await ApiResponse.read(await request.build().send())

    async def post(
        self,
        path: str,
        content: object,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiResponse:
        """Send a JSON body as a board."""
        all_headers = (
            {"Content-Type": "application/json"}
            | ({} if key is None else {"X-API-Key": key})
            | dict(headers or {})
        )
        return await self.send("POST", path, msgspec.json.encode(content), all_headers)

    async def operator_request(
        self, path: str, method: str = "GET", content: object = None, token: str | None = ADMIN
    ) -> ApiResponse:
        """Send a request as an operator."""
        authorization = {} if token is None else {"Authorization": f"Bearer {token}"}
        if content is None:
            return await self.send(method, path, None, authorization)
        return await self.send(
            method,
            path,
            msgspec.json.encode(content),
            authorization | {"Content-Type": "application/json"},
        )

    async def get_json(self, path: str) -> Any:
        """Get JSON as an operator."""
        response = await self.operator_request(path)
        assert response.status == 200, response
        assert response.headers["content-type"] == "application/json"
        return response.json

    async def new_key(self, description: str | None = None) -> str:
        """Create an API key and return its raw form."""
        response = await self.operator_request("/api-keys", "POST", {"description": description})
        assert response.status == 201, response
        return str(response.json["api_key"])

    async def store_readings(
        self, board: "Board", readings: Iterable[Json], key: str | None = None
    ) -> None:
        """Send readings in requests of 100. All must be new and valid."""
        pending, key = list(readings), key or await self.new_key()
        for start in range(0, len(pending), 100):
            batch = pending[start : start + 100]
            response = await self.post("/data", board.data(*batch), key=key)
            assert response.status == 200, response
            assert response.json["acknowledged_batch_ids"] == [
                reading["batch_id"] for reading in batch
            ], response

    async def patterns(self) -> dict[str, Json]:
        """Return the counters of the backend's access patterns, by name."""
        response = await self.client.get(f"{self.url}/patterns").build().send()
        rows = (await response.json())["items"]
        return {row["pattern"]: row for row in rows if row["backend"] == "devices"}

    async def readings(self, board: "Board", query: str = "") -> list[Json]:
        """Return all readings of a board, over all pages."""
        path = f"/devices/{board.hardware_id}/readings?limit=1000{query}"
        page = await self.get_json(path)
        found: list[Json] = page["items"]
        while page["next_cursor"] is not None:
            page = await self.get_json(f"{path}&cursor={page['next_cursor']}")
            found += page["items"]
        return found


@asynccontextmanager
async def open_server(
    settings: Settings, clock: Clock | None = None
) -> AsyncIterator[DevicesServer]:
    """Start a server on a free port, without jobs, with a manual clock by default."""
    manual_clock = clock if isinstance(clock, ManualClock) else ManualClock(START)
    async with (
        open_application(settings, clock or manual_clock) as application,
        serving(build_app(replace(application, jobs=())), on_stopping=application.drain) as url,
        ClientBuilder().no_proxy().build() as client,
    ):
        yield DevicesServer(url, application, manual_clock, client)


def make_settings(**changes: Any) -> Settings:
    """Build settings with a known operator token and a rate limit that no test reaches."""
    defaults: Json = {
        "backends": ("devices",),
        "operator_token": Secret(ADMIN),
        "devices_rate_limit": 1_000_000,
        "port": 0,
    }
    return Settings(**(defaults | changes))


def new_hardware_id() -> str:
    return secrets.token_bytes(6).hex(":").upper()


@dataclass(frozen=True, slots=True)
class Board:
    """A board with a unique hardware id and a boot id."""

    hardware_id: str = field(default_factory=new_hardware_id)
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    firmware_version: str = "1.0.16"
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def registration(self, **changes: Any) -> Json:
        capabilities = {"sensors": ["bme280", "soil_moisture"], "features": {"tft_display": True}}
        return self._identity() | {"capabilities": capabilities} | changes

    def reading(self, number: int | None = None, **changes: Any) -> Json:
        """Return the reading of a minute, by its number."""
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
        return self._identity() | {"readings": list(readings)} | changes

    def _identity(self) -> Json:
        return {
            "hardware_id": self.hardware_id,
            "boot_id": self.boot_id,
            "firmware_version": self.firmware_version,
        }


async def wait_until_built(server: DevicesServer) -> None:
    """Wait until the roll-ups of all devices are built."""
    rollups = RollupRepository(server.application.store)
    async with asyncio.timeout(60):
        while not (state := await rollups.state()) or state.built_until != ALL_BUILT:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def finish_deletion(server: DevicesServer, deletion_id: str) -> Json:
    """Run the job until a deletion is done, and return it."""
    [job] = [job for job in server.application.jobs if job.name == DELETION_SCHEDULE.name]
    async with asyncio.timeout(60):
        while True:
            await job.run()
            deletion: Json = await server.get_json(f"/deletions/{deletion_id}")
            if deletion["status"] == "done":
                return deletion
            # DynamoDB does not tell when roll-ups are current.
            await server.clock.advance(SETTLE_SECONDS)


async def gather(*awaitables: Any) -> list[Any]:
    """Run awaitables concurrently and return their results in order."""
    return list(await asyncio.gather(*awaitables))
