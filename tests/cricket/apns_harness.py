"""Starts the APNs simulator on real sockets and a gateway to it, with fast retries."""

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

# Six attempts within milliseconds, so that no test waits for a real back-off.
FAST_RETRIES = RetryPolicy(attempts=6, base=0.005, cap=0.02, deadline=5.0)


@dataclass(frozen=True, slots=True)
class ApnsHarness:
    """The simulator, a gateway that pushes to it, and the gateway's settings and metrics."""

    simulator: ApnsSimulator
    gateway: ApnsGateway
    settings: Settings
    metrics: Metrics

    def token(self, kind: TokenKind = TokenKind.UPDATE, device: str = "phone") -> str:
        """Issue a new token of a device."""
        self.simulator.devices.register(device, "tests")
        return self.simulator.devices.issue(device, kind)

    def tokens(self, count: int) -> list[str]:
        return [self.token() for _ in range(count)]


@asynccontextmanager
async def open_apns_harness(
    directory: Path,
    clock: Clock | None = None,
    *,
    connections: int = 2,
    retry_policy: RetryPolicy = FAST_RETRIES,
    response_timeout: float = 10,
) -> AsyncIterator[ApnsHarness]:
    clock = clock or SystemClock()
    metrics = Metrics()
    async with ApnsSimulator(clock).serving() as simulator:
        settings = simulator.configure(
            Settings(cricket_apns_connections=connections), directory / "authority.pem"
        )
        async with open_apns(settings, clock, metrics, retry_policy, response_timeout) as gateway:
            yield ApnsHarness(simulator, gateway, settings, metrics)


def update_push(token: str, number: int = 0, **fields: object) -> Push:
    """Return a push whose payload contains a number to identify it."""
    payload = json.dumps(
        {"aps": {"timestamp": number, "event": "update", "content-state": {"number": number}}}
    ).encode()
    return Push(token=token, payload=payload, **fields)  # type: ignore[arg-type]


def push_number(payload: bytes) -> int:
    number: int = json.loads(payload)["aps"]["content-state"]["number"]
    return number


async def send_all(
    gateway: ApnsGateway, pushes: Iterable[Push], concurrency: int | None = None
) -> list[tuple[Push, PushResult]]:
    async def stream() -> AsyncIterator[Push]:
        for push in pushes:
            yield push

    async with aclosing(gateway.send_all(stream(), concurrency)) as results:
        return [item async for item in results]
