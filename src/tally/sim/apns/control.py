"""The control port of the push service's simulator, plain HTTP: for whoever drives it, and for virtual devices elsewhere.

GET    /_sim/state                          sums, connections, faults to come
GET    /_sim/log?target=                    the latest requests; DELETE forgets them
POST   /_sim/rules                          {"remembers": true, "takes_any_token": false}
POST   /_sim/faults                         a fault; DELETE clears all
PUT    /_sim/devices/{device}               {"mailbox": "my phones"}: make it known
POST   /_sim/devices/{device}/tokens        {"kind": "device" | "start" | "update"}: a new token
DELETE /_sim/tokens/{token}                 410 Unregistered from now on
PUT    /_sim/devices/{device}/channels      {"channel": …}: listen to it; DELETE stops that
PUT    /_sim/devices/{device}/network       {"is_online": false}
GET /_sim/mailboxes/{name} deliveries as they come, one JSON object a line, for as long as you read
DELETE /_sim/mailboxes/{name} its devices are gone
"""

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route, Router

from tally.kit.http import ErrorFormat, ErrorMiddleware, Json
from tally.sim.apns.channels import ChannelRegistry
from tally.sim.apns.devices import DeviceRegistry, Mailbox, TokenKind
from tally.sim.apns.faults import PushFault, PushFaultInjector
from tally.sim.apns.request_log import RequestLog
from tally.sim.request_parsing import read_json_body

NO_CONTENT: Final = Response(status_code=204)
_encoder: Final = msgspec.json.Encoder()


class _ControlBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body of the control API."""


class DeviceMailbox(_ControlBody, frozen=True):
    mailbox: str


class IssueToken(_ControlBody, frozen=True):
    kind: TokenKind


class ChannelSubscription(_ControlBody, frozen=True):
    channel: str


class Connectivity(_ControlBody, frozen=True):
    is_online: bool


class SimulatorRules(_ControlBody, frozen=True):
    remembers: bool | None = None
    takes_any_token: bool | None = None


@dataclass(frozen=True, slots=True)
class ApnsControl:
    devices: DeviceRegistry
    channels: ChannelRegistry
    faults: PushFaultInjector
    record: RequestLog

    def app(self) -> Starlette:
        router = Router(self.routes(), redirect_slashes=False)
        return Starlette(routes=[Mount("/", ErrorMiddleware(router, ErrorFormat(), "sim-apns"))])

    def routes(self) -> list[Route]:
        return [
            Route("/_sim/state", self.state),
            Route("/_sim/log", self.log),
            Route("/_sim/log", self.forget, methods=["DELETE"]),
            Route("/_sim/rules", self.set_rules, methods=["POST"]),
            Route("/_sim/faults", self.add_fault, methods=["POST"]),
            Route("/_sim/faults", self.clear_faults, methods=["DELETE"]),
            Route("/_sim/devices/{device}", self.register, methods=["PUT"]),
            Route("/_sim/devices/{device}/tokens", self.issue, methods=["POST"]),
            Route("/_sim/tokens/{token}", self.retire, methods=["DELETE"]),
            Route("/_sim/devices/{device}/channels", self.listen, methods=["PUT"]),
            Route("/_sim/devices/{device}/channels", self.stop_listening, methods=["DELETE"]),
            Route("/_sim/devices/{device}/network", self.set_network, methods=["PUT"]),
            Route("/_sim/mailboxes/{name}", self.deliveries),
            Route("/_sim/mailboxes/{name}", self.forget_mailbox, methods=["DELETE"]),
        ]

    async def state(self, _: Request) -> Response:
        answers = [
            {"status": status, "reason": reason, "count": n}
            for (status, reason), n in self.record.answers.items()
        ]
        return Json(
            {
                "accepted": self.record.accepted,
                "answers": answers,
                "connections": self.record.connections,
                "devices": len(self.devices.known),
                "tokens": len(self.devices.tokens),
                "channels": len(self.channels.known),
                "faults": self.faults.pending,
            }
        )

    async def log(self, request: Request) -> Response:
        target = request.query_params.get("target")
        seen = self.record.seen if target is None else self.record.of(target)
        return Json([_shown(msgspec.structs.asdict(each)) for each in seen])

    async def forget(self, _: Request) -> Response:
        self.record.clear()
        return NO_CONTENT

    async def set_rules(self, request: Request) -> Response:
        rules = await read_json_body(request, SimulatorRules)
        if rules.remembers is not None:
            self.record.remembers = rules.remembers
        if rules.takes_any_token is not None:
            self.devices.takes_any_token = rules.takes_any_token
        return NO_CONTENT

    async def add_fault(self, request: Request) -> Response:
        self.faults.add(await read_json_body(request, PushFault))
        return NO_CONTENT

    async def clear_faults(self, _: Request) -> Response:
        self.faults.clear()
        return NO_CONTENT

    async def register(self, request: Request) -> Response:
        wanted = await read_json_body(request, DeviceMailbox)
        self.devices.register(request.path_params["device"], wanted.mailbox)
        return NO_CONTENT

    async def issue(self, request: Request) -> Response:
        wanted = await read_json_body(request, IssueToken)
        return Json({"token": self.devices.issue(request.path_params["device"], wanted.kind)}, 201)

    async def retire(self, request: Request) -> Response:
        self.devices.retire(request.path_params["token"])
        return NO_CONTENT

    async def listen(self, request: Request) -> Response:
        self.devices.listen(
            request.path_params["device"],
            (await read_json_body(request, ChannelSubscription)).channel,
        )
        return NO_CONTENT

    async def stop_listening(self, request: Request) -> Response:
        self.devices.stop_listening(
            request.path_params["device"],
            (await read_json_body(request, ChannelSubscription)).channel,
        )
        return NO_CONTENT

    async def set_network(self, request: Request) -> Response:
        wanted = await read_json_body(request, Connectivity)
        self.devices.set_online(request.path_params["device"], is_online=wanted.is_online)
        return NO_CONTENT

    async def deliveries(self, request: Request) -> Response:
        mailbox = self.devices.mailbox(request.path_params["name"])
        return StreamingResponse(_lines(mailbox), media_type="application/x-ndjson")

    async def forget_mailbox(self, request: Request) -> Response:
        self.devices.forget_mailbox(request.path_params["name"])
        return NO_CONTENT


async def _lines(mailbox: Mailbox) -> AsyncIterator[bytes]:
    # An empty line first: the headers go out at once, and the reader knows that it is connected.
    yield b"\n"
    while taken := await mailbox.take():
        yield b"".join(_encoder.encode(delivery) + b"\n" for delivery in taken)


def _shown(seen: dict[str, Any]) -> dict[str, Any]:
    """The payload as text where it is text, and as Base64 where it is not."""
    payload: bytes = seen["payload"]
    try:
        return seen | {"payload": payload.decode()}
    except UnicodeDecodeError:
        return seen | {"payload": base64.b64encode(payload).decode()}
