"""ASGI middleware for every request: request ID, log context, metrics and error responses.

`RequestContextMiddleware` is the outermost layer. It takes the client's X-Request-Id or generates
one, adds it to the response, and records the request under its route template. `ErrorMiddleware`
wraps each backend and turns exceptions into responses: domain errors by the table `STATUS`, unknown
paths and methods, and a 500 without details for anything unexpected. Every error of every backend
is an `application/problem+json` (RFC 9457).

Both are plain ASGI: they create no task and no queue per request.
"""

import math
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tally import errors
from tally.error_codes import ERROR_CODES
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.metrics import Metrics
from tally.kit.rate_limits import SCOPE_KEY, RateLimitExceeded, record_rate_limit
from tally.kit.route_table import PathMethods

STATUS: Final[Mapping[type[errors.TallyError], int]] = {
    errors.Invalid: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.UnsupportedMedia: 415,
    errors.Misdirected: 421,
    errors.RateLimited: 429,
    errors.Unavailable: 503,
}
# Error codes for the router's own responses.
CODES: Final[Mapping[int, str]] = {404: "not_found", 405: "method_not_allowed"}
NO_ROUTE: Final = "No route matches this path"
PROBLEM_JSON: Final = "application/problem+json"
ERRORS_PAGE: Final = "/docs/errors"
# Retry-After of a 503 whose cause gives no time.
DEFAULT_RETRY_SECONDS: Final = 5.0
# The client disconnected before the response; the status that proxies log for it.
CLIENT_CLOSED_REQUEST: Final = 499

# Responses with credentials or personal data must not be cached.
NO_STORE: Final = {"Cache-Control": "no-store"}

_valid_id = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_log = logs.logger()
_json_encoder = msgspec.json.Encoder()
_JSON_HEADER: Final = (b"content-type", b"application/json")


class Json(Response):
    """A JSON response whose content msgspec encodes."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return _json_encoder.encode(content)

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        if headers is not None or self.status_code != 200:
            super().init_headers(headers)
        else:  # the usual case, without the general one's look-ups
            self.raw_headers = [(b"content-length", b"%d" % len(self.body)), _JSON_HEADER]


class ProblemBody(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An error (RFC 9457). `type` links to the documentation of `code`.

    `field` names the invalid field or header. Some errors have further members, such as `limit`.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """An error response before it is rendered."""

    status: int
    code: str
    message: str
    details: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self, request_id: str | None) -> ProblemBody | dict[str, Any]:
        """Return the body: a struct, or a mapping if the error has further members."""
        known = ERROR_CODES.get(self.code)
        further = {name: value for name, value in self.details.items() if name != "field"}
        body = ProblemBody(
            type=f"{ERRORS_PAGE}#{self.code}",
            title=HTTPStatus(self.status).phrase if known is None else known.title,
            status=self.status,
            detail=self.message,
            code=self.code,
            field=self.details.get("field"),  # type: ignore[arg-type]
            request_id=request_id,
        )
        return {**further, **msgspec.to_builtins(body)} if further else body

    def response(self) -> Response:
        """Return the response, with the ID of the current request."""
        content = msgspec.json.encode(self.body(logs.current_context().request_id))
        headers = dict(self.headers)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return Response(content, self.status, headers, PROBLEM_JSON)


UNEXPECTED: Final = Problem(
    500, "internal_error", "Internal error; the logs contain details under the request ID"
)


def to_problem(error: Exception) -> Problem | None:
    """Return the problem to report for `error`, or None if it is unexpected."""
    if isinstance(error, HTTPException):
        code = CODES.get(error.status_code, "http_error")
        message = NO_ROUTE if error.status_code == 404 else error.detail
        return Problem(error.status_code, code, message, headers=error.headers or {})
    if not isinstance(error, errors.TallyError):
        return None
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), None)
    if status is None:
        return None
    headers = {}
    if isinstance(error, errors.RateLimited | errors.Unavailable):
        wait = DEFAULT_RETRY_SECONDS if error.retry_after is None else error.retry_after
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return Problem(status, error.code, error.message, error.details, headers)


class ErrorMiddleware:
    """Wraps a backend: adds its name to log lines and turns exceptions into responses."""

    def __init__(self, app: ASGIApp, service: str | None = None) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._service is not None:
            logs.bind_service(self._service)
        has_started = False

        # Not a coroutine function: the server's own coroutine is enough. So is `send_with_id`.
        def tracking_send(message: Message) -> Awaitable[None]:
            nonlocal has_started
            if not has_started:
                has_started = True
                rate_limit = scope.get(SCOPE_KEY)
                if rate_limit is not None:
                    message["headers"] = [*message.get("headers", ()), *rate_limit.headers()]
            return send(message)

        try:
            await self._app(scope, receive, tracking_send)
        except ClientDisconnect:
            _log.debug("Client disconnected", action="client_disconnected", path=scope["path"])
        except Exception as error:
            if has_started:
                raise  # the server aborts the connection, so that a partial response is detectable
            await self._respond(error, scope, receive, tracking_send)

    async def _respond(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        if isinstance(error, RateLimitExceeded):
            record_rate_limit(scope, error.status)
        problem = to_problem(error)
        if problem is None:
            problem = UNEXPECTED
            where = {"method": scope["method"], "path": scope["path"]}
            _log.error("Unexpected error", action="unexpected_error", exc_info=error, **where)
        await problem.response()(scope, receive, send)


class RequestContextMiddleware:
    """The outermost layer: request ID, log context, metrics and the optional access log."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, clock: Clock, access_log: bool = False
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id, correlation_id = _ids(scope["headers"])
        logs.set_context(logs.Context(request_id=request_id, correlation_id=correlation_id))
        header = (b"x-request-id", request_id.encode())
        status = CLIENT_CLOSED_REQUEST

        def send_with_id(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), header]
            return send(message)

        started = self._clock.monotonic()
        self._metrics.requests_in_flight += 1
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            self._metrics.requests_in_flight -= 1
            self._record(scope, status, self._clock.monotonic() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = route_template(scope)
        self._metrics.observe_request(scope["method"], route, status, seconds)
        if self._access_log:
            client = scope.get("client")
            where = {
                "method": scope["method"],
                "route": route,
                "path": scope["path"],
                "client": client[0] if client else None,
            }
            _log.info(
                "Request completed",
                action="http_request",
                status=status,
                milliseconds=round(seconds * 1000, 3),
                **where,
            )


def route_template(scope: Scope) -> str:
    """Return the template of the matched route, such as `/devices/devices/{hardware_id}`.

    Returns `unmatched` if no route matched.
    """
    endpoint = scope.get("endpoint")
    return endpoint.template if isinstance(endpoint, PathMethods) else "unmatched"


def _ids(headers: list[tuple[bytes, bytes]]) -> tuple[str, str]:
    """Return the request ID and correlation ID: the client's if valid, otherwise generated."""
    request_id = correlation_id = None
    for name, value in headers:
        if name == b"x-request-id" and _valid_id.fullmatch(value):
            request_id = value.decode()
        elif name == b"x-correlation-id" and _valid_id.fullmatch(value):
            correlation_id = value.decode()
    request_id = request_id or new_uuid()
    return request_id, correlation_id or request_id
