"""Measures pushes over HTTP/2: the gateway and the raw client against the same simulator.

The simulator runs in a separate process, as `tally sim apns` starts it. The raw client only sends:
no order per token, no limits, no retries, no results. The gateway must reach at least 70 % of its
rate, with constant memory.
"""

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path

from pyreqwest.client import Client, ClientBuilder

from bench.rounds import Line, measure_alternately, memory_line
from tally.cricket.apns.gateway import ApnsGateway, open_apns
from tally.cricket.apns.provider_token import ProviderToken
from tally.cricket.model.payloads import max_content_bytes, update_payload
from tally.cricket.model.push import Push
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.settings import Secret, Settings, read_settings
from tally.sim.apns.command import SETTINGS_FILE

PUSHES = 10_000
MEMORY_PUSHES = 100_000
_CONCURRENCY = 400
_MAX_RATIO = 1 / 0.7
_SECTION = "pushes over HTTP/2"


async def pushes(rounds: int, many: int = MEMORY_PUSHES) -> AsyncIterator[Line]:
    """Measure a payload of typical size to many tokens, at full speed."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with (
            run_simulator(Path(directory)) as settings,
            open_apns(settings, SystemClock(), Metrics()) as gateway,
        ):
            await share_provider_token(gateway, settings)
            payload = _payload()
            clients = [make_client(settings) for _ in range(settings.cricket_apns_connections)]
            tokens = [secrets.token_hex(80) for _ in range(PUSHES)]

            async def ours() -> int:
                return await through_gateway(gateway, iter(tokens), payload)

            async def raw() -> int:
                return await through_clients(clients, settings, iter(tokens), payload)

            mine, theirs, ratio = await measure_alternately(ours, raw, rounds)
            note = f"{1e6 / mine:,.0f}/s; raw: {1e6 / theirs:,.0f}/s"
            what = f"{PUSHES:,} pushes of {len(payload):,} bytes to as many tokens"
            yield Line(
                _SECTION,
                what,
                mine,
                "raw client",
                theirs,
                ratio,
                "70 % of raw",
                ratio <= _MAX_RATIO,
                note,
            )
            before = resident_megabytes()
            await through_gateway(gateway, (secrets.token_hex(80) for _ in range(many)), payload)
            yield memory_line(_SECTION, f"{many:,} more", before, resident_megabytes())
            for client in clients:
                await client.close()


async def share_provider_token(gateway: ApnsGateway, settings: Settings) -> None:
    """Create the provider tokens of both clients now.

    Half an hour later the second client would create another token, and APNs rejects two at a time.
    """
    _headers(settings)
    await through_gateway(gateway, iter([secrets.token_hex(80)]), _payload())


async def through_gateway(gateway: ApnsGateway, tokens: Iterator[str], payload: bytes) -> int:
    async def stream() -> AsyncIterator[Push]:
        for token in tokens:
            yield Push(
                token=token,
                payload=payload,
                priority=5,
                expiration=1_900_000_000,
                is_replaceable=True,
            )

    count = 0
    async with aclosing(gateway.send_all(stream())) as results:
        async for _, result in results:
            if not result.is_delivered:
                raise AssertionError(f"a push was not delivered: {result.status} {result.reason}")
            count += 1
    return count


async def through_clients(
    clients: list[Client], settings: Settings, tokens: Iterator[str], payload: bytes
) -> int:
    headers, sent = _headers(settings), 0

    async def worker(client: Client) -> None:
        nonlocal sent
        for token in tokens:
            url = f"{settings.cricket_apns_url}/3/device/{token}"
            response = await client.post(url).headers(headers).body_bytes(payload).build().send()
            if response.status != 200:
                raise AssertionError(f"a push was not delivered: {response.status}")
            sent += 1

    async with asyncio.TaskGroup() as group:
        for number in range(_CONCURRENCY):
            group.create_task(worker(clients[number % len(clients)]))
    return sent


@asynccontextmanager
async def run_simulator(directory: Path) -> AsyncIterator[Settings]:
    """Run `tally sim apns` on free ports with counters only; yield the settings for it."""
    arguments = (
        "-m",
        "tally.cli",
        "sim",
        "apns",
        "--keep",
        str(directory),
        "--any-token",
        "--sums-only",
    )
    ports = ("--port", "0", "--manage-port", "0", "--control-port", "0")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TALLY_")
    }
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, *ports, env=environment, stdout=pipe
    )
    try:
        if process.stdout is None or not await process.stdout.readline():
            raise AssertionError("the simulator did not start")
        lines = (directory / SETTINGS_FILE).read_text(encoding="utf-8").splitlines()
        yield read_settings(dict(line.split("=", 1) for line in lines))
    finally:
        process.terminate()
        await process.communicate()


def _payload() -> bytes:
    """Return a payload of the size of a typical display state."""
    content = {"text": "x" * (max_content_bytes("update") // 3)}
    return update_payload(timestamp=1_800_000_000, content=content, stale_at=1_800_000_900)


@cache  # one provider token for the whole run
def _headers(settings: Settings) -> dict[str, str]:
    key = Secret(
        Path((settings.cricket_apns_key or Secret("")).reveal()).read_text(encoding="utf-8")
    )
    provider = ProviderToken(
        key, settings.cricket_apns_key_id, settings.cricket_apns_team_id, SystemClock()
    )
    return {
        "authorization": provider.header(),
        "apns-topic": f"{settings.cricket_apns_bundle_id}.push-type.liveactivity",
        "apns-push-type": "liveactivity",
        "apns-priority": "5",
        "apns-expiration": "1900000000",
    }


def make_client(settings: Settings) -> Client:
    authority = settings.cricket_apns_authority
    if authority is None:
        raise AssertionError("the simulator needs its own certificate authority")
    builder = (
        ClientBuilder().http2_prior_knowledge().add_root_certificate_pem(authority.read_bytes())
    )
    return builder.timeout(timedelta(seconds=20)).build()


def resident_megabytes() -> float:
    """Return the anonymous resident memory of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024
