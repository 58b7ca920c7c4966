"""The control API of the APNs simulator (plain HTTP), for tests and virtual devices.

GET    /_sim/state                          counts, connections, pending faults
GET    /_sim/log?target=                    recent requests; DELETE clears the log
POST   /_sim/rules                          {"remembers": true, "takes_any_token": false}
POST   /_sim/faults                         a PushFault; DELETE clears all
PUT    /_sim/losses                         {"targets": […], "share": 0.1}: accept and drop silently
PUT    /_sim/devices/{device}               {"mailbox": "my phones"}: register a device
POST   /_sim/devices/{device}/tokens        {"kind": "device" | "start" | "update"}: issue a token
DELETE /_sim/tokens/{token}                 unregister a token
PUT    /_sim/devices/{device}/channels      {"channel": …}: subscribe; DELETE unsubscribes
PUT    /_sim/devices/{device}/network       {"is_online": false}
GET    /_sim/mailboxes/{name}               stream deliveries as NDJSON
DELETE /_sim/mailboxes/{name}               remove a mailbox and its devices
"""

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route, Router

from tally.kit.http import ErrorMiddleware, Json
from tally.sim.apns.channels import ChannelRegistry
from tally.sim.apns.devices import DeviceRegistry, Mailbox, TokenKind
from tally.sim.apns.faults import PushFault, PushFaultInjector
from tally.sim.apns.request_log import RequestLog
from tally.sim.fault_injection import NO_CONTENT
from tally.sim.page_protection import PageProtection
from tally.sim.request_parsing import read_json_body

_encoder: Final = msgspec.json.Encoder()


class _ControlBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request body of the control API."""


class DeviceMailbox(_ControlBody, frozen=True):
    """The mailbox of a device."""

    mailbox: str


class IssueToken(_ControlBody, frozen=True):
    """The kind of token to issue."""

    kind: TokenKind


class ChannelSubscription(_ControlBody, frozen=True):
    """A channel to subscribe to or unsubscribe from."""

    channel: str


class Connectivity(_ControlBody, frozen=True):
    """Whether a device is online."""

    is_online: bool


class SimulatorRules(_ControlBody, frozen=True):
    """`remembers`: log requests; `takes_any_token`: accept unknown tokens."""

    remembers: bool | None = None
    takes_any_token: bool | None = None


class PushLosses(_ControlBody, frozen=True):
    """Pushes that are accepted and never delivered: to `targets`, and a share of all others.

    A target is a token, a channel or a device.
    """

    targets: list[str] = msgspec.field(default_factory=list)
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


@dataclass(frozen=True, slots=True)
class ApnsControl:
    """The routes under `/_sim`."""

    devices: DeviceRegistry
    channels: ChannelRegistry
    faults: PushFaultInjector
    log: RequestLog

    def app(self) -> Starlette:
        router = Router(self.routes(), redirect_slashes=False)
        app = ErrorMiddleware(PageProtection(router), "sim-apns")
        return Starlette(routes=[Mount("/", app)])

    def routes(self) -> list[Route]:
        return [
            Route("/_sim/state", self.state),
            Route("/_sim/log", self.get_log),
            Route("/_sim/log", self.clear_log, methods=["DELETE"]),
            Route("/_sim/rules", self.set_rules, methods=["POST"]),
            Route("/_sim/faults", self.add_fault, methods=["POST"]),
            Route("/_sim/faults", self.clear_faults, methods=["DELETE"]),
            Route("/_sim/losses", self.set_losses, methods=["PUT"]),
            Route("/_sim/devices/{device}", self.register, methods=["PUT"]),
            Route("/_sim/devices/{device}/tokens", self.issue, methods=["POST"]),
            Route("/_sim/tokens/{token}", self.retire, methods=["DELETE"]),
            Route("/_sim/devices/{device}/channels", self.subscribe, methods=["PUT"]),
            Route("/_sim/devices/{device}/channels", self.unsubscribe, methods=["DELETE"]),
            Route("/_sim/devices/{device}/network", self.set_network, methods=["PUT"]),
            Route("/_sim/mailboxes/{name}", self.deliveries),
            Route("/_sim/mailboxes/{name}", self.remove_mailbox, methods=["DELETE"]),
        ]

    async def state(self, _: Request) -> Response:
        counts = [
            {"status": status, "reason": reason, "count": n}
            for (status, reason), n in self.log.counts.items()
        ]
        return Json(
            {
                "accepted": self.log.accepted,
                "answers": counts,
                "connections": self.log.connections,
                "devices": len(self.devices.devices),
                "tokens": len(self.devices.tokens),
                "channels": len(self.channels.configs),
                "faults": self.faults.pending,
                "lost": self.devices.lost,
            }
        )

    async def get_log(self, request: Request) -> Response:
        target = request.query_params.get("target")
        entries = self.log.entries if target is None else self.log.for_target(target)
        return Json([_render(msgspec.structs.asdict(entry)) for entry in entries])

    async def clear_log(self, _: Request) -> Response:
        self.log.clear()
        return NO_CONTENT

    async def set_rules(self, request: Request) -> Response:
        rules = await read_json_body(request, SimulatorRules)
        if rules.remembers is not None:
            self.log.is_recording = rules.remembers
        if rules.takes_any_token is not None:
            self.devices.accepts_any_token = rules.takes_any_token
        return NO_CONTENT

    async def add_fault(self, request: Request) -> Response:
        self.faults.add(await read_json_body(request, PushFault))
        return NO_CONTENT

    async def clear_faults(self, _: Request) -> Response:
        self.faults.clear()
        return NO_CONTENT

    async def set_losses(self, request: Request) -> Response:
        losses = await read_json_body(request, PushLosses)
        self.devices.lossy_targets = set(losses.targets)
        self.devices.loss_share = losses.share
        return NO_CONTENT

    async def register(self, request: Request) -> Response:
        body = await read_json_body(request, DeviceMailbox)
        self.devices.register(request.path_params["device"], body.mailbox)
        return NO_CONTENT

    async def issue(self, request: Request) -> Response:
        body = await read_json_body(request, IssueToken)
        return Json({"token": self.devices.issue(request.path_params["device"], body.kind)}, 201)

    async def retire(self, request: Request) -> Response:
        self.devices.retire(request.path_params["token"])
        return NO_CONTENT

    async def subscribe(self, request: Request) -> Response:
        self.devices.subscribe(
            request.path_params["device"],
            (await read_json_body(request, ChannelSubscription)).channel,
        )
        return NO_CONTENT

    async def unsubscribe(self, request: Request) -> Response:
        self.devices.unsubscribe(
            request.path_params["device"],
            (await read_json_body(request, ChannelSubscription)).channel,
        )
        return NO_CONTENT

    async def set_network(self, request: Request) -> Response:
        body = await read_json_body(request, Connectivity)
        self.devices.set_online(request.path_params["device"], is_online=body.is_online)
        return NO_CONTENT

    async def deliveries(self, request: Request) -> Response:
        mailbox = self.devices.mailbox(request.path_params["name"])
        return StreamingResponse(_lines(mailbox), media_type="application/x-ndjson")

    async def remove_mailbox(self, request: Request) -> Response:
        self.devices.remove_mailbox(request.path_params["name"])
        return NO_CONTENT


async def _lines(mailbox: Mailbox) -> AsyncIterator[bytes]:
    # An empty line first, so that the headers are sent and the reader knows it is connected.
    yield b"\n"
    while deliveries := await mailbox.take():
        yield b"".join(_encoder.encode(delivery) + b"\n" for delivery in deliveries)


def _render(entry: dict[str, Any]) -> dict[str, Any]:
    """Render the payload as text, or as Base64 if it is not UTF-8."""
    payload: bytes = entry["payload"]
    try:
        return entry | {"payload": payload.decode()}
    except UnicodeDecodeError:
        return entry | {"payload": base64.b64encode(payload).decode()}
