"""The composition root: builds an instance from its settings, and the app that serves it.

`open_application` opens the store and the backends in order, yields the `Application` and closes
everything in reverse order. `build_app` creates the Starlette app. Only the command line, the
console and tests import this module.

    async with open_application(settings) as application:
        app = build_app(application)
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from tally import __version__
from tally.administration import Administration, open_administration
from tally.collect.jobs import SCHEDULES as COLLECT_SCHEDULES
from tally.collect.wiring import REPOSITORIES as COLLECT_REPOSITORIES
from tally.collect.wiring import open_collect
from tally.cricket.jobs import SCHEDULES as CRICKET_SCHEDULES
from tally.cricket.repository.repositories import REPOSITORIES as CRICKET_REPOSITORIES
from tally.cricket.wiring.backend import open_cricket
from tally.dependencies import Dependencies
from tally.devices.jobs import SCHEDULES as DEVICES_SCHEDULES
from tally.devices.wiring import REPOSITORIES as DEVICES_REPOSITORIES
from tally.devices.wiring import open_devices
from tally.instance.maintenance import SCRUB_SCHEDULE, SWEEP_SCHEDULE, StoreMaintenance
from tally.instance.operators import open_operators
from tally.instance.readiness import store_probe
from tally.instance.repository import REPOSITORIES as INSTANCE_REPOSITORIES
from tally.instance.repository.write_fences import WriteFenceRepository
from tally.instance.shard_pages import open_page_exchange
from tally.instance.streams import STREAMS_SCHEDULE, open_streams
from tally.instance.webhooks.sources import WebhookSource
from tally.kit import directory_lock, keyfile
from tally.kit.backend import Backend
from tally.kit.clock import Clock, SystemClock
from tally.kit.cursors import Cursors
from tally.kit.data_directory import secure_data_directory
from tally.kit.docs import docs_endpoints
from tally.kit.endpoints import Api, ApiApplication, Endpoint
from tally.kit.http import Json, RequestContextMiddleware
from tally.kit.hub import Hub
from tally.kit.jobs import Job, JobRunner, JobSchedule
from tally.kit.metrics import CONTENT_TYPE, Metrics
from tally.kit.openapi import document
from tally.kit.readiness import NOT_READY_EXAMPLE, READY_EXAMPLE, Readiness, ReadinessMonitor
from tally.scoreboard.jobs import SCHEDULES as SCOREBOARD_SCHEDULES
from tally.scoreboard.wiring import open_scoreboard
from tally.settings import Settings
from tally.store import dynamodb
from tally.store.api import Engine
from tally.store.catalogue import Catalogue
from tally.store.collector import PatternCollector
from tally.store.dynamodb.write_gate import WriteGate
from tally.store.report import PatternList, PatternRow, pattern_rows
from tally.store.schema import Table
from tally.store.sqlite import open_sqlite
from tally.store.store import Store

# Proxies close connections that are idle for a minute.
SSE_PING_SECONDS: Final = 30.0
DESCRIPTION: Final = (
    "Live backends for sports, games and sensors on an embedded store.\n\n"
    "Errors are `application/problem+json`; [their codes](/docs/errors) say what to do. Besides"
    " those of its operation, a request can get 404 or 405 (no such route), 408 (too slow), 414 and"
    " 431 (URL or headers too long), 421 (unknown host), 500, and 503 (too many connections, or the"
    " server stops)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application(Dependencies):
    """An open instance: its dependencies and the backends built from them.

    `engine` is for operation and maintenance; backends access it through the store only.
    """

    engine: Engine
    administration: Administration
    jobs: tuple[Job, ...] = ()
    apis: tuple[Api, ...] = ()
    backends: Mapping[str, Backend] = field(default_factory=dict)

    def job_runner(self) -> JobRunner:
        return JobRunner(
            self.jobs,
            self.clock,
            self.metrics,
            grace=self.settings.shutdown_grace,
            pauses=self.administration.job_pauses,
        )

    def drain(self) -> None:
        """Start the shutdown: report not ready, and end streams with a reconnection delay."""
        self.readiness.stop()
        self.hub.close()


CATALOGUE: Final = Catalogue(
    {
        "collect": COLLECT_REPOSITORIES,
        "cricket": CRICKET_REPOSITORIES,
        "devices": DEVICES_REPOSITORIES,
        "instance": INSTANCE_REPOSITORIES,
    }
)

# What `tally job list` shows without opening anything.
JOB_SCHEDULES: Final[Mapping[str, tuple[JobSchedule, ...]]] = {
    "instance": (SWEEP_SCHEDULE, SCRUB_SCHEDULE, STREAMS_SCHEDULE),
    "collect": COLLECT_SCHEDULES,
    "cricket": CRICKET_SCHEDULES,
    "devices": DEVICES_SCHEDULES,
    "scoreboard": SCOREBOARD_SCHEDULES,
}


class PublishingBackend(Backend, Protocol):
    """A backend whose events operators can subscribe to with webhooks."""

    @property
    def webhook_sources(self) -> tuple[WebhookSource, ...]: ...


BACKENDS: Final[
    Mapping[str, Callable[[Dependencies], AbstractAsyncContextManager[PublishingBackend]]]
] = {
    "collect": open_collect,
    "cricket": open_cricket,
    "devices": open_devices,
    "scoreboard": open_scoreboard,
}


@asynccontextmanager
async def open_application(
    settings: Settings, clock: Clock | None = None
) -> AsyncIterator[Application]:
    """Open the store and the backends that `settings` name, and close them in reverse order."""
    clock = clock or SystemClock()
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(open_engine(settings, clock))
        store = Store(engine, clock)
        metrics.registry.register(PatternCollector(CATALOGUE, store.meters))
        hub = Hub(clock, metrics, ping_seconds=SSE_PING_SECONDS)
        stack.callback(hub.close)
        cursors = Cursors(
            settings.cursor_secret or keyfile.read_or_create(settings.data_dir / "cursor.key")
        )
        operators = open_operators(settings, store, clock)
        # The probes watch other programs, whose time no test controls.
        readiness = ReadinessMonitor(SystemClock())
        streams = open_streams(settings, store, clock, metrics)
        stack.push_async_callback(streams.limits.release)
        dependencies = Dependencies(
            settings=settings,
            clock=clock,
            metrics=metrics,
            hub=hub,
            cursors=cursors,
            store=store,
            operators=operators,
            readiness=readiness,
            streams=streams,
        )
        backends = {
            name: await stack.enter_async_context(BACKENDS[name](dependencies))
            for name in settings.backends
        }
        readiness.add([store_probe(engine, store, clock, _needed_tables(settings))])
        readiness.add(chain.from_iterable(backend.probes for backend in backends.values()))
        stack.enter_context(directory_lock.shared_lock(settings.data_dir))
        maintenance = StoreMaintenance(engine, store, clock, CATALOGUE.tables(), metrics)
        readiness.add(maintenance.probes())
        sources = chain.from_iterable(backend.webhook_sources for backend in backends.values())
        opening = open_administration(dependencies, tuple(sources))
        administration = await stack.enter_async_context(opening)
        backend_jobs = chain.from_iterable(backend.jobs for backend in backends.values())
        yield Application(
            settings=settings,
            clock=clock,
            metrics=metrics,
            hub=hub,
            cursors=cursors,
            store=store,
            operators=operators,
            readiness=readiness,
            streams=streams,
            engine=engine,
            administration=administration,
            jobs=(*maintenance.jobs(), streams.job(), *backend_jobs),
            apis=(*(backend.api for backend in backends.values()), administration.api),
            backends=backends,
        )


@asynccontextmanager
async def open_engine(settings: Settings, clock: Clock) -> AsyncIterator[Engine]:
    """Open the engine that the settings name.

    The embedded engine creates its tables; on DynamoDB, `tally schema create` does.
    """
    secure_data_directory(settings.data_dir)
    if settings.store_engine == "dynamodb":
        async with AsyncExitStack() as stack:
            redis_url, exchange = settings.scoreboard_redis_url, None
            if redis_url is not None:
                exchange = await stack.enter_async_context(open_page_exchange(redis_url.reveal()))
            engine = await stack.enter_async_context(
                dynamodb.open_dynamodb(
                    endpoint=settings.dynamodb_endpoint,
                    region=settings.dynamodb_region,
                    table_prefix=settings.dynamodb_table_prefix,
                    exchange=exchange,
                )
            )
            fences = WriteFenceRepository(Store(engine, clock))
            # Leases last as long as in other processes, whatever the clock of the instance.
            engine.gate_writes(WriteGate(fences.reason, SystemClock()))
            yield engine
        return
    rate = settings.store_writer_process_rate or None
    async with open_sqlite(
        settings.data_dir,
        clock=lambda: clock.time_ns() / 1e9,
        writer_process_rate=rate,
        stream_retention=settings.store_stream_retention * 3_600.0,
    ) as embedded:
        for table in CATALOGUE.tables():
            await embedded.ensure_table(table)
        yield embedded


def _needed_tables(settings: Settings) -> list[Table]:
    """Return the tables that this instance needs."""
    used = {*settings.backends, "instance"}
    backends = {name: kinds for name, kinds in CATALOGUE.backends.items() if name in used}
    return Catalogue(backends).tables()


class MountedApp(Protocol):
    """Another app to serve, with its own lifespan: the console."""

    @property
    def mount(self) -> Mount: ...

    def running(self) -> AbstractAsyncContextManager[None]: ...


def build_app(
    application: Application, *, build_extra: Callable[[JobRunner], MountedApp] | None = None
) -> Starlette:
    """Build the app: each backend under its name, an extra app, and the instance's own routes."""
    runner = application.job_runner()
    extra = None if build_extra is None else build_extra(runner)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(_BackgroundTask(application.hub.run()))
            webhooks = application.administration.webhooks
            await stack.enter_async_context(_BackgroundTask(webhooks.run()))
            await stack.enter_async_context(application.readiness.running())
            await stack.enter_async_context(runner)
            if extra is not None:
                await stack.enter_async_context(extra.running())
            yield

    scope = Middleware(
        RequestContextMiddleware,
        application.metrics,
        application.clock,
        application.settings.access_log,
    )
    home = "/docs" if extra is None else f"{extra.mount.path}/"

    async def redirect_home(_: Request) -> Response:
        """Redirect from the console's path without the slash."""
        return RedirectResponse(home)

    return ApiApplication(
        [*application.apis, _InstanceRoutes(application, home).api],
        routes=() if extra is None else (extra.mount, Route(extra.mount.path, redirect_home)),
        middleware=[scope],
        cors_origins=application.settings.cors_origins,
        lifespan=lifespan,
    )


class _BackgroundTask:
    """Runs a coroutine while the context is open."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._work)

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


class Liveness(msgspec.Struct, frozen=True):
    """The body of /health."""

    status: str


class _InstanceRoutes:
    """The instance's own routes at the root; also handles paths that no backend serves."""

    def __init__(self, application: Application, home: str) -> None:
        self._application = application
        self._home = home
        self._rendering = asyncio.Lock()
        self.api = Api(
            name="",
            description="Health, metrics, access patterns and API documentation of this instance.",
            endpoints=self._endpoints(),
        )
        self._document = msgspec.json.encode(
            document("Tally", __version__, DESCRIPTION, [*application.apis, self.api])
        )

    def _endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "GET",
                "/",
                self.redirect_home,
                "Redirect to the console, or to the documentation without one",
                status=307,
                is_documented=False,
            ),
            Endpoint(
                "GET",
                "/health",
                self.check_health,
                "Check liveness",
                response=Liveness,
                response_example=Liveness("ok"),
            ),
            Endpoint(
                "GET",
                "/health/ready",
                self.check_readiness,
                "Check readiness",
                response=Readiness,
                description="Reports the last results of probes that run every second.",
                response_example=READY_EXAMPLE,
                other_responses={503: NOT_READY_EXAMPLE},
            ),
            Endpoint(
                "GET",
                "/metrics",
                self.get_metrics,
                "Get Prometheus metrics",
                media_type="text/plain",
                response_example="tally_http_requests_in_flight 1.0\n",
            ),
            Endpoint(
                "GET",
                "/patterns",
                self.list_patterns,
                "List access patterns with their calls, latency and capacity",
                response=PatternList,
                response_example=PatternList(self._patterns()[:1]),
            ),
            Endpoint(
                "GET",
                "/openapi.json",
                self.get_openapi,
                "Get the OpenAPI document",
                is_documented=False,
            ),
            *docs_endpoints(),
        )

    async def redirect_home(self, _: Request) -> Response:
        return RedirectResponse(self._home)

    async def check_health(self, _: Request) -> Response:
        return Json(Liveness("ok"))

    async def check_readiness(self, _: Request) -> Response:
        return self._application.readiness.report().response()

    async def get_metrics(self, _: Request) -> Response:
        # Thousands of series take a tenth of a second, so that requests would wait on the loop.
        async with self._rendering:
            page = await asyncio.to_thread(self._application.metrics.render)
        return Response(page, media_type=CONTENT_TYPE)

    async def list_patterns(self, _: Request) -> Response:
        return Json(PatternList(self._patterns()))

    def _patterns(self) -> list[PatternRow]:
        return pattern_rows(CATALOGUE, self._application.store.meters)

    async def get_openapi(self, _: Request) -> Response:
        return Response(self._document, media_type="application/json")
