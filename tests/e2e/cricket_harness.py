"""Starts the application with cricket, SportMonks and Cognito simulators, on a manual clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from pyreqwest.client import Client, ClientBuilder

from tally.app import Application, build_app, open_application
from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.pipeline import PipelineState, pipeline_state
from tally.cricket.wiring.backend import Cricket
from tally.kit.clock import ManualClock
from tally.kit.server import serving
from tally.settings import Secret, Settings
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.sportmonks.core import API_TOKEN
from tally.sim.sportmonks.match import Match
from tally.sim.sportmonks.simulator import SportMonksSimulator

ADMIN = "the-token-of-the-operators-0123456789"


def settings_for(
    directory: Path,
    sportmonks: SportMonksSimulator,
    cognito: CognitoSimulator | None = None,
    **more: Any,
) -> Settings:
    """Return settings with all leagues as marquee leagues, so that every ball is polled."""
    leagues = {str(broadcast.match.league_id) for broadcast in sportmonks.playbacks.values()}
    values: dict[str, Any] = {
        "data_dir": directory,
        "backends": ("cricket",),
        "cricket_sportmonks_url": sportmonks.api,
        "cricket_sportmonks_token": Secret(API_TOKEN),
        "cricket_sportmonks_hourly_limit": 1_000_000,
        "cricket_marquee_leagues": ",".join(sorted(leagues)),
        "operator_token": Secret(ADMIN),
    }
    if cognito is not None:
        values |= {"cricket_issuer": cognito.issuer, "cricket_client_id": cognito.client_id}
    return Settings(**values | more)


@dataclass(frozen=True)
class CricketHarness:
    """The application with cricket, simulated SportMonks and the clock."""

    sportmonks: SportMonksSimulator
    clock: ManualClock
    application: Application
    cricket: Cricket

    async def poll(self, seconds: float = 2.5) -> None:
        """Advance the clock, poll once and wait for all fan-outs."""
        await self.clock.advance(seconds)
        await self.advance_until_done(self.cricket.live.poller.run())
        await self.advance_until_done(self.cricket.live.workers.wait_idle())

    async def advance_until_done(self, work: Any) -> Any:
        """Advance the clock until `work` is done; return its result."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task}, timeout=0.02)
            if not task.done():
                await self.clock.advance(0.1)
        return await task

    async def sync(self) -> None:
        for work in (
            self.cricket.services.sync.sync_leagues,
            self.cricket.services.sync.sync_teams,
            self.cricket.services.sync.sync_fixtures,
        ):
            await work()

    async def state(self, match_id: int) -> PipelineState:
        record = await self.cricket.repositories.matches.get(str(match_id))
        assert record is not None
        return pipeline_state(record)

    async def cached_feed(self, match_id: int) -> MatchFeed:
        """Return the cached feed of a match."""
        cached = await self.cricket.services.queries.feeds.get(str(match_id))
        assert cached is not None
        return cached.feed


@asynccontextmanager
async def open_cricket_harness(
    directory: Path, *matches: Match, cognito: CognitoSimulator | None = None, **settings: Any
) -> AsyncIterator[CricketHarness]:
    clock = ManualClock()
    async with SportMonksSimulator(clock).serving() as sportmonks:
        sportmonks.limits.hourly = 10**9
        for match in matches:
            sportmonks.add(match)
        async with open_application(
            settings_for(directory, sportmonks, cognito, **settings), clock
        ) as application:
            cricket = application.backends["cricket"]
            assert isinstance(cricket, Cricket)
            yield CricketHarness(sportmonks, clock, application, cricket)


@dataclass(frozen=True)
class ApiClient:
    """An authenticated client of the cricket API."""

    client: Client
    url: str
    token: str

    async def get(self, path: str) -> Any:
        response = (
            await self.client.get(f"{self.url}/cricket{path}")
            .bearer_auth(self.token)
            .build()
            .send()
        )
        body = msgspec.json.decode(bytes(await response.bytes()))
        assert response.status == 200, body
        return body


@asynccontextmanager
async def serve(application: Application, token: str) -> AsyncIterator[ApiClient]:
    """Serve the application on a socket; its jobs are left to the test."""
    async with (
        serving(build_app(replace(application, jobs=()))) as url,
        ClientBuilder().build() as client,
    ):
        yield ApiClient(client, url, token)
