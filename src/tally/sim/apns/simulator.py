"""The simulator of Apple's push service as tests and the demo hold it.

async with Apns(clock).serving() as apns:
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
from tally.sim.apns.certificates import Certificates, kept_in, make_certificates
from tally.sim.apns.channels import Channels
from tally.sim.apns.control import Control
from tally.sim.apns.devices import Devices
from tally.sim.apns.exchange import Handler
from tally.sim.apns.faults import PushFaults
from tally.sim.apns.http2 import Connection
from tally.sim.apns.keys import ProviderKey, Providers, make_key
from tally.sim.apns.record import Record
from tally.sim.apns.service import PushService

BUNDLE_ID: Final = "app.tally.cricket"
KEY_FILE: Final = "apns-simulator.p8"


class Apns:
    """The service on three real sockets: for pushes, for channels, and for whoever drives it."""

    def __init__(
        self,
        clock: Clock,
        *,
        bundle_id: str = BUNDLE_ID,
        key: ProviderKey | None = None,
        certificates: Certificates | None = None,
        chance: random.Random | None = None,
    ) -> None:
        chance = chance or random.Random()  # noqa: S311  (tokens of made-up devices)
        self.bundle_id = bundle_id
        self.key = key or make_key()
        self.certificates = certificates or make_certificates()
        self.providers = Providers(clock)
        self.allow(self.key)
        self.devices = Devices(clock, chance)
        self.channels = Channels(bundle_id, self.providers, chance)
        self.faults = PushFaults()
        self.record = Record()
        # Known from the moment it is served.
        self.url, self.manage_url, self.control_url = "", "", ""
        parts = (self.providers, self.devices, self.channels, self.faults, self.record)
        self._service = PushService(bundle_id, clock, chance, *parts)
        self._open: set[Connection] = set()

    @classmethod
    def kept_in(cls, directory: Path, clock: Clock, bundle_id: str = BUNDLE_ID) -> Self:
        """One whose key and certificates are the same after a restart."""
        path = directory / KEY_FILE
        if not path.exists():
            directory.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(make_key().pem)
        key = make_key()
        return cls(
            clock,
            bundle_id=bundle_id,
            key=ProviderKey(key.key_id, key.team_id, path.read_text()),
            certificates=kept_in(directory),
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
        control = Control(self.devices, self.channels, self.faults, self.record)
        return serving(control.app(), host, port, on_stopping=self.devices.close)

    @asynccontextmanager
    async def _listening(self, host: str, port: int, handler: Handler) -> AsyncIterator[str]:
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

    def _connected(self, handler: Handler) -> Connection:
        self.record.connections += 1
        connection = Connection(self.record.connections, handler, self._open.discard)
        self._open.add(connection)
        return connection
