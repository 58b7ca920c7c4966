"""The push service as a device sees it: tokens, channel subscriptions and deliveries.

The APNs simulator runs in this process or in another one.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError

from tally.errors import Unavailable
from tally.kit.fetch import fetch
from tally.sim.apns.devices import DeviceRegistry, PushDelivery, TokenKind
from tally.sim.page_protection import CONTROL_HEADERS

APNS: Final = "The APNs simulator"


class DevicePushService(Protocol):
    """The device side of APNs; raises Unavailable if it is unreachable."""

    async def register(self, device: str) -> None: ...

    async def issue(self, device: str, kind: TokenKind) -> str: ...

    async def retire(self, token: str) -> None: ...

    async def subscribe(self, device: str, channel: str) -> None: ...

    async def unsubscribe(self, device: str, channel: str) -> None: ...

    async def set_online(self, device: str, *, is_online: bool) -> None: ...

    def deliveries(self) -> AsyncIterator[PushDelivery]:
        """The deliveries to all devices registered here, until the reader stops."""


@dataclass(frozen=True, slots=True)
class LocalPushService:
    """An APNs simulator in this process."""

    devices: DeviceRegistry
    mailbox: str = "phones"

    async def register(self, device: str) -> None:
        self.devices.register(device, self.mailbox)

    async def issue(self, device: str, kind: TokenKind) -> str:
        return self.devices.issue(device, kind)

    async def retire(self, token: str) -> None:
        self.devices.retire(token)

    async def subscribe(self, device: str, channel: str) -> None:
        self.devices.subscribe(device, channel)

    async def unsubscribe(self, device: str, channel: str) -> None:
        self.devices.unsubscribe(device, channel)

    async def set_online(self, device: str, *, is_online: bool) -> None:
        self.devices.set_online(device, is_online=is_online)

    def deliveries(self) -> AsyncIterator[PushDelivery]:
        return aiter(self.devices.mailbox(self.mailbox))


class _TokenBody(msgspec.Struct, frozen=True):
    token: str


@dataclass(frozen=True, slots=True)
class RemotePushService:
    """An APNs simulator in another process, through its control API at `url`."""

    client: Client
    url: str
    mailbox: str

    async def register(self, device: str) -> None:
        await self._call("PUT", f"devices/{device}", {"mailbox": self.mailbox})

    async def issue(self, device: str, kind: TokenKind) -> str:
        body = await self._call("POST", f"devices/{device}/tokens", {"kind": kind.value})
        return msgspec.json.decode(body, type=_TokenBody).token

    async def retire(self, token: str) -> None:
        await self._call("DELETE", f"tokens/{token}")

    async def subscribe(self, device: str, channel: str) -> None:
        await self._call("PUT", f"devices/{device}/channels", {"channel": channel})

    async def unsubscribe(self, device: str, channel: str) -> None:
        await self._call("DELETE", f"devices/{device}/channels", {"channel": channel})

    async def set_online(self, device: str, *, is_online: bool) -> None:
        await self._call("PUT", f"devices/{device}/network", {"is_online": is_online})

    async def deliveries(self) -> AsyncIterator[PushDelivery]:
        decoder, rest = msgspec.json.Decoder(PushDelivery), b""
        try:
            request = self.client.get(f"{self.url}/_sim/mailboxes/{self.mailbox}")
            request = request.headers(CONTROL_HEADERS).streamed_read_buffer_limit(0)
            async with request.build_streamed() as response:
                while (chunk := await response.body_reader.read_chunk()) is not None:
                    *lines, rest = (rest + bytes(chunk)).split(b"\n")
                    for line in filter(None, lines):
                        yield decoder.decode(line)
        except PyreqwestError as error:
            raise Unavailable(f"{APNS} closed the stream: {type(error).__name__}") from error

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        request = self.client.request(method, f"{self.url}/_sim/{path}").headers(CONTROL_HEADERS)
        response = await fetch(request.body_json(body) if body is not None else request, APNS)
        if response.status >= 300:
            raise Unavailable(
                f"{APNS} rejected {method} {path.partition('/')[0]}: {response.status}"
            )
        return response.body
