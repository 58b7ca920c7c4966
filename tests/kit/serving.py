"""Builds apps from the endpoints of a test and serves them on a real socket."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware

from tally.kit.clock import Clock, SystemClock
from tally.kit.endpoints import Api, ApiApplication, Endpoint
from tally.kit.http import RequestContextMiddleware
from tally.kit.metrics import Metrics
from tally.kit.route_table import Handler
from tally.kit.server import serving


def make_api(*endpoints: Endpoint, name: str = "devices") -> Api:
    return Api(name=name, description="Under test.", endpoints=endpoints)


def make_app(
    *apis: Api,
    metrics: Metrics | None = None,
    clock: Clock | None = None,
    access_log: bool = False,
    cors_origins: Collection[str] = (),
) -> Starlette:
    """Build an app like the composition root, with an empty instance API at the root."""
    scope = Middleware(
        RequestContextMiddleware, metrics or Metrics(), clock or SystemClock(), access_log
    )
    return ApiApplication((*apis, make_api(name="")), middleware=[scope], cors_origins=cors_origins)


@asynccontextmanager
async def serve_handler(
    handler: Handler,
    *,
    method: str = "POST",
    metrics: Metrics | None = None,
    grace: int = 10,
    on_stopping: Callable[[], object] = lambda: None,
) -> AsyncIterator[str]:
    """Serve `handler` at `/devices/thing/{thing_id}` and yield its URL."""
    endpoint = Endpoint(method, "/thing/{thing_id}", handler, "A thing")
    app = make_app(make_api(endpoint), metrics=metrics)
    async with serving(app, grace=grace, on_stopping=on_stopping) as url:
        yield f"{url}/devices/thing/1"
