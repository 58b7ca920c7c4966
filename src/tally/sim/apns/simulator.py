"""The APNs simulator on real sockets.

async with ApnsSimulator(clock).serving() as apns:
    apns.devices.register("phone-1", "my phones")
    token = apns.devices.issue("phone-1", TokenKind.DEVICE)
    apns.faults.add(PushFault(token=token, status=410, reason="Unregistered"))
    async for delivery in apns.devices.mailbox("my phones"): ...
    await apns.log.wait_until(lambda log: log.accepted >= 3)
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self, cast

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tally.errors import TallyError
from tally.kit.clock import Clock
from tally.kit.hosts import AllowedHosts
from tally.kit.server import listen, serving
from tally.settings import Secret, Settings
from tally.sim.apns.certificates import Certificates, load_or_create_certificates, make_certificates
from tally.sim.apns.channels import ChannelRegistry
from tally.sim.apns.control import ApnsControl
from tally.sim.apns.devices import DeviceRegistry
from tally.sim.apns.faults import PushFaultInjector
from tally.sim.apns.http2 import Http2Connection
from tally.sim.apns.provider_tokens import ProviderKey, ProviderTokenVerifier, make_provider_key
from tally.sim.apns.push_service import PushService
from tally.sim.apns.request_log import RequestLog
from tally.sim.apns.streams import Http2Response, Http2Stream, StreamHandler

BUNDLE_ID: Final = "app.tally.cricket"
KEY_FILE: Final = "apns-simulator.p8"


class ApnsSimulator:
    """APNs on three ports: pushes, channel management and the control API."""

    def __init__(
        self,
        clock: Clock,
        *,
        bundle_id: str = BUNDLE_ID,
        key: ProviderKey | None = None,
        certificates: Certificates | None = None,
        rng: random.Random | None = None,
    ) -> None:
        rng = rng or random.Random()  # noqa: S311  (tokens of virtual devices)
        self.bundle_id = bundle_id
        self.key = key or make_provider_key()
        self.certificates = certificates or make_certificates()
        self.token_verifier = ProviderTokenVerifier(clock)
        self.allow(self.key)
        self.devices = DeviceRegistry(clock, rng)
        self.channels = ChannelRegistry(bundle_id, self.token_verifier, rng)
        self.faults = PushFaultInjector()
        self.log = RequestLog()
        # Set by `serving`.
        self.url, self.manage_url, self.control_url = "", "", ""
        parts = (self.token_verifier, self.devices, self.channels, self.faults, self.log)
        self._service = PushService(bundle_id, clock, rng, *parts)
        self._connections: set[Http2Connection] = set()
        self._allowed_hosts = AllowedHosts()

    @classmethod
    def load(cls, directory: Path, clock: Clock, bundle_id: str = BUNDLE_ID) -> Self:
        """Load the key and certificates from a directory; create them on first use."""
        path = directory / KEY_FILE
        if not path.exists():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(make_provider_key().pem)
        key = make_provider_key()
        return cls(
            clock,
            bundle_id=bundle_id,
            key=ProviderKey(key.key_id, key.team_id, path.read_text()),
            certificates=load_or_create_certificates(directory),
        )

    def allow(self, key: ProviderKey) -> None:
        """Accept tokens signed with this key."""
        self.token_verifier.allow(
            key, cast(EllipticCurvePrivateKey, load_pem_private_key(key.pem.encode(), None))
        )

    def configure(self, settings: Settings, authority: Path) -> Settings:
        """Return settings that use this simulator; writes its root certificate to `authority`."""
        authority.write_bytes(self.certificates.authority)
        return replace(
            settings,
            cricket_apns_url=self.url,
            cricket_apns_manage_url=self.manage_url,
            cricket_apns_bundle_id=self.bundle_id,
            cricket_apns_team_id=self.key.team_id,
            cricket_apns_key_id=self.key.key_id,
            cricket_apns_key=Secret(self.key.pem),
            cricket_apns_authority=authority,
        )

    @property
    def connections(self) -> int:
        """The number of open connections on the push and management ports."""
        return len(self._connections)

    def drop_connections(self) -> None:
        """Drop every connection, like a network failure."""
        for connection in tuple(self._connections):
            connection.abort()

    @asynccontextmanager
    async def serving(
        self, host: str = "127.0.0.1", port: int = 0, *, manage_port: int = 0, control_port: int = 0
    ) -> AsyncIterator[Self]:
        """Serve until the block ends."""
        async with AsyncExitStack() as stack:
            stack.callback(self._service.stop)
            self.url = await stack.enter_async_context(
                self._serve_http2(host, port, self._service.handle)
            )
            self.manage_url = await stack.enter_async_context(
                self._serve_http2(host, manage_port, self._service.handle_management)
            )
            self.control_url = await stack.enter_async_context(
                self._serve_control(host, control_port)
            )
            yield self

    def _serve_control(self, host: str, port: int) -> AbstractAsyncContextManager[str]:
        control = ApnsControl(self.devices, self.channels, self.faults, self.log)
        return serving(control.app(), host, port, on_stopping=self.devices.close)

    @asynccontextmanager
    async def _serve_http2(
        self, host: str, port: int, handler: StreamHandler
    ) -> AsyncIterator[str]:
        socket = listen(host, port)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            partial(self._new_connection, handler), sock=socket, ssl=self.certificates.context()
        )
        try:
            yield f"https://{host}:{socket.getsockname()[1]}"
        finally:
            server.close()
            for connection in tuple(self._connections):
                connection.abort()
            await server.wait_closed()

    def _new_connection(self, handler: StreamHandler) -> Http2Connection:
        self.log.connections += 1
        connection = Http2Connection(
            self.log.connections,
            partial(_with_host_check, self._allowed_hosts, handler),
            self._connections.discard,
        )
        self._connections.add(connection)
        return connection


def _with_host_check(
    allowed: AllowedHosts, handler: StreamHandler, stream: Http2Stream
) -> Http2Response | None:
    try:
        allowed.check(stream.headers.get(b":authority") or stream.headers.get(b"host", b""))
    except TallyError:
        return Http2Response(421, body=b'{"reason":"MisdirectedRequest"}')
    return handler(stream)
