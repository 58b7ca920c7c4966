"""Declares routes: each `Endpoint` lists its handler, parameters, responses and errors.

A backend's `api/routes.py` builds one `Api` from its endpoints. The app mounts it under its name
(`Api.mount`), and `tally.kit.openapi` generates the OpenAPI document from the same declarations, so
that the documentation matches the routes.

    Api(
        name="devices",
        description="Stores each sensor reading exactly once.",
        error_format=ErrorFormat(FlatError, upper_case=True),
        endpoints=(
            Endpoint(
                "GET", "/devices/{hardware_id}", show_device, "Get a device",
                response=Device, security=("bearer",),
                errors=(NotFound("No device AA:BB:CC:DD:EE:FF", code="device_not_found"),),
            ),
        ),
    )
"""

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from tally.errors import TallyError
from tally.kit.http import ErrorFormat, ErrorMiddleware

Handler: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path.

    The fields mirror those of an OpenAPI operation, hence their number. `errors` are examples:
    instances with the code and message that clients receive.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    _: KW_ONLY
    description: str = ""
    # Types of path parameters that are not plain strings.
    path_types: Mapping[str, Any] = field(default_factory=dict)
    query: Any = None
    request: Any = None
    request_example: Any = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The endpoints of a backend, under one prefix and with one error format."""

    # Also the prefix of the paths; the API without a name is mounted at the root.
    name: str
    description: str
    endpoints: tuple[Endpoint, ...]
    error_format: ErrorFormat = field(default_factory=ErrorFormat)
    service: str | None = None
    # OpenAPI security schemes by the names that endpoints use.
    security_schemes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Wraps ErrorMiddleware, so that error responses pass through it too (CORS, for example).
    middleware: tuple[Middleware, ...] = ()

    @property
    def title(self) -> str:
        return self.name or "tally"

    @property
    def prefix(self) -> str:
        return f"/{self.name}" if self.name else ""

    def mount(self) -> Mount:
        router = Router(routes(self.endpoints), redirect_slashes=False)
        mount = Mount(
            self.prefix,
            ErrorMiddleware(router, self.error_format, self.service or self.name),
            middleware=self.middleware,
        )
        # Starlette's pattern would not match a path that contains a newline.
        mount.path_regex = re.compile(mount.path_regex.pattern, re.DOTALL)
        return mount


def routes(endpoints: Sequence[Endpoint]) -> list[Route]:
    """Return one route per path, in the order of first appearance."""
    by_path: dict[str, dict[str, Handler]] = defaultdict(dict)
    for operation in endpoints:
        if operation.method in by_path[operation.path]:
            raise ValueError(f"{operation.method} {operation.path} is declared twice")
        by_path[operation.path][operation.method] = operation.handler
    return [Route(path, _MethodDispatcher(handlers)) for path, handlers in by_path.items()]


class _MethodDispatcher:
    """Dispatches the methods of one path; returns 405 and an Allow header for others."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers.setdefault("HEAD", handlers["GET"])
        self._allowed = ", ".join(sorted(self._handlers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope["method"])
        if handler is None:
            raise HTTPException(
                405, f"The method must be {self._allowed}", {"Allow": self._allowed}
            )
        response = await handler(Request(scope, receive, send))
        await response(scope, receive, send)
