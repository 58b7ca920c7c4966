"""A devices server with webhooks, and a receiver that verifies them with `standardwebhooks`."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from pyreqwest.client import Client, ClientBuilder
from standardwebhooks.webhooks import Webhook as StandardWebhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tally.app import Application, build_app, open_application
from tally.kit.server import serving
from tally.settings import Secret, Settings
from tests.api_response import ApiResponse
from tests.devices.harness import Board

TOKEN = "automation-token-of-forty-characters-012"
WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Received:
    """One request that the receiver got, and the status of its response."""

    headers: Mapping[str, str]
    body: bytes
    status: int

    @property
    def content(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def batch_id(self) -> str:
        return str(self.content["data"]["batch_id"])

    def verify(self, secret: str) -> None:
        """Raise the error of the library unless the message has a signature with this secret."""
        StandardWebhook(secret).verify(self.body, dict(self.headers))


@dataclass
class Receiver:
    """Answers 200, or the next of `statuses` of the device, or `status` for all.

    While `gate` is closed, requests wait for their responses.
    """

    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    requests: list[Received] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def accepted(self) -> list[Received]:
        return [request for request in self.requests if request.status == 200]

    async def receive(self, request: Request) -> Response:
        body = await request.body()
        device = msgspec.json.decode(body)["data"]["hardware_id"]
        planned = self.statuses[device]
        status = planned.pop(0) if planned else self.status
        async with self._changed:
            self.requests.append(Received(dict(request.headers), body, status))
            self._changed.notify_all()
        await self.gate.wait()
        return Response(status_code=status, headers=self.headers)

    async def until_accepted(self, count: int) -> list[Received]:
        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.accepted) >= count)
        return self.accepted

    async def until_requests(self, count: int) -> list[Received]:
        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)
        return self.requests


@asynccontextmanager
async def serving_receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    receiver.gate.set()
    routes = [Route("/hook", receiver.receive, methods=["POST"])]
    async with serving(Starlette(routes=routes), grace=1) as url:
        receiver.url = f"{url}/hook"
        yield receiver


@dataclass(frozen=True, slots=True)
class WebhookServer:
    """A server, and requests of an operator and of boards to it."""

    url: str
    client: Client
    application: Application

    async def request(self, method: str, path: str, content: object = None) -> ApiResponse:
        request = self.client.request(method, f"{self.url}{path}").bearer_auth(TOKEN)
        if content is not None:
            request = request.body_json(content)
        return await ApiResponse.read(await request.build().send())

    async def register(self, url: str, **content: object) -> Any:
        """Register a webhook for readings and return the response."""
        body = {"url": url, "kinds": ["device.reading"], **content}
        response = await self.request("POST", "/admin/webhooks", body)
        assert response.status == 201, response
        return response.json

    async def send_readings(self, board: Board, *numbers: int) -> list[str]:
        """Store readings in this order and return their batch ids."""
        key = (await self.request("POST", "/devices/api-keys", {})).json["api_key"]
        sent = []
        for number in numbers:
            at = int(time.time()) * 1000 - 60_000 * (1000 - number)
            reading = board.reading(number, timestamp_ms=at)
            response = await ApiResponse.read(
                await self.client.post(f"{self.url}/devices/data")
                .header("X-API-Key", key)
                .body_json(board.data(reading))
                .build()
                .send()
            )
            assert response.json["acknowledged_batch_ids"] == [reading["batch_id"]], response
            sent.append(str(reading["batch_id"]))
        return sent

    async def deliveries(self, webhook_id: str, state: str) -> list[Any]:
        path = f"/admin/webhooks/{webhook_id}/deliveries?state={state}"
        response = await self.request("GET", path)
        assert response.status == 200, response
        return list(response.json["items"])

    async def until_deliveries(self, webhook_id: str, state: str, count: int) -> list[Any]:
        """Wait until so many deliveries have this state."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(found := await self.deliveries(webhook_id, state)) != count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return found


@asynccontextmanager
async def serving_webhooks(settings: Settings) -> AsyncIterator[WebhookServer]:
    """Serve the devices backend, whose operator is `automation`."""
    async with (
        open_application(settings) as application,
        serving(build_app(replace(application, jobs=())), on_stopping=application.drain) as url,
        ClientBuilder().no_proxy().build() as client,
    ):
        yield WebhookServer(url, client, application)


def webhook_settings(directory: Path, **changes: Any) -> Settings:
    settings: dict[str, Any] = {
        "data_dir": directory,
        "backends": ("devices",),
        "operator_token": Secret(TOKEN),
        "webhooks_private_addresses": True,
        **changes,
    }
    return Settings(**settings)
