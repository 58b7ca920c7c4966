"""The composition root: the one place that builds things and joins them, and the app that serves them.

`open_application` opens what must be opened, in order, and yields the `Application`; leaving it closes them in
reverse. `build_app` makes the Starlette app of the parts. Nobody imports this module but the
command line and the tests.

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
from tally.cricket.repository.catalogue import REPOSITORIES as CRICKET_REPOSITORIES
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
from tally.kit.locks import Locks
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
# Often enough for proxies, which cut connections that are silent for a minute.
PING_SECONDS: Final = 30.0
SWEEP_BITE: Final = 500
DESCRIPTION: Final = "Tally keeps score of live things, and tells everyone who is watching."

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """All that an instance is made of, built and open."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    hub: Hub
    cursors: Cursors
    store: Store
    locks: Locks | None = None
    probes: tuple[Probe, ...] = ()
    jobs: tuple[Job, ...] = ()
    apis: tuple[Api, ...] = ()
    backends: Mapping[str, Backend] = field(default_factory=dict)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def job_runner(self) -> JobRunner:
        return JobRunner(
            self.jobs, self.clock, self.metrics, self.locks, grace=self.settings.shutdown_grace
        )

    def drain(self) -> None:
        """Begin to stop: no longer ready, and streams end with word of when to come back."""
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
    """Open everything that `settings` ask for, and close it again in reverse order."""
    clock = clock or SystemClock()
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(open_engine(settings, clock))
        store = Store(engine, clock)
        metrics.registry.register(PatternCollector(CATALOGUE, store.meters))
        hub = Hub(clock, metrics, ping_seconds=PING_SECONDS)
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
            description="Deletes what has expired",
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
                *chain.from_iterable(each.probes for each in backends.values()),
            ),
            jobs=(sweep, *chain.from_iterable(each.jobs for each in backends.values())),
            apis=tuple(each.api for each in backends.values()),
            backends=backends,
        )


@asynccontextmanager
async def open_engine(settings: Settings, clock: Clock) -> AsyncIterator[Engine]:
    """The engine that the settings name.

    The embedded one makes its tables; on DynamoDB that is for `tally schema create`.
    """
    if settings.store_engine == "dynamodb":
        where = settings.dynamodb_endpoint
        prefix = settings.dynamodb_table_prefix
        async with dynamodb.open_dynamodb(
            endpoint=where, region=settings.dynamodb_region, table_prefix=prefix
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
    """A bite of each table at a time, so that nobody waits long behind it."""
    for table in CATALOGUE.tables():
        swept = SWEEP_BITE if table.ttl else 0
        while swept == SWEEP_BITE:
            swept = await engine.sweep(table, clock.seconds(), SWEEP_BITE)


class MountedApp(Protocol):
    """Something else that the app serves, with a start and an end of its own: the console."""

    @property
    def mount(self) -> Mount: ...

    def running(self) -> AbstractAsyncContextManager[None]: ...


def build_app(
    application: Application, *, build_extra: Callable[[JobRunner], MountedApp] | None = None
) -> Starlette:
    """The app that serves the parts: every backend under its name, and the routes of the instance itself."""
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
    """Runs a coroutine for as long as the context lasts."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._work)

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


class Liveness(msgspec.Struct, frozen=True):
    status: str


class Readiness(msgspec.Struct, frozen=True):
    """`ready`, `not_ready` or `stopping`; and what each check found: `ok`, `failed` or `timed_out`."""

    status: str
    checks: dict[str, str]


class _InstanceRoutes:
    """The routes of the instance itself, at the root, last: what no backend answers is answered here."""

    def __init__(self, application: Application) -> None:
        self._parts = application
        self.api = Api(
            name="",
            description="The instance itself: whether it is well, its figures, and this page.",
            endpoints=(
                Endpoint(
                    "GET",
                    "/health",
                    self.health,
                    "Alive",
                    response=Liveness,
                    response_example=Liveness("ok"),
                ),
                Endpoint(
                    "GET",
                    "/health/ready",
                    self.ready,
                    "Ready for requests",
                    response=Readiness,
                    response_example=Readiness("ready", {"store": "ok"}),
                    other_responses={503: Readiness("not_ready", {"store": "failed"})},
                ),
                Endpoint(
                    "GET",
                    "/metrics",
                    self.metrics,
                    "Figures for Prometheus",
                    media_type="text/plain",
                ),
                Endpoint(
                    "GET",
                    "/patterns",
                    self.patterns,
                    "Access patterns and what they cost",
                    response=list[PatternRow],
                ),
                Endpoint(
                    "GET", "/openapi.json", self.openapi, "The OpenAPI document", response=dict
                ),
                Endpoint(
                    "GET",
                    "/docs",
                    self.docs,
                    "The OpenAPI document as a page",
                    media_type="text/html",
                ),
            ),
        )
        told = document("Tally", __version__, DESCRIPTION, [*application.apis, self.api])
        self._document = msgspec.json.encode(told)
        self._page = render_docs(told)

    async def health(self, _: Request) -> Response:
        return Json(Liveness("ok"))

    async def ready(self, _: Request) -> Response:
        probes = self._parts.probes
        found = await asyncio.gather(*(self._check(probe) for probe in probes))
        checks = {probe.name: result for probe, result in zip(probes, found, strict=True)}
        if self._parts.stopping.is_set():
            return Json(Readiness("stopping", checks), 503)
        is_ready = all(
            result == "ok" for probe, result in zip(probes, found, strict=True) if probe.is_required
        )
        return Json(
            Readiness("ready" if is_ready else "not_ready", checks), 200 if is_ready else 503
        )

    async def _check(self, probe: Probe) -> str:
        try:
            await finish_within(self._parts.clock, PROBE_SECONDS, probe.check())
        except DeadlineExceeded:
            return "timed_out"
        except Exception as error:  # noqa: BLE001  (whatever it is, the answer is that this does not work)
            _log.warning("Not ready", action="readiness", check=probe.name, error=error)
            return "failed"
        return "ok"

    async def metrics(self, _: Request) -> Response:
        return Response(self._parts.metrics.render(), media_type=CONTENT_TYPE)

    async def patterns(self, _: Request) -> Response:
        return Json(pattern_rows(CATALOGUE, self._parts.store.meters))

    async def openapi(self, _: Request) -> Response:
        return Response(self._document, media_type="application/json")

    async def docs(self, _: Request) -> Response:
        return HTMLResponse(
            self._page,
            headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
        )
