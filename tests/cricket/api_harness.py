"""Starts the cricket server with simulated SportMonks, Cognito and APNs on one manual clock.

ana = ground.person("ana")
answer = await ana.post("/user/follow/65001", {"teamId": "5"})
await ground.play(match, deliveries=6)
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

ADMIN = "the-key-of-the-operators-of-cricket-0123"
# So late that no emulator takes what is stored for expired by its own clock.
START = datetime(2080, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Somebody with certain headers."""

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
        response = await request.build().send()
        answered = ApiResponse(
            response.status, dict(response.headers.items()), bytes(await response.bytes())
        )
        assert answered.headers["x-request-id"], "every answer has the id of its request"
        return answered

    async def get(self, path: str) -> ApiResponse:
        return await self.send("GET", path)

    async def found(self, path: str) -> Any:
        answer = await self.get(path)
        assert answer.status == 200, answer
        return answer.json

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
    """All of it."""

    url: str
    parts: Application
    clock: ManualClock
    sportmonks: SportMonksSimulator
    cognito: CognitoSimulator
    apns: ApnsSimulator
    client: Client

    @property
    def cricket(self) -> Cricket:
        backend = self.parts.backends["cricket"]
        assert isinstance(backend, Cricket)
        return backend

    def person(self, user_id: str) -> ApiClient:
        return ApiClient(
            self.client, self.url, {"Authorization": f"Bearer {self.cognito.user_token(user_id)}"}
        )

    def operator(self) -> ApiClient:
        return ApiClient(self.client, self.url, {"X-Admin-Key": ADMIN})

    def nobody(self) -> ApiClient:
        return ApiClient(self.client, self.url, {})

    async def sync(self) -> None:
        """Bring leagues, teams and fixtures in."""
        await self.cricket.services.sync.sync_leagues()
        await self.cricket.services.sync.sync_teams()
        await self.cricket.services.sync.sync_fixtures()
        self.pass_time(61)

    async def poll(self) -> None:
        """One look at the scores, and everybody has been told."""
        await self.cricket.live.poller.run()
        await self.cricket.live.workers.wait_idle()

    def pass_time(self, seconds: float) -> None:
        """Be so much later, without waking whoever sleeps on the way."""
        self.clock._elapsed += seconds

    def live_match(self, deliveries: int = 12) -> MatchPlayback:
        """A match that is well under way, moved by hand."""
        broadcast = self.sportmonks.add(bundled_match(), starting_at=self.clock.now())
        broadcast.deliver(deliveries)
        return broadcast


@functools.cache
def signing_keys() -> SigningKeys:
    """The same for all grounds of a process: it takes a while to find them."""
    return SigningKeys()


@asynccontextmanager
async def open_api_harness(folder: Path, **changes: Any) -> AsyncIterator[ApiHarness]:
    """A server that nobody else has, on SQLite unless the settings say otherwise; no job runs but by hand."""
    clock = ManualClock(START)
    async with AsyncExitStack() as stack:
        sportmonks = await stack.enter_async_context(SportMonksSimulator(clock).serving())
        cognito = await stack.enter_async_context(
            CognitoSimulator(clock, keys=signing_keys()).serving()
        )
        apns = await stack.enter_async_context(ApnsSimulator(clock).serving())
        settings = apns.configure(_settings(folder, sportmonks, cognito), folder / "authority.pem")
        parts = await stack.enter_async_context(
            open_application(replace(settings, **changes), clock)
        )
        url = await stack.enter_async_context(
            serving(build_app(replace(parts, jobs=())), on_stopping=parts.drain)
        )
        client = await stack.enter_async_context(
            ClientBuilder().no_proxy().follow_redirects(False).build()
        )
        yield ApiHarness(f"{url}/cricket", parts, clock, sportmonks, cognito, apns, client)


def _settings(folder: Path, sportmonks: SportMonksSimulator, cognito: CognitoSimulator) -> Settings:
    return Settings(
        data_dir=folder,
        backends=("cricket",),
        port=0,
        cricket_admin_key=Secret(ADMIN),
        cricket_issuer=cognito.issuer,
        cricket_client_id=cognito.client_id,
        cricket_sportmonks_url=sportmonks.api,
        cricket_sportmonks_token=Secret(sportmonks.api_token),
        cricket_marquee_leagues=str(bundled_match().league_id),
    )


class EventReader:
    """A client that speaks just enough HTTP to read a stream as it comes."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._text = ""

    async def event(self) -> dict[str, str]:
        """The next event: its lines by their names."""
        while "\n\n" not in self._text:
            size = int(await self._reader.readline(), 16)
            assert size, "the stream has ended"
            self._text += (await self._reader.readexactly(size + 2))[:-2].decode()
        lines, _, self._text = self._text.partition("\n\n")
        return dict(line.split(": ", 1) for line in lines.split("\n"))


@asynccontextmanager
async def watching(caller: ApiClient, path: str) -> AsyncIterator[EventReader]:
    """A stream that is open until the block ends."""
    parts = urlsplit(caller.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**22)
    told = "".join(f"{name}: {value}\r\n" for name, value in caller.headers.items())
    writer.write(f"GET {parts.path}{path} HTTP/1.1\r\nHost: x\r\n{told}\r\n".encode())
    answered = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert "HTTP/1.1 200 OK" in answered, answered
    assert "content-type: text/event-stream" in answered
    try:
        yield EventReader(reader)
    finally:
        writer.transport.abort()


def expect_error(answer: ApiResponse, status: int, code: str, *words: str) -> None:
    """The one shape that every error has."""
    assert answer.status == status, answer
    told = answer.json
    assert set(told) == {"error"}, told
    assert set(told["error"]) == {"code", "message"}, told
    assert told["error"]["code"] == code, told
    for word in words:
        assert word in told["error"]["message"], told
