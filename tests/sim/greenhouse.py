"""A greenhouse for tests: a real server on a real socket with faults around it, and boards whose waiting takes no time."""

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

ADMIN = Secret("the-token-of-the-operators-0123456789")


class Passing(Clock):
    """The server's clock, moved on by whoever sleeps."""

    def __init__(self, world: ManualClock) -> None:
        self.world = world
        self.slept: list[float] = []

    def time_ns(self) -> int:
        return self.world.time_ns()

    def monotonic(self) -> float:
        return self.world.monotonic()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.world.advance(seconds)


@dataclass(frozen=True, slots=True)
class Greenhouse:
    """The server, its faults, and a way for boards to reach it."""

    url: str
    parts: Application
    faults: FaultInjector
    clock: Passing
    client: Client
    api_key: Secret
    rng: random.Random = field(default_factory=lambda: random.Random(secrets.randbits(64)))

    def uplink(self, **more: Any) -> DevicesClient:
        return DevicesClient(
            **{
                "client": self.client,
                "url": self.url,
                "api_key": self.api_key,
                "clock": self.clock,
                **more,
            }
        )

    def board(self, uplink: DevicesClient | None = None, **more: Any) -> VirtualBoard:
        """A board that nobody has heard of."""
        hardware_id = ":".join(f"{byte:02X}" for byte in (2, *secrets.token_bytes(5)))
        return VirtualBoard(hardware_id, uplink or self.uplink(), self.clock, self.rng, **more)

    async def stored(self, board: VirtualBoard) -> list[Reading]:
        """All readings that the server has of a board."""
        found = ReadingRepository(self.parts.store).all_between(
            board.hardware_id, (0, MAX_TIMESTAMP_MS)
        )
        return [reading async for reading in found]


@asynccontextmanager
async def greenhouse(
    directory: Path, retry_policy: timedelta = timedelta(seconds=30), **settings: Any
) -> AsyncIterator[Greenhouse]:
    """A server with a data directory of its own."""
    world, faults = ManualClock(), FaultInjector()
    given = Settings(
        data_dir=directory, backends=("devices",), devices_admin_token=ADMIN, **settings
    )
    async with (
        open_application(given, world) as parts,
        ClientBuilder().timeout(retry_policy).build() as client,
    ):
        app = build_app(parts)
        app.add_middleware(FaultMiddleware, faults=faults, clock=world)
        async with serving(app, on_stopping=parts.drain) as url:
            where = f"{url}/devices"
            yield Greenhouse(
                where,
                parts,
                faults,
                Passing(world),
                client,
                await create_api_key(client, where, ADMIN),
            )
