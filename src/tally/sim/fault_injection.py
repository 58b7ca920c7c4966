"""Injects faults into a simulator and records its requests.

    strava.faults.add(InjectedFault(path="/oauth/token", status=503, times=2))
    strava.faults.add(InjectedFault(path="/oauth/token", drop="after"))  # processed, then dropped

`FaultMiddleware` wraps the simulator's app and applies the first fault that matches a request. It
leaves the control API under `/_sim/` alone.
"""

from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tally.kit.clock import Clock
from tally.kit.event_stream import ABORT
from tally.kit.http import ErrorMiddleware
from tally.sim.page_protection import CONTROL_PREFIX, PageProtection
from tally.sim.request_parsing import read_json_body

MAX_RECORDED_REQUESTS: Final = 10_000
NO_CONTENT: Final = Response(status_code=204)


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault for the next `times` matching requests; None: for all of them until it is cleared."""

    # Matches a path prefix and, unless None, a method.
    path: str = "/"
    method: str | None = None
    times: Annotated[int, msgspec.Meta(ge=1)] | None = 1
    # Seconds on the simulator's clock before anything else happens.
    delay: Annotated[float, msgspec.Meta(ge=0)] = 0
    # Respond with this instead of processing the request. A truncated body is a malformed response.
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] | None = None
    body: str = ""
    content_type: str = "application/json"
    # Drop the connection before or after the request is processed.
    drop: Literal["before", "after"] | None = None

    def matches(self, method: str, path: str) -> bool:
        return path.startswith(self.path) and self.method in {None, method}


class RecordedRequest(msgspec.Struct, frozen=True):
    """A request and the status of its response; 0 if the connection was dropped."""

    method: str
    path: str
    status: int


class FaultInjector:
    """The pending faults, in order, and the requests received so far."""

    def __init__(self) -> None:
        self._pending: list[InjectedFault] = []
        self.requests: deque[RecordedRequest] = deque(maxlen=MAX_RECORDED_REQUESTS)

    def limit_requests(self, limit: int) -> None:
        """Record at most `limit` requests; a simulator that runs for days needs fewer."""
        self.requests = deque(self.requests, maxlen=limit)

    def add(self, fault: InjectedFault) -> None:
        self._pending.append(fault)

    def clear(self) -> None:
        self._pending.clear()

    @property
    def pending(self) -> tuple[InjectedFault, ...]:
        return tuple(self._pending)

    def count(self, path: str, method: str | None = None) -> int:
        """The number of recorded requests with this path prefix and method."""
        return sum(
            request.path.startswith(path) and method in {None, request.method}
            for request in self.requests
        )

    def take(self, method: str, path: str) -> InjectedFault | None:
        """Return the first matching fault and decrement its remaining `times`."""
        for index, fault in enumerate(self._pending):
            if not fault.matches(method, path):
                continue
            if fault.times is not None:
                remaining = fault.times - 1
                self._pending[index : index + 1] = (
                    [msgspec.structs.replace(fault, times=remaining)] if remaining > 0 else []
                )
            return fault
        return None


class FaultMiddleware:
    """ASGI middleware that applies the faults of a FaultInjector and records requests."""

    def __init__(self, app: ASGIApp, faults: FaultInjector, clock: Clock) -> None:
        self._app = app
        self._faults = faults
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(CONTROL_PREFIX):
            await self._app(scope, receive, send)
            return
        status = 0

        async def recording_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        fault = self._faults.take(scope["method"], scope["path"])
        try:
            if fault is None:
                await self._app(scope, receive, recording_send)
            else:
                await self._apply(fault, scope, receive, recording_send)
        finally:
            self._faults.requests.append(RecordedRequest(scope["method"], scope["path"], status))

    async def _apply(
        self, fault: InjectedFault, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if fault.delay:
            await self._clock.sleep(fault.delay)
        if fault.drop == "after":
            await self._app(scope, receive, _discard)
        if fault.drop is not None:
            await _drop_connection(scope, receive)
        elif fault.status is not None:
            response = Response(fault.body, fault.status, media_type=fault.content_type)
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def simulator_app(
    name: str, routes: Sequence[Route], faults: FaultInjector, clock: Clock, lifespan: Any = None
) -> Starlette:
    """The ASGI app of a simulator: routes, error handling, faults and protection from pages."""
    router = Router(list(routes), redirect_slashes=False)
    service = f"sim-{name}"
    app = FaultMiddleware(ErrorMiddleware(router, service), faults, clock)
    protected = ErrorMiddleware(PageProtection(app), service)
    return Starlette(routes=[Mount("/", protected)], lifespan=lifespan)


def fault_routes(faults: FaultInjector) -> list[Route]:
    """The part of a control API that adds and clears faults."""

    async def add(request: Request) -> Response:
        faults.add(await read_json_body(request, InjectedFault))
        return NO_CONTENT

    async def clear(_: Request) -> Response:
        faults.clear()
        return NO_CONTENT

    return [
        Route("/_sim/faults", add, methods=["POST"]),
        Route("/_sim/faults", clear, methods=["DELETE"]),
    ]


async def _discard(_: Message) -> None:
    """Drop a response message."""


async def _drop_connection(scope: Scope, receive: Receive) -> None:
    scope["extensions"][ABORT]["call"]()
    # Returning before the server notices the abort would log a missing response as an app error.
    while (await receive())["type"] != "http.disconnect":
        pass
