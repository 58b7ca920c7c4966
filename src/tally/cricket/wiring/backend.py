"""Builds and opens the backend: repositories, gateways, services, handlers and jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pyreqwest.client import Client, ClientBuilder

from tally.cricket.api.admin import AdminHandlers
from tally.cricket.api.auth import CricketAuthenticator
from tally.cricket.api.events import MatchLogs, MatchStreams
from tally.cricket.api.handlers import Handlers
from tally.cricket.api.routes import cricket_api
from tally.cricket.api.webhooks import match_source
from tally.cricket.apns.gateway import open_apns
from tally.cricket.jobs import live_jobs, sync_jobs
from tally.cricket.repository.key_events import (
    DisplayLog,
    KeyEventLog,
    changed_display,
    published_events,
)
from tally.cricket.repository.locks import StoreLocks
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities.devices import DeviceService
from tally.cricket.service.activities.follows import FollowService
from tally.cricket.service.activities.operator_actions import OperatorActions
from tally.cricket.service.activities.team_follows import TeamFollowService
from tally.cricket.service.ports import PushGateway
from tally.cricket.service.services import CricketServices, QueryServices
from tally.cricket.service.sync.reference_data import SyncService
from tally.cricket.sportmonks.budget import RequestBudget
from tally.cricket.sportmonks.client import SportMonksClient
from tally.cricket.sportmonks.gateway import SportMonksGateway
from tally.cricket.wiring.live import LiveServices, open_live
from tally.cricket.wiring.queries import build_queries
from tally.dependencies import Dependencies
from tally.instance.webhooks.sources import WebhookSource
from tally.kit.auth import KeySet, TokenVerifier, http_key_fetcher
from tally.kit.backend import Probe
from tally.kit.clock import Clock
from tally.kit.endpoints import Api
from tally.kit.ids import new_uuid
from tally.kit.jobs import Job
from tally.kit.operators import protect

REQUEST_TIMEOUT_SECONDS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Cricket:
    """The open backend: endpoints, jobs and services."""

    api: Api
    jobs: tuple[Job, ...]
    services: CricketServices
    repositories: Repositories
    live: LiveServices
    push_gateway: PushGateway
    probes: tuple[Probe, ...] = ()
    webhook_sources: tuple[WebhookSource, ...] = ()


@asynccontextmanager
async def open_cricket(dependencies: Dependencies) -> AsyncIterator[Cricket]:
    """Open the backend; on exit, this instance releases its matches and connections."""
    clock, repositories = dependencies.clock, Repositories.create(dependencies.store)
    queries = build_queries(repositories, clock)
    builder = (
        ClientBuilder()
        .timeout(timedelta(seconds=REQUEST_TIMEOUT_SECONDS))
        .follow_redirects(False)
        .user_agent("tally")
    )
    async with (
        builder.build() as client,
        open_apns(dependencies.settings, clock, dependencies.metrics) as push_gateway,
    ):
        scores = _sportmonks(dependencies, repositories, client)
        async with open_live(dependencies, repositories, queries, scores, push_gateway) as live:
            services = _services(dependencies, repositories, queries, live, scores)
            yield Cricket(
                api=_api(dependencies, client, services),
                jobs=_jobs(dependencies, repositories, services, live),
                services=services,
                repositories=repositories,
                live=live,
                push_gateway=push_gateway,
                webhook_sources=(match_source(KeyEventLog(dependencies.store), published_events),),
            )


def _services(
    dependencies: Dependencies,
    repositories: Repositories,
    queries: QueryServices,
    live: LiveServices,
    scores: SportMonksGateway,
) -> CricketServices:
    clock, activities = dependencies.clock, live.activities
    return CricketServices(
        queries=queries,
        devices=DeviceService(
            repositories.devices,
            clock,
            is_only_one=dependencies.settings.cricket_devices_per_user == "one",
            activities=activities,
        ),
        follows=FollowService(
            repositories.follows,
            repositories.fixtures,
            repositories.subscriptions,
            clock,
            activities,
        ),
        team_follows=TeamFollowService(repositories, activities, clock),
        activities=activities,
        replays=live.replays,
        sync=_sync(repositories, queries, scores, clock),
        operator_actions=OperatorActions(
            fixtures=repositories.fixtures,
            follows=repositories.follows,
            deleted_follows=repositories.deleted_follows,
            feeds=queries.feeds,
            clock=clock,
        ),
    )


def _match_streams(dependencies: Dependencies, services: CricketServices) -> MatchStreams:
    logs = MatchLogs(
        KeyEventLog(dependencies.store),
        DisplayLog(dependencies.store),
        published_events,
        changed_display,
    )
    queries = services.queries
    return MatchStreams(
        logs, queries.displays, queries.timelines, dependencies.hub, dependencies.clock
    )


def _api(dependencies: Dependencies, client: Client, services: CricketServices) -> Api:
    auth = CricketAuthenticator(_verifier(dependencies, client), dependencies.operators)
    handlers = Handlers(
        auth=auth,
        services=services,
        match_streams=_match_streams(dependencies, services),
        cursors=dependencies.cursors,
        hub=dependencies.hub,
        readiness=dependencies.readiness,
        streams=dependencies.streams,
    )
    admin_handlers = AdminHandlers(services=services, cursors=dependencies.cursors)
    api = cricket_api(handlers, admin_handlers)
    return protect(api, dependencies.operators, auth.require_admin)


def _jobs(
    dependencies: Dependencies,
    repositories: Repositories,
    services: CricketServices,
    live: LiveServices,
) -> tuple[Job, ...]:
    """Return the scheduled jobs; without a SportMonks token there are none."""
    settings = dependencies.settings
    if settings.cricket_sportmonks_token is None:
        return ()

    def new_locks() -> StoreLocks:
        return StoreLocks(repositories.locks, dependencies.clock, new_uuid())

    return (
        *sync_jobs(
            services.sync,
            services.queries.leagues,
            services.team_follows,
            new_locks,
            dependencies.clock,
        ),
        *live_jobs(live.poller, live.orchestrator, live.prematch, settings),
    )


def _sync(
    repositories: Repositories, queries: QueryServices, scores: SportMonksGateway, clock: Clock
) -> SyncService:
    return SyncService(
        source=scores,
        leagues=repositories.leagues,
        league_service=queries.leagues,
        teams=repositories.teams,
        seasons=repositories.seasons,
        fixtures=repositories.fixtures,
        cache=repositories.cache,
        follows=repositories.follows,
        feeds=queries.feeds,
        clock=clock,
    )


def _sportmonks(
    dependencies: Dependencies, repositories: Repositories, client: Client
) -> SportMonksGateway:
    settings = dependencies.settings
    budget = RequestBudget(
        repositories.request_windows, dependencies.clock, settings.cricket_sportmonks_hourly_limit
    )
    sportmonks = SportMonksClient(
        client,
        dependencies.clock,
        dependencies.metrics,
        budget,
        url=settings.cricket_sportmonks_url,
        token=settings.cricket_sportmonks_token,
        timeout=settings.cricket_sportmonks_timeout,
    )
    marquee_leagues = [
        league.strip() for league in settings.cricket_marquee_leagues.split(",") if league.strip()
    ]
    return SportMonksGateway(sportmonks, dependencies.clock, marquee_leagues)


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
