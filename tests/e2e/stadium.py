"""The whole program with cricket in it, beside a simulated SportMonks and Cognito, on a clock that the test moves."""

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

ADMIN = "an operator's key of thirty-two characters"


def settings_for(
    directory: Path,
    sportmonks: SportMonksSimulator,
    cognito: CognitoSimulator | None = None,
    **more: Any,
) -> Settings:
    """All leagues that are played are marquee leagues, so that every ball is followed."""
    leagues = {str(broadcast.match.league_id) for broadcast in sportmonks.broadcasts.values()}
    given: dict[str, Any] = {
        "data_dir": directory,
        "backends": ("cricket",),
        "cricket_sportmonks_url": sportmonks.api,
        "cricket_sportmonks_token": Secret(API_TOKEN),
        "cricket_sportmonks_hourly_limit": 1_000_000,
        "cricket_marquee_leagues": ",".join(sorted(leagues)),
        "cricket_admin_key": Secret(ADMIN),
    }
    if cognito is not None:
        given |= {"cricket_issuer": cognito.issuer, "cricket_client_id": cognito.client_id}
    return Settings(**given | more)


@dataclass(frozen=True)
class Stadium:
    """The program and the world around it."""

    sportmonks: SportMonksSimulator
    clock: ManualClock
    parts: Application
    cricket: Cricket

    async def poll(self, seconds: float = 2.5) -> None:
        """Let the time between two polls pass, poll, and wait until everybody has been told."""
        await self.clock.advance(seconds)
        await self.sit_out(self.cricket.live.poller.run())
        await self.sit_out(self.cricket.live.workers.wait_idle())

    async def sit_out(self, work: Any) -> Any:
        """The result of `work`, letting the time pass that it waits for."""
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

    async def memory(self, match_id: int) -> PipelineState:
        record = await self.cricket.repositories.matches.get(str(match_id))
        assert record is not None
        return pipeline_state(record)

    async def heard(self, match_id: int) -> MatchFeed:
        """What people who ask are told of a match."""
        heard = await self.cricket.services.queries.feeds.get(str(match_id))
        assert heard is not None
        return heard.feed


@asynccontextmanager
async def open_stadium(
    directory: Path, *matches: Match, cognito: CognitoSimulator | None = None, **settings: Any
) -> AsyncIterator[Stadium]:
    clock = ManualClock()
    async with SportMonksSimulator(clock).serving() as sportmonks:
        sportmonks.limits.hourly = 10**9
        for match in matches:
            sportmonks.add(match)
        async with open_application(
            settings_for(directory, sportmonks, cognito, **settings), clock
        ) as parts:
            cricket = parts.backends["cricket"]
            assert isinstance(cricket, Cricket)
            yield Stadium(sportmonks, clock, parts, cricket)


@dataclass(frozen=True)
class Visitor:
    """Somebody with a phone, who asks the server."""

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
async def served(parts: Application, token: str) -> AsyncIterator[Visitor]:
    """The program on a socket, and somebody who asks it.

    Its jobs are left to the test, which moves the clock.
    """
    async with (
        serving(build_app(replace(parts, jobs=()))) as url,
        ClientBuilder().build() as client,
    ):
        yield Visitor(client, url, token)
