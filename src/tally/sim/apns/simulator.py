"""The simulator of Apple's push service as tests and the demo hold it.

async with ApnsSimulator(clock).serving() as apns:
    apns.devices.register("phone-1", "my phones")
    token = apns.devices.issue("phone-1", TokenKind.DEVICE)
    apns.faults.add(PushFault(token=token, status=410, reason="Unregistered"))
    async for delivery in apns.devices.mailbox("my phones"): ...
    await apns.record.until(lambda record: record.accepted >= 3)
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

from tally.kit.clock import Clock
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
from tally.sim.apns.streams import StreamHandler

BUNDLE_ID: Final = "app.tally.cricket"
KEY_FILE: Final = "apns-simulator.p8"


class ApnsSimulator:
    """The service on three real sockets: for pushes, for channels, and for whoever drives it."""

    def __init__(
        self,
        clock: Clock,
        *,
        bundle_id: str = BUNDLE_ID,
        key: ProviderKey | None = None,
        certificates: Certificates | None = None,
        rng: random.Random | None = None,
    ) -> None:
        rng = rng or random.Random()  # noqa: S311  (tokens of made-up devices)
        self.bundle_id = bundle_id
        self.key = key or make_provider_key()
        self.certificates = certificates or make_certificates()
        self.providers = ProviderTokenVerifier(clock)
        self.allow(self.key)
        self.devices = DeviceRegistry(clock, rng)
        self.channels = ChannelRegistry(bundle_id, self.providers, rng)
        self.faults = PushFaultInjector()
        self.record = RequestLog()
        # Known from the moment it is served.
        self.url, self.manage_url, self.control_url = "", "", ""
        parts = (self.providers, self.devices, self.channels, self.faults, self.record)
        self._service = PushService(bundle_id, clock, rng, *parts)
        self._open: set[Http2Connection] = set()

    @classmethod
    def load(cls, directory: Path, clock: Clock, bundle_id: str = BUNDLE_ID) -> Self:
        """One whose key and certificates are the same after a restart."""
        path = directory / KEY_FILE
        if not path.exists():
            directory.mkdir(parents=True, exist_ok=True)
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
        """Let a provider push with this key too."""
        self.providers.allow(
            key, cast(EllipticCurvePrivateKey, load_pem_private_key(key.pem.encode(), None))
        )

    def pointed_here(self, settings: Settings, authority: Path) -> Settings:
        """`settings` with this service in Apple's place; what a client has to trust is written to the file `authority`."""
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
        """How many are open now, both ports together."""
        return len(self._open)

    def cut_all(self) -> None:
        """Cut every connection, as a lost network would."""
        for connection in tuple(self._open):
            connection.abort()

    @asynccontextmanager
    async def serving(
        self, host: str = "127.0.0.1", port: int = 0, *, manage_port: int = 0, control_port: int = 0
    ) -> AsyncIterator[Self]:
        """Serve until the block ends."""
        async with AsyncExitStack() as stack:
            stack.callback(self._service.stop)
            self.url = await stack.enter_async_context(
                self._listening(host, port, self._service.handle)
            )
            self.manage_url = await stack.enter_async_context(
                self._listening(host, manage_port, self._service.handle_management)
            )
            self.control_url = await stack.enter_async_context(self._controlled(host, control_port))
            yield self

    def _controlled(self, host: str, port: int) -> AbstractAsyncContextManager[str]:
        control = ApnsControl(self.devices, self.channels, self.faults, self.record)
        return serving(control.app(), host, port, on_stopping=self.devices.close)

    @asynccontextmanager
    async def _listening(self, host: str, port: int, handler: StreamHandler) -> AsyncIterator[str]:
        socket = listen(host, port)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            partial(self._connected, handler), sock=socket, ssl=self.certificates.context()
        )
        try:
            yield f"https://{host}:{socket.getsockname()[1]}"
        finally:
            server.close()
            for connection in tuple(self._open):
                connection.abort()
            await server.wait_closed()

    def _connected(self, handler: StreamHandler) -> Http2Connection:
        self.record.connections += 1
        connection = Http2Connection(self.record.connections, handler, self._open.discard)
        self._open.add(connection)
        return connection
