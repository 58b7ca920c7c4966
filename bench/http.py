"""CPU time of a server process per HTTP request, compared with a bare Starlette echo.

Every server runs in a process of its own, and eight connections send one request at a time each.
CPU time is measured because it depends less on the load of the machine than latency does.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.cricket_harness import start_sportmonks
from bench.devices_server import create_board_key
from bench.http_client import KeepAliveClient, open_client
from bench.load import at_full_speed
from bench.programs import Program, start_module, start_program
from bench.readings import Boards
from bench.rounds import Line
from tally.kit.clock import SystemClock
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.sportmonks.core import API_TOKEN
from tally.sim.sportmonks.cricsheet import BUNDLED_MATCH_ID, bundled_match

_SECTION: Final = "HTTP, CPU time per request, closed loop of eight connections"
_CLIENTS: Final = 8
_REQUESTS: Final = 1_500
_BOARDS: Final = 200
_ECHO_BODY: Final = b'{"status":"ok"}'


@dataclass(frozen=True, slots=True)
class _Request:
    """A kind of request: its server, how to send one, and the content of a round."""

    name: str
    program: Program
    send: Callable[[Any], Awaitable[object]]
    prepare: Callable[[], Sequence[Any]]
    max_ratio: float = 0

    async def cost(self) -> float:
        """Send one round and return the CPU time per request in µs."""
        work = self.prepare()
        before = self.program.cpu_seconds()
        load = await at_full_speed(self.send, work, _CLIENTS)
        return (self.program.cpu_seconds() - before) / load.count * 1e6


async def http(rounds: int) -> AsyncIterator[Line]:
    """Measure all requests in alternating rounds."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="tally-bench-", ignore_cleanup_errors=True)
        )
        echo = await _start_echo(stack)
        requests = await _start_tally(stack, Path(folder))
        for one in (echo, *requests):  # warm up
            await one.cost()
        costs = [[await one.cost() for one in (echo, *requests)] for _ in range(rounds)]
    for number, request in enumerate(requests, start=1):
        ratio = median(row[number] / row[0] for row in costs)
        yield Line(
            _SECTION,
            request.name,
            median(row[number] for row in costs),
            "Starlette echo",
            median(row[0] for row in costs),
            ratio,
            f"at most {request.max_ratio:g} times",
            ratio <= request.max_ratio,
        )


async def _start_echo(stack: AsyncExitStack) -> _Request:
    arguments = ("bench.echo_app:app", "--port", "0", "--no-access-log")
    program = await stack.enter_async_context(start_module("uvicorn", *arguments, environment={}))
    client = stack.enter_context(open_client(program.url, {"Content-Type": "application/json"}))
    return _Request(
        "echo",
        program,
        partial(client.request, "POST", "/echo"),
        lambda: [_ECHO_BODY] * _REQUESTS,
    )


async def _start_tally(stack: AsyncExitStack, folder: Path) -> list[_Request]:
    """Start `tally serve` with a live match and a device API key, and one with the console."""
    sportmonks = await stack.enter_async_context(start_sportmonks(10))
    cognito = await stack.enter_async_context(CognitoSimulator(SystemClock()).serving())
    environment = {
        "TALLY_LOG_FORMAT": "json",
        "TALLY_DEVICES_RATE_LIMIT": "1000000",
        "TALLY_CRICKET_SPORTMONKS_URL": sportmonks.api,
        "TALLY_CRICKET_SPORTMONKS_TOKEN": API_TOKEN,
        "TALLY_CRICKET_MARQUEE_LEAGUES": str(bundled_match().league_id),
        "TALLY_CRICKET_ISSUER": cognito.issuer,
        "TALLY_CRICKET_CLIENT_ID": cognito.client_id,
    }

    async def start(name: str, *options: str) -> Program:
        arguments = ("serve", "cricket", "devices", "--port", "0", *options)
        directory = {"TALLY_DATA_DIR": str(folder / name)}
        return await stack.enter_async_context(
            start_program(*arguments, environment=environment | directory)
        )

    plain, console = await start("plain"), await start("console", "--console")
    key = await create_board_key(plain.url, folder / "plain")
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    client = stack.enter_context(open_client(plain.url, headers))
    console_client = stack.enter_context(open_client(console.url, headers))
    token = cognito.user_token("ana")
    match = f"/cricket/matches/{BUNDLED_MATCH_ID}"
    await wait_for_live_match(client, match, token)
    boards = Boards(_BOARDS, SystemClock().milliseconds())

    async def get_match(path: str) -> None:
        await client.request("GET", path, bearer=token)

    return [
        _Request("GET /health", plain, partial(client.request, "GET"), _paths("/health"), 1.3),
        _Request(
            "GET /health beside the console",
            console,
            partial(console_client.request, "GET"),
            _paths("/health"),
            1.3,
        ),
        _Request("GET /matches/{id}", plain, get_match, _paths(match), 3),
        _Request("GET /matches/{id}/display", plain, get_match, _paths(f"{match}/display"), 3),
        _Request(
            "POST /data with one reading",
            plain,
            partial(client.request, "POST", "/devices/data"),
            lambda: boards.bodies(_REQUESTS, 1),
            5,
        ),
    ]


def _paths(path: str) -> Callable[[], Sequence[str]]:
    return lambda: [path] * _REQUESTS


async def wait_for_live_match(client: KeepAliveClient, match: str, token: str) -> None:
    """Wait until the server has synced the match and displays it."""
    async with asyncio.timeout(60):
        while True:
            try:
                await client.request("GET", f"{match}/display", bearer=token)
            except AssertionError:
                await asyncio.sleep(0.2)
            else:
                return
