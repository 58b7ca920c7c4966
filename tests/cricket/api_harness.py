"""Starts the cricket server with simulated SportMonks, Cognito and APNs on one manual clock.

ana = server.user("ana")
response = await ana.post("/user/follow/65001", {"teamId": "5"})
match.deliver(6)
await server.poll()
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from pyreqwest.client import Client, ClientBuilder

from tally.app import Application, build_app, open_application
from tally.cricket.wiring.backend import Cricket
from tally.kit.clock import ManualClock
from tally.kit.server import serving
from tally.settings import Secret, Settings
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.oidc.keys import SigningKeys
from tally.sim.sportmonks.cricsheet import bundled_match
from tally.sim.sportmonks.playback import MatchPlayback
from tally.sim.sportmonks.simulator import SportMonksSimulator
from tests.api_response import ApiResponse
from tests.cricket.tables import TABLES
from tests.store.emulators import new_tables, service_url

ADMIN = "the-key-of-the-operators-of-cricket-0123"
# In the far future, so that emulators do not delete items by their own clock.
START = datetime(2080, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Sends requests with fixed headers."""

    client: Client
    url: str
    headers: Mapping[str, str]

    async def send(
        self, method: str, path: str, content: object = None, **headers: str
    ) -> ApiResponse:
        request = self.client.request(method, self.url + path).headers({**self.headers, **headers})
        if content is not None:
            body = content if isinstance(content, bytes) else msgspec.json.encode(content)
            request = request.header("Content-Type", "application/json").body_bytes(body)
        return await ApiResponse.read(await request.build().send())

    async def get(self, path: str) -> ApiResponse:
        return await self.send("GET", path)

    async def get_json(self, path: str) -> Any:
        response = await self.get(path)
        assert response.status == 200, response
        return response.json

    async def post(self, path: str, content: object) -> ApiResponse:
        return await self.send("POST", path, content)

    async def put(self, path: str, content: object) -> ApiResponse:
        return await self.send("PUT", path, content)

    async def patch(self, path: str, content: object) -> ApiResponse:
        return await self.send("PATCH", path, content)

    async def delete(self, path: str) -> ApiResponse:
        return await self.send("DELETE", path)


@dataclass(frozen=True, slots=True)
class ApiHarness:
    """The server, its simulators and the clock."""

    url: str
    application: Application
    clock: ManualClock
    sportmonks: SportMonksSimulator
    cognito: CognitoSimulator
    apns: ApnsSimulator
    client: Client

    @property
    def cricket(self) -> Cricket:
        backend = self.application.backends["cricket"]
        assert isinstance(backend, Cricket)
        return backend

    def user(self, user_id: str) -> ApiClient:
        return ApiClient(
            self.client, self.url, {"Authorization": f"Bearer {self.cognito.user_token(user_id)}"}
        )

    def admin(self) -> ApiClient:
        return ApiClient(self.client, self.url, {"Authorization": f"Bearer {ADMIN}"})

    def anonymous(self) -> ApiClient:
        return ApiClient(self.client, self.url, {})

    async def sync(self) -> None:
        """Sync leagues, teams and fixtures."""
        await self.cricket.services.sync.sync_leagues()
        await self.cricket.services.sync.sync_teams()
        await self.cricket.services.sync.sync_fixtures()
        self.skip_time(61)

    async def poll(self) -> None:
        """Poll the scores once and wait for all deliveries."""
        await self.cricket.live.poller.run()
        await self.cricket.live.workers.wait_idle()

    def skip_time(self, seconds: float) -> None:
        """Advance the clock without waking sleeping tasks."""
        self.clock._elapsed += seconds

    def live_match(self, deliveries: int = 12) -> MatchPlayback:
        """Start a live match that tests advance."""
        broadcast = self.sportmonks.add(bundled_match(), starting_at=self.clock.now())
        broadcast.deliver(deliveries)
        return broadcast


@functools.cache
def signing_keys() -> SigningKeys:
    """Generate keys once per process, because that is slow."""
    return SigningKeys()


@asynccontextmanager
async def open_api_harness_on(engine: str, folder: Path) -> AsyncIterator[ApiHarness]:
    """Start a server on the engine that `engines` names, with empty tables."""
    with service_url(engine) as url:
        changes = {} if url is None else await new_tables(url, TABLES)
        async with open_api_harness(folder, **changes) as opened:
            yield opened


@asynccontextmanager
async def open_api_harness(folder: Path, **changes: Any) -> AsyncIterator[ApiHarness]:
    """Start a server on SQLite unless `changes` says otherwise; tests run the jobs."""
    clock = ManualClock(START)
    async with AsyncExitStack() as stack:
        sportmonks = await stack.enter_async_context(SportMonksSimulator(clock).serving())
        cognito = await stack.enter_async_context(
            CognitoSimulator(clock, keys=signing_keys()).serving()
        )
        apns = await stack.enter_async_context(ApnsSimulator(clock).serving())
        settings = apns.configure(_settings(folder, sportmonks, cognito), folder / "authority.pem")
        application = await stack.enter_async_context(
            open_application(replace(settings, **changes), clock)
        )
        url = await stack.enter_async_context(
            serving(build_app(replace(application, jobs=())), on_stopping=application.drain)
        )
        client = await stack.enter_async_context(
            ClientBuilder().no_proxy().follow_redirects(False).build()
        )
        yield ApiHarness(f"{url}/cricket", application, clock, sportmonks, cognito, apns, client)


def _settings(folder: Path, sportmonks: SportMonksSimulator, cognito: CognitoSimulator) -> Settings:
    return Settings(
        data_dir=folder,
        backends=("cricket",),
        port=0,
        operator_token=Secret(ADMIN),
        cricket_issuer=cognito.issuer,
        cricket_client_id=cognito.client_id,
        cricket_sportmonks_url=sportmonks.api,
        cricket_sportmonks_token=Secret(sportmonks.api_token),
        cricket_marquee_leagues=str(bundled_match().league_id),
    )


class EventReader:
    """Reads an SSE stream from a socket."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._text = ""

    async def event(self) -> dict[str, str]:
        """Return the fields of the next event."""
        while "\n\n" not in self._text:
            size = int(await self._reader.readline(), 16)
            assert size, "the stream has ended"
            self._text += (await self._reader.readexactly(size + 2))[:-2].decode()
        lines, _, self._text = self._text.partition("\n\n")
        return dict(line.split(": ", 1) for line in lines.split("\n"))


@asynccontextmanager
async def open_stream(client: ApiClient, path: str) -> AsyncIterator[EventReader]:
    """Open an SSE stream for the block."""
    parts = urlsplit(client.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**22)
    headers = "".join(f"{name}: {value}\r\n" for name, value in client.headers.items())
    writer.write(f"GET {parts.path}{path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    response = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert "HTTP/1.1 200 OK" in response, response
    assert "content-type: text/event-stream" in response
    try:
        yield EventReader(reader)
    finally:
        writer.transport.abort()
