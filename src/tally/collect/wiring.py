"""Builds the collect backend: repositories, gateways, services, routes and jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pyreqwest.client import Client, ClientBuilder

from tally.collect.api.auth import CollectAuth
from tally.collect.api.events import MilestonePoller, MilestonePublisher, milestone_poller
from tally.collect.api.handlers import Handlers
from tally.collect.api.routes import collect_api
from tally.collect.jobs import collect_jobs
from tally.collect.oidc import OidcGateway
from tally.collect.repository.audit import AuditRepository
from tally.collect.repository.idempotency import IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.service.accounts import AccountService
from tally.collect.service.audit import AuditSearch, AuditTrail
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.linking import LinkingService
from tally.collect.service.metrics import InboxMetrics
from tally.collect.service.milestones import MilestoneService
from tally.collect.service.models import MODEL_CACHE_SECONDS, ModelCatalog, bundled_models
from tally.collect.service.services import CollectServices
from tally.collect.service.sign_in import SignInService
from tally.collect.service.webhook import WebhookService
from tally.collect.service.worker import InboxWorker
from tally.collect.strava import StravaGateway
from tally.dependencies import COLLECT_ADMIN_KEY, Dependencies
from tally.kit.backend import Probe
from tally.kit.encryption import Encryptor
from tally.kit.endpoints import Api
from tally.kit.ids import SortableIds
from tally.kit.jobs import Job
from tally.kit.ttl_cache import TTLCache
from tally.settings import LOOPBACK_HOSTS, Secret, SettingsError

REPOSITORIES: Final = (
    CollectRepository,
    BrowserSessionRepository,
    AuditRepository,
    IdempotencyRepository,
)
REQUEST_TIMEOUT_SECONDS: Final = 10
MAX_CACHED_MODELS: Final = 100


@dataclass(frozen=True, slots=True)
class Collect:
    """The open backend: its routes and jobs, and its services for the console."""

    api: Api
    jobs: tuple[Job, ...]
    services: CollectServices
    worker: InboxWorker
    audit: AuditTrail
    probes: tuple[Probe, ...] = ()


@asynccontextmanager
async def open_collect(dependencies: Dependencies) -> AsyncIterator[Collect]:
    """Open the backend. On exit, pending audit events are written."""
    settings = dependencies.settings
    if settings.collect_plain_http and settings.host not in LOOPBACK_HOSTS:
        raise SettingsError(
            ["TALLY_COLLECT_PLAIN_HTTP requires TALLY_HOST to be a loopback address"]
        )
    secret = dependencies.secret(settings.collect_secret, "collect.key")
    repository = CollectRepository(dependencies.store)
    async with (
        ClientBuilder()
        .timeout(timedelta(seconds=REQUEST_TIMEOUT_SECONDS))
        .follow_redirects(False)
        .user_agent("tally")
        .build() as client,
        AuditTrail(AuditRepository(dependencies.store), dependencies.clock, secret) as audit,
        milestone_poller(
            repository.versions, repository.milestone, dependencies.hub, dependencies.clock
        ) as poller,
    ):
        yield _Builder(dependencies, client, audit, poller, secret).build()


@dataclass(frozen=True, slots=True)
class _Builder:
    """Constructs the services on top of the resources that are open."""

    dependencies: Dependencies
    client: Client
    audit: AuditTrail
    poller: MilestonePoller
    secret: Secret

    def build(self) -> Collect:
        settings, store, clock = (
            self.dependencies.settings,
            self.dependencies.store,
            self.dependencies.clock,
        )
        strava = self._strava()
        services = self._services(strava)
        worker = InboxWorker(
            CollectRepository(store),
            IdempotencyRepository(store),
            services.linking,
            strava,
            services.engine,
            self.audit,
            clock,
            InboxMetrics(self.dependencies.metrics),
        )
        handlers = Handlers(
            services=services,
            auth=CollectAuth(
                services.sign_in,
                self.dependencies.key(COLLECT_ADMIN_KEY),
                settings.collect_public_url,
                settings.collect_plain_http,
            ),
            poller=self.poller,
            cursors=self.dependencies.cursors,
            hub=self.dependencies.hub,
        )
        return Collect(
            collect_api(handlers),
            collect_jobs(worker, services.models),
            services,
            worker,
            self.audit,
        )

    def _services(self, strava: StravaGateway) -> CollectServices:
        clock, store, audit = self.dependencies.clock, self.dependencies.store, self.audit
        repository, sessions = CollectRepository(store), BrowserSessionRepository(store)
        encryptor, provider = Encryptor(self.secret, "collect"), self._oidc()
        models = ModelCatalog(
            repository, bundled_models(), TTLCache(clock, MODEL_CACHE_SECONDS, MAX_CACHED_MODELS)
        )
        engine = ProgressEngine(repository, models, clock, audit, MilestonePublisher(self.poller))
        linking = LinkingService(repository, sessions, strava, encryptor, audit, clock)
        return CollectServices(
            sign_in=SignInService(sessions, repository, provider, encryptor, audit, clock),
            linking=linking,
            webhook=self._webhook(repository),
            accounts=AccountService(
                repository, sessions, linking, provider.delete_identity, encryptor, audit
            ),
            models=models,
            milestones=MilestoneService(
                repository, models, engine, audit, clock, SortableIds(clock)
            ),
            engine=engine,
            audit_search=AuditSearch(AuditRepository(store), clock),
        )

    def _webhook(self, repository: CollectRepository) -> WebhookService:
        settings = self.dependencies.settings
        return WebhookService(
            repository,
            self.dependencies.clock,
            self.dependencies.secret(
                settings.collect_strava_verify_token, "collect-strava-verify.key"
            ),
            settings.collect_strava_subscription_id,
        )

    def _strava(self) -> StravaGateway:
        settings = self.dependencies.settings
        return StravaGateway(
            self.client,
            self.dependencies.clock,
            self.dependencies.metrics,
            url=settings.collect_strava_url,
            client_id=settings.collect_strava_client_id,
            client_secret=settings.collect_strava_client_secret,
        )

    def _oidc(self) -> OidcGateway:
        settings = self.dependencies.settings
        return OidcGateway(
            self.client,
            self.dependencies.clock,
            issuer=settings.collect_oidc_issuer,
            client_id=settings.collect_oidc_client_id,
            client_secret=settings.collect_oidc_client_secret,
            delete_url=settings.collect_oidc_delete_url,
        )
