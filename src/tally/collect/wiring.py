"""The backend put together: repositories, services and gateways on a store and the settings, opened and closed as one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pyreqwest.client import Client, ClientBuilder

from tally.collect.api.browser import Site
from tally.collect.api.events import Announcer, MilestoneFollower, milestone_follower
from tally.collect.api.handlers import Handlers
from tally.collect.api.routes import collect_api
from tally.collect.jobs import collect_jobs
from tally.collect.oidc import OidcIssuer
from tally.collect.repository.audit import AuditRepository
from tally.collect.repository.idempotency import IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import SessionRepository
from tally.collect.service.accounts import Accounts
from tally.collect.service.audit import AuditTrail
from tally.collect.service.audit_search import AuditSearch
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.linking import Linking
from tally.collect.service.metrics import InboxFigures
from tally.collect.service.milestones import MilestoneService
from tally.collect.service.models import KNOWN_SECONDS, ModelShelf
from tally.collect.service.sign_in import SignIn
from tally.collect.service.webhook import Webhook
from tally.collect.service.worker import InboxWorker
from tally.collect.service.workouts import WorkoutService
from tally.collect.shipped import shipped_models
from tally.collect.strava import StravaGateway
from tally.dependencies import COLLECT_ADMIN_KEY, Dependencies
from tally.kit.backend import Probe
from tally.kit.encryption import Encryptor
from tally.kit.endpoints import Api
from tally.kit.ids import SortableIds
from tally.kit.jobs import Job
from tally.kit.ttl_cache import TTLCache
from tally.settings import SettingsError

REPOSITORIES: Final = (CollectRepository, SessionRepository, AuditRepository, IdempotencyRepository)
CALL_SECONDS: Final = 10
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class Collect:
    """The backend, open: its routes, its jobs, and the parts that the console and tests look into."""

    api: Api
    jobs: tuple[Job, ...]
    handlers: Handlers
    worker: InboxWorker
    audit: AuditTrail
    probes: tuple[Probe, ...] = ()


@asynccontextmanager
async def open_collect(dependencies: Dependencies) -> AsyncIterator[Collect]:
    """The backend for as long as this lasts; at the end, what waits to be audited is written."""
    settings = dependencies.settings
    if settings.collect_plain_http and settings.host not in LOOPBACK:
        raise SettingsError(
            ["TALLY_COLLECT_PLAIN_HTTP is for this machine alone: TALLY_HOST must be 127.0.0.1"]
        )
    timeout = timedelta(seconds=CALL_SECONDS)
    secret = dependencies.secret(settings.collect_secret, "collect.key")
    async with (
        ClientBuilder()
        .timeout(timeout)
        .follow_redirects(False)
        .user_agent("tally")
        .build() as client,
        AuditTrail(AuditRepository(dependencies.store), dependencies.clock, secret) as audit,
        milestone_follower(
            CollectRepository(dependencies.store), dependencies.hub, dependencies.clock
        ) as follower,
    ):
        yield _assembled(dependencies, client, audit, follower, Encryptor(secret, "collect"))


def _assembled(
    dependencies: Dependencies,
    client: Client,
    audit: AuditTrail,
    follower: MilestoneFollower,
    encryptor: Encryptor,
) -> Collect:
    clock, store, settings = dependencies.clock, dependencies.store, dependencies.settings
    main, sessions = CollectRepository(store), SessionRepository(store)
    strava, issuer = _strava(dependencies, client), _issuer(dependencies, client)
    shelf = ModelShelf(main, shipped_models(), TTLCache(clock, KNOWN_SECONDS, 100))
    engine = ProgressEngine(main, shelf, clock, audit, Announcer(follower))
    linking = Linking(main, sessions, strava, encryptor, audit, clock)
    worker = InboxWorker(
        main,
        IdempotencyRepository(store),
        linking,
        strava,
        engine,
        audit,
        clock,
        InboxFigures(dependencies.metrics),
    )
    handlers = Handlers(
        site=Site(settings.collect_public_url, settings.collect_plain_http),
        sign_in=SignIn(sessions, main, issuer, encryptor, audit, clock),
        linking=linking,
        webhook=Webhook(
            main,
            clock,
            dependencies.secret(settings.collect_strava_verify_token, "collect-strava-verify.key"),
            settings.collect_strava_subscription_id,
        ),
        accounts=Accounts(main, sessions, linking, issuer.delete_identity, encryptor, audit, clock),
        shelf=shelf,
        milestones=MilestoneService(main, shelf, engine, audit, clock, SortableIds(clock)),
        engine=engine,
        workout_service=WorkoutService(main),
        audit_search=AuditSearch(AuditRepository(store), clock),
        follower=follower,
        cursors=dependencies.cursors,
        hub=dependencies.hub,
        admin_token=dependencies.key(COLLECT_ADMIN_KEY),
    )
    return Collect(collect_api(handlers), collect_jobs(worker, shelf), handlers, worker, audit)


def _strava(dependencies: Dependencies, client: Client) -> StravaGateway:
    settings = dependencies.settings
    return StravaGateway(
        client,
        dependencies.clock,
        dependencies.metrics,
        url=settings.collect_strava_url,
        client_id=settings.collect_strava_client_id,
        client_secret=settings.collect_strava_client_secret,
    )


def _issuer(dependencies: Dependencies, client: Client) -> OidcIssuer:
    settings = dependencies.settings
    return OidcIssuer(
        client,
        dependencies.clock,
        issuer=settings.collect_oidc_issuer,
        client_id=settings.collect_oidc_client_id,
        client_secret=settings.collect_oidc_client_secret,
        delete_url=settings.collect_oidc_delete_url,
    )
