"""Starts SportMonks with thousands of upcoming matches and a live one, and the cricket backend."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
from pyreqwest.client import Client, ClientBuilder

from bench.programs import Program, start_program
from tally.app import open_application
from tally.cricket.wiring.backend import Cricket
from tally.kit.clock import SystemClock
from tally.settings import Secret, Settings
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.page_protection import CONTROL_HEADERS
from tally.sim.sportmonks.core import API_TOKEN
from tally.sim.sportmonks.cricsheet import BUNDLED_MATCH_ID, bundled_match
from tally.store.sqlite import SqliteEngine

# So that all matches start within the month that a sync covers.
_SECONDS_BETWEEN_MATCHES = 250


@dataclass(frozen=True, slots=True)
class SportMonksProgram:
    """The simulator, and the ids of its scheduled matches, the latest last."""

    program: Program
    match_ids: list[str]

    @property
    def api(self) -> str:
        return f"{self.program.url}/api/v2.0"


@asynccontextmanager
async def start_sportmonks(matches: int) -> AsyncIterator[SportMonksProgram]:
    """Start the simulator in a process, with upcoming matches and one in its seventh over."""
    arguments = ("sim", "cricket", "--speed", "1", "--port", "0", "--cognito-port", "0")
    async with (
        start_program(*arguments, environment={}) as program,
        ClientBuilder().error_for_status(True).build() as client,
    ):
        control = f"{program.url}/_sim"
        response = (
            await client.post(f"{control}/schedule")
            .headers(CONTROL_HEADERS)
            .body_json({"count": matches, "apart": _SECONDS_BETWEEN_MATCHES})
            .build()
            .send()
        )
        match_ids = [
            str(match_id) for match_id in msgspec.json.decode(bytes(await response.bytes()))["ids"]
        ]
        await (
            client.post(f"{control}/matches/{BUNDLED_MATCH_ID}/step")
            .headers(CONTROL_HEADERS)
            .body_json({"deliveries": 40})
            .build()
            .send()
        )
        yield SportMonksProgram(program, match_ids)


@dataclass(frozen=True, slots=True)
class InProcessBackend:
    """The backend in this process, without jobs."""

    engine: SqliteEngine
    cricket: Cricket


@asynccontextmanager
async def open_backend(directory: Path, api: str) -> AsyncIterator[InProcessBackend]:
    settings = Settings(
        data_dir=directory,
        backends=("cricket",),
        store_writer_process_rate=0,
        cricket_sportmonks_url=api,
        cricket_sportmonks_token=Secret(API_TOKEN),
        cricket_sportmonks_timeout=60,
        cricket_sportmonks_hourly_limit=1_000_000,
    )
    async with open_application(settings) as application:
        yield InProcessBackend(
            cast("SqliteEngine", application.engine),
            cast("Cricket", application.backends["cricket"]),
        )


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """`tally serve cricket` and an authenticated client."""

    program: Program
    client: Client
    token: str

    async def get(self, path: str) -> Any:
        response = (
            await self.client.get(f"{self.program.url}{path}")
            .bearer_auth(self.token)
            .build()
            .send()
        )
        content = bytes(await response.bytes())
        if response.status != 200:
            raise AssertionError(f"{path} returned {response.status}: {content[:200]!r}")
        return content

    async def wait_for(self, path: str) -> None:
        """Wait until the server's sync has stored the resource."""
        async with asyncio.timeout(600):
            while True:
                response = (
                    await self.client.get(f"{self.program.url}{path}")
                    .bearer_auth(self.token)
                    .build()
                    .send()
                )
                await response.bytes()
                if response.status == 200:
                    return
                await asyncio.sleep(0.2)


@asynccontextmanager
async def start_server(directory: Path, api: str) -> AsyncIterator[ServerProgram]:
    """Start the server with all jobs."""
    async with CognitoSimulator(SystemClock()).serving() as cognito:
        environment = {
            "TALLY_DATA_DIR": str(directory),
            "TALLY_LOG_FORMAT": "json",
            "TALLY_CRICKET_SPORTMONKS_URL": api,
            "TALLY_CRICKET_SPORTMONKS_TOKEN": API_TOKEN,
            "TALLY_CRICKET_SPORTMONKS_HOURLY_LIMIT": "1000000",
            "TALLY_CRICKET_MARQUEE_LEAGUES": str(bundled_match().league_id),
            "TALLY_CRICKET_ISSUER": cognito.issuer,
            "TALLY_CRICKET_CLIENT_ID": cognito.client_id,
        }
        async with (
            start_program("serve", "cricket", "--port", "0", environment=environment) as program,
            ClientBuilder().max_connections(256).build() as client,
        ):
            yield ServerProgram(program, client, cognito.user_token("ana"))
