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
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount

from tally import __version__
from tally.collect.wiring import REPOSITORIES as COLLECT_REPOSITORIES
from tally.collect.wiring import open_collect
from tally.cricket.repository.repositories import REPOSITORIES as CRICKET_REPOSITORIES
from tally.cricket.wiring.backend import open_cricket
from tally.dependencies import Dependencies
from tally.devices.wiring import REPOSITORIES as DEVICES_REPOSITORIES
from tally.devices.wiring import open_devices
from tally.kit import directory_lock, keyfile, logs
from tally.kit.backend import Backend, Probe
from tally.kit.clock import Clock, DeadlineExceeded, SystemClock, finish_within
from tally.kit.cursors import Cursors
from tally.kit.docs import render_docs
from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import Json, RequestContextMiddleware
from tally.kit.hub import Hub
from tally.kit.jobs import Job, JobRunner
from tally.kit.metrics import CONTENT_TYPE, Metrics
from tally.kit.openapi import document
from tally.scoreboard.wiring import open_scoreboard
from tally.settings import Settings
from tally.store import dynamodb
from tally.store.api import Engine
from tally.store.catalogue import Catalogue
from tally.store.collector import PatternCollector
from tally.store.report import PatternRow, pattern_rows
from tally.store.sqlite import open_sqlite
from tally.store.store import Store

PROBE_SECONDS: Final = 2.0
# Proxies close connections that are idle for a minute.
SSE_PING_SECONDS: Final = 30.0
SWEEP_BATCH_SIZE: Final = 500
DESCRIPTION: Final = "Live backends for sports, games and sensors on an embedded store."

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Application(Dependencies):
    """An open instance: its dependencies and the backends built from them."""

    probes: tuple[Probe, ...] = ()
    jobs: tuple[Job, ...] = ()
    apis: tuple[Api, ...] = ()
    backends: Mapping[str, Backend] = field(default_factory=dict)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def job_runner(self) -> JobRunner:
        return JobRunner(self.jobs, self.clock, self.metrics, grace=self.settings.shutdown_grace)

    def drain(self) -> None:
        """Start the shutdown: report not ready, and end streams with a reconnection delay."""
        self.stopping.set()
        self.hub.close()


CATALOGUE: Final = Catalogue(
    {
        "collect": COLLECT_REPOSITORIES,
        "cricket": CRICKET_REPOSITORIES,
        "devices": DEVICES_REPOSITORIES,
    }
)

BACKENDS: Final[Mapping[str, Callable[[Dependencies], AbstractAsyncContextManager[Backend]]]] = {
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
        dependencies = Dependencies(
            settings=settings, clock=clock, metrics=metrics, hub=hub, cursors=cursors, store=store
        )
        backends = {
            name: await stack.enter_async_context(BACKENDS[name](dependencies))
            for name in settings.backends
        }
        stack.enter_context(directory_lock.shared_lock(settings.data_dir))
        sweep = Job(
            name="ttl-sweep",
            description="Deletes expired items",
            run=partial(_sweep, engine, clock),
            interval=60,
        )
        yield Application(
            settings=settings,
            clock=clock,
            metrics=metrics,
            hub=hub,
            cursors=cursors,
            store=store,
            probes=(
                Probe("store", engine.ping),
                *chain.from_iterable(backend.probes for backend in backends.values()),
            ),
            jobs=(sweep, *chain.from_iterable(backend.jobs for backend in backends.values())),
            apis=tuple(backend.api for backend in backends.values()),
            backends=backends,
        )


@asynccontextmanager
async def open_engine(settings: Settings, clock: Clock) -> AsyncIterator[Engine]:
    """Open the engine that the settings name.

    The embedded engine creates its tables; on DynamoDB, `tally schema create` does.
    """
    if settings.store_engine == "dynamodb":
        async with dynamodb.open_dynamodb(
            endpoint=settings.dynamodb_endpoint,
            region=settings.dynamodb_region,
            table_prefix=settings.dynamodb_table_prefix,
        ) as engine:
            yield engine
        return
    rate = settings.store_writer_process_rate or None
    async with open_sqlite(
        settings.data_dir, clock=lambda: clock.time_ns() / 1e9, writer_process_rate=rate
    ) as embedded:
        for table in CATALOGUE.tables():
            await embedded.ensure_table(table)
        yield embedded


async def _sweep(engine: Engine, clock: Clock) -> None:
    """Delete expired items in small batches, so that other writes do not wait long."""
    for table in CATALOGUE.tables():
        deleted = SWEEP_BATCH_SIZE if table.ttl else 0
        while deleted == SWEEP_BATCH_SIZE:
            deleted = await engine.sweep(table, clock.seconds(), SWEEP_BATCH_SIZE)


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
            await stack.enter_async_context(runner)
            if extra is not None:
                await stack.enter_async_context(extra.running())
            yield

    mounts = [api.mount() for api in application.apis]
    if extra is not None:
        mounts.append(extra.mount)
    mounts.append(_InstanceRoutes(application).api.mount())
    scope = Middleware(
        RequestContextMiddleware,
        application.metrics,
        application.clock,
        application.settings.access_log,
    )
    return Starlette(routes=mounts, middleware=[scope], lifespan=lifespan)


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


class Readiness(msgspec.Struct, frozen=True):
    """`ready`, `not_ready` or `stopping`, with the result of each check.

    A result is `ok`, `failed` or `timed_out`.
    """

    status: str
    checks: dict[str, str]


class _InstanceRoutes:
    """The instance's own routes at the root; also handles paths that no backend serves."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self.api = Api(
            name="",
            description="Health, metrics, access patterns and API documentation of this instance.",
            endpoints=self._endpoints(),
        )
        openapi_document = document(
            "Tally", __version__, DESCRIPTION, [*application.apis, self.api]
        )
        self._document = msgspec.json.encode(openapi_document)
        self._page = render_docs(openapi_document)

    def _endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "GET",
                "/health",
                self.health,
                "Check liveness",
                response=Liveness,
                response_example=Liveness("ok"),
            ),
            Endpoint(
                "GET",
                "/health/ready",
                self.ready,
                "Check readiness",
                response=Readiness,
                response_example=Readiness("ready", {"store": "ok"}),
                other_responses={503: Readiness("not_ready", {"store": "failed"})},
            ),
            Endpoint(
                "GET",
                "/metrics",
                self.metrics,
                "Get Prometheus metrics",
                media_type="text/plain",
            ),
            Endpoint(
                "GET",
                "/patterns",
                self.patterns,
                "List access patterns with their calls, latency and capacity",
                response=list[PatternRow],
            ),
            Endpoint(
                "GET", "/openapi.json", self.openapi, "Get the OpenAPI document", response=dict
            ),
            Endpoint(
                "GET",
                "/docs",
                self.docs,
                "Show the API documentation",
                media_type="text/html",
            ),
        )

    async def health(self, _: Request) -> Response:
        return Json(Liveness("ok"))

    async def ready(self, _: Request) -> Response:
        probes = self._application.probes
        results = await asyncio.gather(*(self._check(probe) for probe in probes))
        checks = {probe.name: result for probe, result in zip(probes, results, strict=True)}
        if self._application.stopping.is_set():
            return Json(Readiness("stopping", checks), 503)
        is_ready = all(
            result == "ok"
            for probe, result in zip(probes, results, strict=True)
            if probe.is_required
        )
        return Json(
            Readiness("ready" if is_ready else "not_ready", checks), 200 if is_ready else 503
        )

    async def _check(self, probe: Probe) -> str:
        try:
            await finish_within(self._application.clock, PROBE_SECONDS, probe.check())
        except DeadlineExceeded:
            return "timed_out"
        except Exception as error:  # noqa: BLE001  (any error means that the dependency does not work)
            _log.warning(
                "Readiness check failed", action="readiness_failed", check=probe.name, error=error
            )
            return "failed"
        return "ok"

    async def metrics(self, _: Request) -> Response:
        return Response(self._application.metrics.render(), media_type=CONTENT_TYPE)

    async def patterns(self, _: Request) -> Response:
        return Json(pattern_rows(CATALOGUE, self._application.store.meters))

    async def openapi(self, _: Request) -> Response:
        return Response(self._document, media_type="application/json")

    async def docs(self, _: Request) -> Response:
        return HTMLResponse(
            self._page,
            headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
        )
