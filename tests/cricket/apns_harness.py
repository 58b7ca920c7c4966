"""A push service and a gateway to it, for tests: real sockets, short patience, and pushes that can be told apart."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tally.cricket.apns.gateway import ApnsGateway, open_apns
from tally.cricket.model.push import Push, PushResult
from tally.kit.clock import Clock, SystemClock
from tally.kit.metrics import Metrics
from tally.kit.retry import RetryPolicy
from tally.settings import Settings
from tally.sim.apns.devices import TokenKind
from tally.sim.apns.simulator import ApnsSimulator

# Six tries within a blink, so that no test waits for real back-off.
QUICK = RetryPolicy(attempts=6, base=0.005, cap=0.02, deadline=5.0)


@dataclass(frozen=True, slots=True)
class Apple:
    """The simulated service, a gateway that pushes to it, and the settings that led there."""

    sim: ApnsSimulator
    gateway: ApnsGateway
    settings: Settings
    metrics: Metrics

    def token(self, kind: TokenKind = TokenKind.UPDATE, device: str = "phone") -> str:
        """A new token of a device."""
        self.sim.devices.register(device, "tests")
        return self.sim.devices.issue(device, kind)

    def tokens(self, count: int) -> list[str]:
        return [self.token() for _ in range(count)]


@asynccontextmanager
async def apple_nearby(
    directory: Path,
    clock: Clock | None = None,
    *,
    connections: int = 2,
    patience: RetryPolicy = QUICK,
    answer_seconds: float = 10,
) -> AsyncIterator[Apple]:
    clock = clock or SystemClock()
    metrics = Metrics()
    async with ApnsSimulator(clock).serving() as sim:
        given = Settings(cricket_apns_connections=connections)
        settings = sim.configure(given, directory / "authority.pem")
        async with open_apns(settings, clock, metrics, patience, answer_seconds) as gateway:
            yield Apple(sim, gateway, settings, metrics)


def update(token: str, number: int = 0, **more: object) -> Push:
    """A push whose payload says which one it is."""
    payload = json.dumps(
        {"aps": {"timestamp": number, "event": "update", "content-state": {"number": number}}}
    ).encode()
    return Push(token=token, payload=payload, **more)  # type: ignore[arg-type]


def number_in(payload: bytes) -> int:
    number: int = json.loads(payload)["aps"]["content-state"]["number"]
    return number


async def send_all(
    gateway: ApnsGateway, pushes: Iterable[Push], concurrency: int | None = None
) -> list[tuple[Push, PushResult]]:
    async def streamed() -> AsyncIterator[Push]:
        for push in pushes:
            yield push

    async with aclosing(gateway.send_all(streamed(), concurrency)) as verdicts:
        return [found async for found in verdicts]
