"""Builds the collect backend: repositories, gateways, services, routes and jobs."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pyreqwest.client import Client, ClientBuilder

from tally.collect.activity_files.process import FileParser
from tally.collect.api.auth import CollectAuth, sign_in_limiter
from tally.collect.api.events import MilestoneStreams
from tally.collect.api.handlers import Handlers
from tally.collect.api.routes import collect_api
from tally.collect.api.webhooks import milestone_source
from tally.collect.jobs import collect_jobs
from tally.collect.oidc import OidcGateway
from tally.collect.repository.audit import AuditRepository
from tally.collect.repository.idempotency import IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.milestone_items import MilestoneLog, milestone_change
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.repository.table import user_pk
from tally.collect.service.accounts import AccountService
from tally.collect.service.audit import AuditSearch, AuditTrail
from tally.collect.service.deletion_steps import DeletionSteps
from tally.collect.service.deletions import DeletionService, DeletionWorker
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.event_application import EventApplication
from tally.collect.service.event_budget import EventBudget
from tally.collect.service.event_retries import EventRetries
from tally.collect.service.exports import ExportService
from tally.collect.service.imports import ImportLimits, ImportService
from tally.collect.service.linking import LinkingService
from tally.collect.service.metrics import (
    DeletionMetrics,
    InboxMetrics,
    SyncMetrics,
    WebhookMetrics,
    dropped_audit_events,
)
from tally.collect.service.milestones import MilestoneService
from tally.collect.service.models import MODEL_CACHE_SECONDS, ModelCatalog, bundled_models
from tally.collect.service.services import CollectServices
from tally.collect.service.sessions import SessionService
from tally.collect.service.sign_in import SignInService
from tally.collect.service.subscription import SubscriptionService
from tally.collect.service.sync import DeliveryFailures, StravaSyncService
from tally.collect.service.sync_pages import SyncPages
from tally.collect.service.sync_worker import SyncWorker
from tally.collect.service.webhook import KnownSubscription, WebhookSecrets, WebhookService
from tally.collect.service.worker import InboxWorker
from tally.collect.service.workout_reader import (
    INDEXED_CACHE_SECONDS,
    MAX_CACHED_PROFILES,
    WorkoutReader,
)
from tally.collect.service.workouts import WorkoutWriter
from tally.collect.strava.gateway import StravaGateway
from tally.collect.strava.subscriptions import SubscriptionGateway
from tally.dependencies import Dependencies
from tally.instance.webhooks.sources import WebhookSource
from tally.kit.backend import Probe
from tally.kit.encryption import Encryptor
from tally.kit.endpoints import Api
from tally.kit.ids import SortableIds
from tally.kit.jobs import Job
from tally.kit.operators import protect
from tally.kit.ttl_cache import TTLCache
from tally.settings import LOOPBACK_HOSTS, Secret, SettingsError

REPOSITORIES: Final = (
    CollectRepository,
    MilestoneLog,
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
    sync_worker: SyncWorker
    deletion_worker: DeletionWorker
    audit: AuditTrail
    probes: tuple[Probe, ...] = ()
    webhook_sources: tuple[WebhookSource, ...] = ()


@asynccontextmanager
async def open_collect(dependencies: Dependencies) -> AsyncIterator[Collect]:
    """Open the backend. On exit, pending audit events are written."""
    settings = dependencies.settings
    if settings.collect_plain_http and settings.host not in LOOPBACK_HOSTS:
        raise SettingsError(
            ["TALLY_COLLECT_PLAIN_HTTP requires TALLY_HOST to be a loopback address"]
        )
    secret = dependencies.secret(settings.collect_secret, "collect.key")
    async with (
        ClientBuilder()
        .timeout(timedelta(seconds=REQUEST_TIMEOUT_SECONDS))
        .follow_redirects(False)
        .user_agent("tally")
        .build() as client,
        AuditTrail(
            AuditRepository(dependencies.store),
            dependencies.clock,
            secret,
            dropped_audit_events(dependencies.metrics),
        ) as audit,
    ):
        yield _Builder(dependencies, client, audit, secret).build()


@dataclass(frozen=True, slots=True)
class _Builder:
    """Constructs the services on top of the resources that are open."""

    dependencies: Dependencies
    client: Client
    audit: AuditTrail
    secret: Secret

    def build(self) -> Collect:
        settings = self.dependencies.settings
        strava, provider = self._strava(), self._oidc()
        metrics = InboxMetrics(self.dependencies.metrics)
        services = self._services(strava, provider, metrics)
        deletion_worker = self._deletion_worker(services, provider)
        worker = self._worker(services, strava, metrics)
        sync_worker = self._sync_worker(services, strava)
        handlers = Handlers(
            services=services,
            auth=CollectAuth(
                services.sign_in,
                settings.collect_public_url,
                settings.collect_plain_http,
                sign_in_limiter(self.dependencies.clock, settings.collect_sign_in_limit),
            ),
            milestone_streams=MilestoneStreams(
                MilestoneLog(self.dependencies.store),
                milestone_change,
                user_pk,
                self.dependencies.hub,
                self.dependencies.clock,
            ),
            cursors=self.dependencies.cursors,
            hub=self.dependencies.hub,
            readiness=self.dependencies.readiness,
            streams=self.dependencies.streams,
        )
        return Collect(
            protect(collect_api(handlers), self.dependencies.operators),
            collect_jobs(worker, sync_worker, deletion_worker, services.models),
            services,
            worker,
            sync_worker,
            deletion_worker,
            self.audit,
            (Probe("strava", strava.application.check, is_required=False),),
            (milestone_source(MilestoneLog(self.dependencies.store), milestone_change),),
        )

    def _worker(
        self, services: CollectServices, strava: StravaGateway, metrics: InboxMetrics
    ) -> InboxWorker:
        settings, clock = self.dependencies.settings, self.dependencies.clock
        repository = CollectRepository(self.dependencies.store)
        idempotency = IdempotencyRepository(self.dependencies.store)
        return InboxWorker(
            repository,
            idempotency,
            EventApplication(
                repository,
                services.linking,
                services.sync,
                strava,
                self.audit,
                clock,
                metrics,
            ),
            strava,
            services.engine,
            EventBudget(
                idempotency,
                clock,
                settings.collect_strava_athlete_event_reads,
                settings.collect_strava_event_reads,
            ),
            services.retries,
            clock,
            metrics,
        )

    def _services(
        self, strava: StravaGateway, provider: OidcGateway, metrics: InboxMetrics
    ) -> CollectServices:
        clock, store, audit = self.dependencies.clock, self.dependencies.store, self.audit
        repository, sessions = CollectRepository(store), BrowserSessionRepository(store)
        encryptor = self._encryptor()
        models = ModelCatalog(
            repository, bundled_models(), TTLCache(clock, MODEL_CACHE_SECONDS, MAX_CACHED_MODELS)
        )
        workouts = WorkoutReader(
            repository, TTLCache(clock, INDEXED_CACHE_SECONDS, MAX_CACHED_PROFILES)
        )
        engine = ProgressEngine(repository, workouts, models, clock, audit)
        retries = EventRetries(repository, clock, metrics)
        linking = LinkingService(repository, sessions, strava, encryptor, audit, clock, retries)
        secrets = self._webhook_secrets()
        return CollectServices(
            sign_in=SignInService(
                sessions,
                repository,
                provider,
                encryptor,
                audit,
                clock,
                self.dependencies.metrics,
            ),
            linking=linking,
            webhook=self._webhook(repository, secrets),
            subscription=SubscriptionService(
                repository, self._subscriptions(strava), secrets, clock
            ),
            retries=retries,
            accounts=AccountService(repository, workouts, linking),
            deletions=DeletionService(repository, sessions, audit, clock),
            sessions=SessionService(repository, sessions, audit, clock),
            exports=ExportService(repository, AuditRepository(store)),
            models=models,
            milestones=MilestoneService(
                repository, models, engine, audit, clock, SortableIds(clock)
            ),
            engine=engine,
            sync=StravaSyncService(repository, clock, DeliveryFailures()),
            imports=self._imports(repository, engine),
            audit_search=AuditSearch(AuditRepository(store), clock),
        )

    def _imports(self, repository: CollectRepository, engine: ProgressEngine) -> ImportService:
        settings, clock = self.dependencies.settings, self.dependencies.clock
        return ImportService(
            repository,
            WorkoutWriter(repository, clock),
            engine,
            self.audit,
            clock,
            FileParser(settings.collect_max_file_bytes).parse,
            ImportLimits(clock, settings.collect_imports_per_hour),
            settings.collect_max_file_bytes,
        )

    def _sync_worker(self, services: CollectServices, strava: StravaGateway) -> SyncWorker:
        clock, repository = self.dependencies.clock, CollectRepository(self.dependencies.store)
        metrics = SyncMetrics(self.dependencies.metrics)
        pages = SyncPages(repository, services.linking, strava, services.engine, clock, metrics)
        return SyncWorker(repository, strava, pages, services.sync, clock, metrics)

    def _deletion_worker(self, services: CollectServices, provider: OidcGateway) -> DeletionWorker:
        repository = CollectRepository(self.dependencies.store)
        steps = DeletionSteps(
            repository,
            BrowserSessionRepository(self.dependencies.store),
            services.linking,
            provider.delete_identity,
            self._encryptor(),
        )
        metrics = DeletionMetrics(self.dependencies.metrics)
        return DeletionWorker(repository, steps, self.audit, self.dependencies.clock, metrics)

    def _encryptor(self) -> Encryptor:
        return Encryptor(self.secret, "collect")

    def _webhook_secrets(self) -> WebhookSecrets:
        settings, secret = self.dependencies.settings, self.dependencies.secret
        path_secret = secret(settings.collect_strava_webhook_secret, "collect-strava-webhook.key")
        if not re.fullmatch(r"[\w-]+", path_secret.reveal(), re.ASCII):
            raise SettingsError(
                ["TALLY_COLLECT_STRAVA_WEBHOOK_SECRET must contain letters, digits, - and _ only"]
            )
        return WebhookSecrets(
            path_secret,
            secret(settings.collect_strava_verify_token, "collect-strava-verify.key"),
        )

    def _webhook(self, repository: CollectRepository, secrets: WebhookSecrets) -> WebhookService:
        clock, configured = (
            self.dependencies.clock,
            self.dependencies.settings.collect_strava_subscription_id,
        )
        return WebhookService(
            repository,
            clock,
            secrets,
            KnownSubscription(repository, clock, configured),
            WebhookMetrics(self.dependencies.metrics),
        )

    def _subscriptions(self, strava: StravaGateway) -> SubscriptionGateway:
        settings = self.dependencies.settings
        return SubscriptionGateway(
            self.client,
            strava.application,
            settings.collect_strava_api_url,
            settings.collect_strava_client_id,
            settings.collect_strava_client_secret,
        )

    def _strava(self) -> StravaGateway:
        settings = self.dependencies.settings
        return StravaGateway(
            self.client,
            self.dependencies.clock,
            self.dependencies.metrics,
            api_url=settings.collect_strava_api_url,
            oauth_url=settings.collect_strava_oauth_url,
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
