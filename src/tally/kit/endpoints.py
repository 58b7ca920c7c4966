"""Routes as a list: each `Endpoint` says what it takes, answers and refuses, and which function serves it.

A backend's `routes.py` makes one `Api` of its operations. The app mounts it under its name
(`Api.mount`), and the OpenAPI document is made of the same declarations (`tally.kit.openapi`), so
that what is documented is what is served.

    Api(
        name="devices",
        description="Sensor readings, once each.",
        wire=ErrorFormat(FlatError, upper_case=True),
        operations=(
            Endpoint(
                "GET", "/devices/{hardware_id}", show_device, "A device",
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
    """One method on one path.

    `errors` are examples: instances with the code and the words that clients will see.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    _: KW_ONLY
    description: str = ""
    # The types of the path's parameters, where there is more to tell of them than that they are
    # text.
    path_types: Mapping[str, Any] = field(default_factory=dict)
    query: Any = None
    request: Any = None
    request_example: Any = None
    response: Any = None
    response_example: Any = None
    status: int = 200
    # Answers besides the usual one that are no errors of the domain: status to example.
    other_responses: Mapping[int, Any] = field(default_factory=dict)
    media_type: str = "application/json"
    # What a client may ask for instead; documented as text.
    other_media_types: tuple[str, ...] = ()
    errors: tuple[TallyError, ...] = ()
    security: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The operations of a backend, under one prefix, with one shape of errors."""

    # Also the prefix of its paths; the one without a name stands at the root.
    name: str
    description: str
    endpoints: tuple[Endpoint, ...]
    error_format: ErrorFormat = field(default_factory=ErrorFormat)
    service: str | None = None
    # OpenAPI's security schemes by the names that operations use.
    security_schemes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Around the boundary, so that errors pass through it too: CORS, for one.
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
        # A path with a line end in it is this backend's to answer too; left as it is, the pattern
        # would not match it.
        mount.path_regex = re.compile(mount.path_regex.pattern, re.DOTALL)
        return mount


def routes(endpoints: Sequence[Endpoint]) -> list[Route]:
    """One route for each path, in the order in which the paths first appear."""
    by_path: dict[str, dict[str, Handler]] = defaultdict(dict)
    for operation in endpoints:
        if operation.method in by_path[operation.path]:
            raise ValueError(f"{operation.method} {operation.path} is declared twice")
        by_path[operation.path][operation.method] = operation.handler
    return [Route(path, _MethodDispatcher(handlers)) for path, handlers in by_path.items()]


class _MethodDispatcher:
    """Serves the methods of one path, and knows all of them when it refuses another."""

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
