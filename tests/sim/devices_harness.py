"""Runs a devices server with fault injection, and boards on a clock that advances by itself."""

import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyreqwest.client import Client, ClientBuilder

from tally.app import Application, build_app, open_application
from tally.devices.model.records import MAX_TIMESTAMP_MS, Reading
from tally.devices.repository.readings import ReadingRepository
from tally.kit.clock import Clock, ManualClock
from tally.kit.server import serving
from tally.settings import Secret, Settings
from tally.sim.boards.board import VirtualBoard
from tally.sim.boards.command import create_api_key
from tally.sim.boards.devices_client import DevicesClient
from tally.sim.fault_injection import FaultInjector, FaultMiddleware

ADMIN_TOKEN = Secret("the-token-of-the-operators-0123456789")


class AdvancingClock(Clock):
    """The server's clock; sleeping advances it."""

    def __init__(self, server_clock: ManualClock) -> None:
        self.server_clock = server_clock
        self.slept: list[float] = []

    def time_ns(self) -> int:
        return self.server_clock.time_ns()

    def monotonic(self) -> float:
        return self.server_clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.server_clock.advance(seconds)


@dataclass(frozen=True, slots=True)
class DevicesHarness:
    """The server, its faults, and factories for clients and boards."""

    url: str
    application: Application
    faults: FaultInjector
    clock: AdvancingClock
    client: Client
    api_key: Secret
    rng: random.Random = field(default_factory=lambda: random.Random(secrets.randbits(64)))

    def devices_client(self, **more: Any) -> DevicesClient:
        return DevicesClient(
            **{
                "client": self.client,
                "url": self.url,
                "api_key": self.api_key,
                "clock": self.clock,
                **more,
            }
        )

    def board(self, devices: DevicesClient | None = None, **more: Any) -> VirtualBoard:
        """An unregistered board."""
        hardware_id = ":".join(f"{byte:02X}" for byte in (2, *secrets.token_bytes(5)))
        return VirtualBoard(
            hardware_id, devices or self.devices_client(), self.clock, self.rng, **more
        )

    async def stored(self, board: VirtualBoard) -> list[Reading]:
        """The stored readings of a board."""
        readings = ReadingRepository(self.application.store).all_between(
            board.hardware_id, (0, MAX_TIMESTAMP_MS)
        )
        return [reading async for reading in readings]


@asynccontextmanager
async def run_devices_server(
    directory: Path, request_timeout: timedelta = timedelta(seconds=30), **settings: Any
) -> AsyncIterator[DevicesHarness]:
    """Run a server on a data directory."""
    server_clock, faults = ManualClock(), FaultInjector()
    server_settings = Settings(
        data_dir=directory, backends=("devices",), operator_token=ADMIN_TOKEN, **settings
    )
    async with (
        open_application(server_settings, server_clock) as application,
        ClientBuilder().timeout(request_timeout).build() as client,
    ):
        app = build_app(application)
        app.add_middleware(FaultMiddleware, faults=faults, clock=server_clock)
        async with serving(app, on_stopping=application.drain) as url:
            devices_url = f"{url}/devices"
            yield DevicesHarness(
                devices_url,
                application,
                faults,
                AdvancingClock(server_clock),
                client,
                await create_api_key(client, devices_url, ADMIN_TOKEN),
            )
