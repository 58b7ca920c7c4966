"""Builds the cricket backend: gateways, services, handlers and jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pyreqwest.client import Client, ClientBuilder

from tally.cricket.api.admin import OperatorHandlers
from tally.cricket.api.auth import Callers
from tally.cricket.api.handlers import Handlers
from tally.cricket.api.routes import cricket_api
from tally.cricket.apns.gateway import open_apns
from tally.cricket.jobs import live_jobs, sync_jobs
from tally.cricket.repository.locks import StoreLocks
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities.devices import DeviceService
from tally.cricket.service.activities.follows import FollowService
from tally.cricket.service.ports import PushGateway
from tally.cricket.service.sync.sync import SyncService
from tally.cricket.sportmonks.client import SportMonksClient
from tally.cricket.sportmonks.gateway import SportMonksGateway
from tally.cricket.wiring.live import LiveServices, open_live
from tally.cricket.wiring.queries import Reading
from tally.dependencies import CRICKET_ADMIN_KEY, Dependencies
from tally.kit.auth import KeySet, TokenVerifier, http_key_fetcher
from tally.kit.backend import Probe
from tally.kit.clock import Clock
from tally.kit.endpoints import Api
from tally.kit.ids import new_uuid
from tally.kit.jobs import Job

REQUEST_TIMEOUT_SECONDS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Cricket:
    """The open backend: its routes and jobs, and the services that the console and tests use."""

    api: Api
    jobs: tuple[Job, ...]
    tables: Repositories
    reading: Reading
    live: LiveServices
    sync: SyncService
    follows: FollowService
    apns: PushGateway
    probes: tuple[Probe, ...] = ()


@asynccontextmanager
async def open_cricket(dependencies: Dependencies) -> AsyncIterator[Cricket]:
    """Open the backend."""
    clock, tables = dependencies.clock, Repositories.of(dependencies.store)
    reading = Reading.of(tables, clock)
    builder = (
        ClientBuilder()
        .timeout(timedelta(seconds=REQUEST_TIMEOUT_SECONDS))
        .follow_redirects(False)
        .user_agent("tally")
    )
    async with (
        builder.build() as client,
        open_apns(dependencies.settings, clock, dependencies.metrics) as apns,
    ):
        scores = _sportmonks(dependencies, client)
        async with open_live(
            tables,
            reading,
            scores,
            apns,
            hub=dependencies.hub,
            clock=clock,
            settings=dependencies.settings,
        ) as live:
            yield _build(dependencies, client, tables, reading, live, scores=scores, apns=apns)


def _build(
    dependencies: Dependencies,
    client: Client,
    tables: Repositories,
    reading: Reading,
    live: LiveServices,
    *,
    scores: SportMonksGateway,
    apns: PushGateway,
) -> Cricket:
    clock, settings = dependencies.clock, dependencies.settings
    callers = Callers(_verifier(dependencies, client), dependencies.key(CRICKET_ADMIN_KEY))
    sync = _sync(tables, reading, scores, clock)
    activities = live.activities
    follows = FollowService(
        tables.follows,
        tables.fixtures,
        tables.subscriptions,
        clock,
        activities,
    )
    handlers = Handlers(
        callers=callers,
        matches=reading.matches,
        displays=reading.displays,
        teams=reading.teams,
        leagues=reading.leagues,
        devices=DeviceService(
            tables.devices,
            clock,
            is_only_one=settings.cricket_devices_per_user == "one",
            activities=activities,
        ),
        follows=follows,
        activities=activities,
        follower=live.follower,
        cursors=dependencies.cursors,
        hub=dependencies.hub,
    )
    operators = OperatorHandlers(
        callers=callers,
        matches=reading.matches,
        teams=reading.teams,
        leagues=reading.leagues,
        sync=sync,
        admin=reading.admin,
        replays=reading.replays,
        cursors=dependencies.cursors,
    )
    # Without a SportMonks token there is nothing to schedule.
    has_scores = settings.cricket_sportmonks_token is not None

    def new_locks() -> StoreLocks:
        return StoreLocks(tables.locks, clock, new_uuid())

    jobs = (
        (
            *sync_jobs(sync, reading.leagues, new_locks, clock),
            *live_jobs(live.poller, live.orchestrator, live.prematch, settings),
        )
        if has_scores
        else ()
    )
    return Cricket(
        api=cricket_api(handlers, operators),
        jobs=jobs,
        tables=tables,
        reading=reading,
        live=live,
        sync=sync,
        follows=follows,
        apns=apns,
    )


def _sync(
    tables: Repositories, reading: Reading, scores: SportMonksGateway, clock: Clock
) -> SyncService:
    return SyncService(
        source=scores,
        leagues=tables.leagues,
        league_service=reading.leagues,
        teams=tables.teams,
        seasons=tables.seasons,
        fixtures=tables.fixtures,
        cache=tables.cache,
        feeds=reading.feeds,
        clock=clock,
    )


def _sportmonks(dependencies: Dependencies, client: Client) -> SportMonksGateway:
    settings = dependencies.settings
    asked = SportMonksClient(
        client,
        dependencies.clock,
        dependencies.metrics,
        url=settings.cricket_sportmonks_url,
        token=settings.cricket_sportmonks_token,
        timeout=settings.cricket_sportmonks_timeout,
        hourly=settings.cricket_sportmonks_hourly_limit,
    )
    marquee = [
        league.strip() for league in settings.cricket_marquee_leagues.split(",") if league.strip()
    ]
    return SportMonksGateway(asked, dependencies.clock, marquee)


def _verifier(dependencies: Dependencies, client: Client) -> TokenVerifier | None:
    settings = dependencies.settings
    if settings.cricket_issuer is None:
        return None
    url = settings.cricket_jwks_url or f"{settings.cricket_issuer}/.well-known/jwks.json"
    keys = KeySet(http_key_fetcher(client, url), dependencies.clock)
    return TokenVerifier(
        keys,
        dependencies.clock,
        issuer=settings.cricket_issuer,
        audience=settings.cricket_client_id,
    )
