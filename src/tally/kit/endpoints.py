"""Declares routes: each `Endpoint` lists its handler, parameters, responses and errors.

A backend's `api/routes.py` builds one `Api` from its endpoints. `ApiApplication` serves it under
its name, and `tally.kit.openapi` generates the OpenAPI document from the same declarations, so that
the documentation matches the routes.

    Api(
        name="devices",
        description="Stores each sensor reading exactly once.",
        endpoints=(
            Endpoint(
                "GET", "/devices/{hardware_id}", show_device, "Get a device",
                response=Device, security=("bearer",),
                errors=(NotFound("No device AA:BB:CC:DD:EE:FF", code="device_not_found"),),
            ),
        ),
    )
"""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from tally.errors import TallyError
from tally.kit.cors import CorsMiddleware
from tally.kit.http import ErrorMiddleware
from tally.kit.route_table import Handler, PathMethods, RouteTable


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path.

    The fields mirror those of an OpenAPI operation, hence their number. The name of the handler
    becomes the operation's ID, and so a function of generated clients. `errors` are examples:
    instances with the code and message that clients receive.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    _: KW_ONLY
    description: str = ""
    query: Any = None
    request: Any = None
    request_example: Any = None
    # The media types of a body that is a file, instead of `request`; the example is a text.
    file_types: tuple[str, ...] = ()
    response: Any = None
    response_example: Any = None
    status: int = 200
    # Further responses that are not domain errors: example by status.
    other_responses: Mapping[int, Any] = field(default_factory=dict)
    media_type: str = "application/json"
    # Alternative media types that a client may request; documented as text.
    other_media_types: tuple[str, ...] = ()
    errors: tuple[TallyError, ...] = ()
    security: tuple[str, ...] = ()
    # Pages for people are not part of the OpenAPI document.
    is_documented: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The endpoints of a backend, under one prefix."""

    # Also the prefix of the paths; the API without a name is mounted at the root.
    name: str
    description: str
    endpoints: tuple[Endpoint, ...]
    service: str | None = None
    # Types of path parameters, with an example each.
    path_types: Mapping[str, Any] = field(default_factory=dict)
    # OpenAPI security schemes by the names that endpoints use.
    security_schemes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.name or "tally"

    @property
    def prefix(self) -> str:
        return f"/{self.name}" if self.name else ""

    def app(self) -> ASGIApp:
        """Return the app that serves the endpoint which the dispatcher stored in the scope."""
        return ErrorMiddleware(serve_endpoint, self.service or self.name)


async def serve_endpoint(scope: Scope, receive: Receive, send: Send) -> None:
    """Call the handler of the method; raises HTTPException 404 or 405."""
    methods: PathMethods | None = scope["endpoint"]
    if methods is None:
        raise HTTPException(404)
    handler = methods.handlers.get(scope["method"])
    if handler is None:
        allowed = ", ".join(sorted(methods.handlers))
        raise HTTPException(405, f"The method must be {allowed}", {"Allow": allowed})
    response = await handler(Request(scope, receive, send))
    await response(scope, receive, send)


class ApiApplication(Starlette):
    """Serves APIs, whose endpoints it looks up in one table, and routes such as mounted apps.

    The API without a name also handles the paths of no API and no route. Starlette's own
    middleware is omitted: `ErrorMiddleware` handles the errors of an API, and a mounted app handles
    its own.
    """

    def __init__(
        self,
        apis: Sequence[Api],
        *,
        routes: Sequence[BaseRoute] = (),
        middleware: Sequence[Middleware] = (),
        cors_origins: Collection[str] = (),
        lifespan: Lifespan[Any] | None = None,
    ) -> None:
        super().__init__(routes=routes, middleware=middleware, lifespan=lifespan)
        self._apps = {api.name: (api.prefix, _with_cors(api, cors_origins)) for api in apis}
        self._table = RouteTable(
            (operation.method, api.prefix + operation.path, operation.handler)
            for api in apis
            for operation in api.endpoints
        )

    def build_middleware_stack(self) -> ASGIApp:
        return wrap_app(self._dispatch, self.user_middleware)

    def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Return the running app of the path: a coroutine less than awaiting it here."""
        if scope["type"] != "http":
            return self.router(scope, receive, send)
        path: str = scope["path"]
        name, slash, _ = path[1:].partition("/")
        found = self._apps.get(name) if slash else None
        endpoint, parameters = self._table.find(path)
        if found is None:
            for route in self.routes if endpoint is None else ():
                match, child_scope = route.matches(scope)
                if match is not Match.NONE:
                    scope.update(child_scope)
                    return route.handle(scope, receive, send)
            found = self._apps[""]
        prefix, app = found
        scope["endpoint"], scope["path_params"] = endpoint, parameters
        scope["root_path"] = scope.get("root_path", "") + prefix
        return app(scope, receive, send)


def _with_cors(api: Api, origins: Collection[str]) -> ASGIApp:
    """Return the app of an API; pages of other origins may call the backends only."""
    return CorsMiddleware(api.app(), origins) if origins and api.name else api.app()


def wrap_app(app: ASGIApp, middleware: Sequence[Middleware]) -> ASGIApp:
    """Return the app inside the middleware, the first outermost."""
    for wrapper, args, kwargs in reversed(middleware):
        app = wrapper(app, *args, **kwargs)
    return app
