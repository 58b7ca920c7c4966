"""A fake cricket API and an APNs simulator, for tests of a single phone."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pyreqwest.client import Client, ClientBuilder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tally.cricket.model import payloads
from tally.kit.clock import ManualClock
from tally.kit.retry import RetryPolicy
from tally.kit.server import serving
from tally.sim.apns.devices import PushDelivery
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.fault_injection import FaultInjector, simulator_app
from tally.sim.phones.activitykit import PhoneActivity
from tally.sim.phones.cricket_client import CricketClient
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import LocalPushService
from tally.sim.phones.tokens import UserDefaults

ALERT = payloads.Alert("Live now", "India v Australia")
# Retries without a delay, because the manual clock stands still.
IMMEDIATE_RETRIES = RetryPolicy(attempts=3, base=0.0, cap=0.0, deadline=100)


@dataclass
class FakeCricketApi:
    """The server: live matches, follows and every call received."""

    faults: FaultInjector = field(default_factory=FaultInjector)
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    follows: dict[str, str | None] = field(default_factory=dict)
    # Matches with ended activities.
    ended: set[str] = field(default_factory=set)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for_calls(self, count: int, name: str) -> None:
        """Wait for `count` calls of a name."""
        async with asyncio.timeout(60):
            while len(self.calls_of(name)) < count:
                self.changed.clear()
                await self.changed.wait()

    def record(self, name: str, body: dict[str, Any]) -> None:
        self.calls.append((name, body))
        self.changed.set()

    def calls_of(self, name: str) -> list[dict[str, Any]]:
        """The bodies of the calls of a name, oldest first."""
        return [body for called, body in self.calls if called == name]

    def routes(self) -> list[Route]:
        return [
            Route("/cricket/user/device", self.recording("device"), methods=["POST"]),
            Route(
                "/cricket/user/device/push-to-start", self.recording("start token"), methods=["PUT"]
            ),
            Route("/cricket/user/follow/match", self.follow, methods=["POST"]),
            Route("/cricket/user/follow/match", self.unfollow, methods=["DELETE"]),
            Route("/cricket/user/follows", self.list_follows),
            Route("/cricket/matches/live", self.list_live),
            Route("/cricket/matches/{match}/activity-token", self.activity, methods=["POST"]),
            Route("/cricket/matches/{match}/activity-started", self.started, methods=["POST"]),
            Route("/cricket/matches/{match}/activity-ended", self.missing, methods=["POST"]),
            Route("/cricket/matches/{match}/activity-dismissed", self.dismissed, methods=["POST"]),
        ]

    def recording(self, name: str) -> Any:
        async def endpoint(request: Request) -> Response:
            self.record(name, await request.json())
            return JSONResponse({})

        return endpoint

    async def follow(self, request: Request) -> Response:
        body = await request.json()
        self.record("follow", body)
        match = body["matchId"]
        self.follows[match] = body["teamId"]
        return JSONResponse(
            {"matchId": match, "teamId": body["teamId"], "display": self.live.get(match)}
        )

    async def unfollow(self, request: Request) -> Response:
        match = request.query_params["matchId"]
        self.record("unfollow", {"matchId": match})
        self.follows.pop(match, None)
        return Response(status_code=204)

    async def list_follows(self, request: Request) -> Response:
        if request.query_params.get("cursor"):
            return JSONResponse({"items": [], "nextCursor": None})
        follows_page = [{"matchId": match, "teamId": team} for match, team in self.follows.items()]
        return JSONResponse({"items": follows_page, "nextCursor": "more"})

    async def list_live(self, _: Request) -> Response:
        return JSONResponse(
            {"items": [{"matchId": match} for match in self.live], "nextCursor": None}
        )

    async def activity(self, request: Request) -> Response:
        match = request.path_params["match"]
        if match in self.ended:
            return JSONResponse(
                {"code": "activity_ended", "detail": "This Live Activity has ended"}, 409
            )
        self.record("update token", {"matchId": match, **await request.json()})
        return JSONResponse({})

    async def started(self, request: Request) -> Response:
        match = request.path_params["match"]
        if match in self.ended:
            return JSONResponse(
                {"code": "activity_ended", "detail": "This Live Activity has ended"}, 409
            )
        self.record("started", {"matchId": match, **await request.json()})
        return JSONResponse({})

    async def missing(self, request: Request) -> Response:
        match = request.path_params["match"]
        self.record("ended", {"matchId": match, **await request.json()})
        return Response(status_code=204)

    async def dismissed(self, request: Request) -> Response:
        match = request.path_params["match"]
        self.record("dismissed", {"matchId": match, **await request.json()})
        self.follows.pop(match, None)
        return Response(status_code=204)


@dataclass
class PhoneHarness:
    """The servers around a phone."""

    cricket_api: FakeCricketApi
    apns: ApnsSimulator
    clock: ManualClock
    client: Client

    def phone(
        self,
        name: str = "phone-1",
        *,
        os_version: str = "17.4",
        defaults: UserDefaults | None = None,
    ) -> VirtualPhone:
        async def token() -> str:
            return f"token of {name}"

        api = CricketClient(self.client, f"{self.cricket_api.url}/cricket", token)
        return VirtualPhone(
            name,
            api,
            LocalPushService(self.apns.devices),
            self.clock,
            os_version,
            defaults or UserDefaults(),
            retry_policy=IMMEDIATE_RETRIES,
        )

    async def start(
        self,
        phone: VirtualPhone,
        match: str = "7",
        *,
        channel: str | None = None,
        team: str = "neutral",
    ) -> PhoneActivity:
        """Send a push-to-start and wait for the app."""
        payload = payloads.start_payload(
            timestamp=self.clock.seconds(),
            content={"number": 0},
            attributes_type="CricketMatchAttributes",
            attributes={"matchId": match, "teamId": team, "title": "India v Australia"},
            alert=ALERT,
            channel_id=channel,
            stale_at=self.clock.seconds() + 1800,
        )
        await phone.receive(
            PushDelivery(
                phone.device_id,
                payload.decode(),
                "liveactivity",
                10,
                token=phone.activity_kit.start_token,
            )
        )
        await phone.wait_idle()
        return list(phone.activity_kit.activities.values())[-1]

    async def update(
        self,
        phone: VirtualPhone,
        activity: PhoneActivity,
        number: int,
        *,
        at: int | None = None,
        **more: Any,
    ) -> None:
        """Push an update to an activity."""
        timestamp = self.clock.seconds() if at is None else at
        await self.send(
            phone,
            activity,
            payloads.update_payload(timestamp=timestamp, content={"number": number}, **more),
        )

    async def send(self, phone: VirtualPhone, activity: PhoneActivity, payload: bytes) -> None:
        target: Mapping[str, Any] = (
            {"token": activity.token} if activity.channel is None else {"channel": activity.channel}
        )
        await phone.receive(
            PushDelivery(phone.device_id, payload.decode(), "liveactivity", 5, **target)
        )
        await phone.wait_idle()


@asynccontextmanager
async def run_phone_harness() -> AsyncIterator[PhoneHarness]:
    clock, cricket_api = ManualClock(), FakeCricketApi()
    app = simulator_app("cricket", cricket_api.routes(), cricket_api.faults, clock)
    async with (
        ApnsSimulator(clock).serving() as apns,
        serving(app) as url,
        ClientBuilder().build() as client,
    ):
        cricket_api.url = url
        yield PhoneHarness(cricket_api, apns, clock, client)


def to_json(value: object) -> str:
    """Encode as JSON text."""
    return msgspec.json.encode(value).decode()


def shown_numbers(activity: PhoneActivity) -> list[int]:
    """The numbers shown on the activity, in order."""
    return [json.loads(to_json(content))["number"] for content in activity.contents]
