"""An HTTP/2 push provider and device tokens, for tests of the APNs simulator."""

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


def provider_token(apns: ApnsSimulator, issued_at: int, **claims: object) -> str:
    """An Authorization header value signed by the provider's key."""
    payload = {"iss": apns.key.team_id, "iat": issued_at, **claims}
    return "bearer " + jwt.encode(payload, apns.key.pem, "ES256", {"kid": apns.key.key_id})


@dataclass(slots=True)
class PushProvider:
    """Sends valid or invalid requests; `headers` are valid by default."""

    apns: ApnsSimulator
    client: Client
    headers: dict[str, str] = field(default_factory=dict)

    async def push(
        self, token: str, payload: bytes = PAYLOAD, **changed: str | None
    ) -> tuple[int, dict[str, Any]]:
        """Push and return status and body; `apns_priority=None` omits that header."""
        return await self.call("POST", f"{self.apns.url}/3/device/{token}", payload, **changed)

    async def call(
        self, method: str, url: str, body: bytes = b"", **changed: str | None
    ) -> tuple[int, dict[str, Any]]:
        headers = self.headers | {name.replace("_", "-"): value for name, value in changed.items()}
        request = self.client.request(method, url).headers(
            {name: value for name, value in headers.items() if value is not None}
        )
        response = await (request.body_bytes(body) if body else request).build().send()
        content = bytes(await response.bytes())
        result: dict[str, Any] = msgspec.json.decode(content) if content else {}
        return response.status, result | {
            f"<{name}>": value for name, value in response.headers.items() if "apns" in name
        }


@asynccontextmanager
async def connect_provider(apns: ApnsSimulator, clock: Clock) -> AsyncIterator[PushProvider]:
    builder = (
        ClientBuilder()
        .http2_prior_knowledge()
        .add_root_certificate_pem(apns.certificates.authority)
    )
    async with builder.timeout(timedelta(seconds=10)).build() as client:
        headers = {
            "authorization": provider_token(apns, clock.seconds()),
            "apns-topic": f"{apns.bundle_id}.push-type.liveactivity",
            "apns-push-type": "liveactivity",
            "apns-priority": "10",
            "apns-expiration": "0",
        }
        yield PushProvider(apns, client, headers)


def issue_token(
    apns: ApnsSimulator, kind: TokenKind = TokenKind.UPDATE, device: str = "phone"
) -> str:
    apns.devices.register(device, "tests")
    return apns.devices.issue(device, kind)
