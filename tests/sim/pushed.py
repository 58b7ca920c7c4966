"""A plain HTTP/2 client and a phone's tokens, for tests of the simulated push service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import jwt
import msgspec
from pyreqwest.client import Client, ClientBuilder

from tally.kit.clock import Clock
from tally.sim.apns.devices import TokenKind
from tally.sim.apns.simulator import ApnsSimulator

PAYLOAD = b'{"aps":{"timestamp":1,"event":"update","content-state":{}}}'


def bearer(apns: ApnsSimulator, issued: int, **claims: object) -> str:
    """A provider's token, as a provider signs it."""
    told = {"iss": apns.key.team_id, "iat": issued, **claims}
    return "bearer " + jwt.encode(told, apns.key.pem, "ES256", {"kid": apns.key.key_id})


@dataclass(slots=True)
class Provider:
    """Sends what a test wants, right or wrong; `headers` are right to begin with."""

    apns: ApnsSimulator
    client: Client
    headers: dict[str, str] = field(default_factory=dict)

    async def push(
        self, token: str, payload: bytes = PAYLOAD, **changed: str | None
    ) -> tuple[int, dict[str, Any]]:
        """The status, and what was told; an `apns_priority=None` leaves that header out."""
        return await self.call("POST", f"{self.apns.url}/3/device/{token}", payload, **changed)

    async def call(
        self, method: str, url: str, body: bytes = b"", **changed: str | None
    ) -> tuple[int, dict[str, Any]]:
        given = self.headers | {name.replace("_", "-"): value for name, value in changed.items()}
        request = self.client.request(method, url).headers(
            {name: value for name, value in given.items() if value is not None}
        )
        response = await (request.body_bytes(body) if body else request).build().send()
        content = bytes(await response.bytes())
        told: dict[str, Any] = msgspec.json.decode(content) if content else {}
        return response.status, told | {
            f"<{name}>": value for name, value in response.headers.items() if "apns" in name
        }


@asynccontextmanager
async def provider_of(apns: ApnsSimulator, clock: Clock) -> AsyncIterator[Provider]:
    building = (
        ClientBuilder()
        .http2_prior_knowledge()
        .add_root_certificate_pem(apns.certificates.authority)
    )
    async with building.timeout(timedelta(seconds=10)).build() as client:
        headers = {
            "authorization": bearer(apns, clock.seconds()),
            "apns-topic": f"{apns.bundle_id}.push-type.liveactivity",
            "apns-push-type": "liveactivity",
            "apns-priority": "10",
            "apns-expiration": "0",
        }
        yield Provider(apns, client, headers)


def token_of(apns: ApnsSimulator, kind: TokenKind = TokenKind.UPDATE, device: str = "phone") -> str:
    apns.devices.register(device, "tests")
    return apns.devices.issue(device, kind)
