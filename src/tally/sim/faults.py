"""What can go wrong on the way to a simulated service, arranged beforehand: late, refused, garbled or lost answers.

    strava.faults.add(Fault(path="/oauth/token", status=503, times=2))
    strava.faults.add(Fault(path="/oauth/token", drop="after"))   # it is done there, and nobody is told

`Faulty` stands around the simulator's app and applies the first fault that fits a request; it also
keeps a record of the requests, so that a test can see what was asked. The control API under
`/_sim/` is never touched.
"""

from collections import deque
from typing import Annotated, Final, Literal

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tally.kit.clock import Clock
from tally.kit.event_stream import ABORT

CONTROL: Final = "/_sim"
MAX_REMEMBERED: Final = 10_000


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that goes wrong: `times` often, or until it is cleared where that is None."""

    # Requests whose path begins so, with any method unless one is named.
    path: str = "/"
    method: str | None = None
    times: Annotated[int, msgspec.Meta(ge=1)] | None = 1
    # Seconds on the simulator's clock before anything else happens.
    delay: Annotated[float, msgspec.Meta(ge=0)] = 0
    # An answer instead of the right one; the work is not done. A body that breaks off is a
    # malformed answer.
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] | None = None
    body: str = ""
    content_type: str = "application/json"
    # The connection is cut: before the work is done, or after it.
    drop: Literal["before", "after"] | None = None

    def fits(self, method: str, path: str) -> bool:
        return path.startswith(self.path) and self.method in {None, method}


class Seen(msgspec.Struct, frozen=True):
    """A request as it came in, and the status it got; 0 if the connection was cut."""

    method: str
    path: str
    status: int


class Faults:
    """The faults that are still to come, in order, and the requests that have been."""

    def __init__(self) -> None:
        self._pending: list[Fault] = []
        self.seen: deque[Seen] = deque(maxlen=MAX_REMEMBERED)

    def remember(self, most: int) -> None:
        """Keep no more requests than this: who runs for days wants fewer than a test."""
        self.seen = deque(self.seen, maxlen=most)

    def add(self, fault: Fault) -> None:
        self._pending.append(fault)

    def clear(self) -> None:
        self._pending.clear()

    @property
    def pending(self) -> tuple[Fault, ...]:
        return tuple(self._pending)

    def count(self, path: str, method: str | None = None) -> int:
        """How many requests came whose path begins so."""
        return sum(
            1 for seen in self.seen if seen.path.startswith(path) and method in {None, seen.method}
        )

    def take(self, method: str, path: str) -> Fault | None:
        """The first fault that fits, used up by one."""
        for place, fault in enumerate(self._pending):
            if not fault.fits(method, path):
                continue
            if fault.times is not None:
                left = fault.times - 1
                self._pending[place : place + 1] = (
                    [msgspec.structs.replace(fault, times=left)] if left > 0 else []
                )
            return fault
        return None


class Faulty:
    """Plain ASGI around a simulator's app."""

    def __init__(self, app: ASGIApp, faults: Faults, clock: Clock) -> None:
        self._app = app
        self._faults = faults
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(CONTROL):
            await self._app(scope, receive, send)
            return
        status = 0

        async def watching_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        fault = self._faults.take(scope["method"], scope["path"])
        try:
            if fault is None:
                await self._app(scope, receive, watching_send)
            else:
                await self._fail(fault, scope, receive, watching_send)
        finally:
            self._faults.seen.append(Seen(scope["method"], scope["path"], status))

    async def _fail(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        if fault.delay:
            await self._clock.sleep(fault.delay)
        if fault.drop == "after":
            await self._app(scope, receive, _nowhere)
        if fault.drop is not None:
            await _cut(scope, receive)
        elif fault.status is not None:
            await Response(fault.body, fault.status, media_type=fault.content_type)(
                scope, receive, send
            )
        else:
            await self._app(scope, receive, send)


async def _nowhere(_: Message) -> None:
    """Where an answer goes that never arrives."""


async def _cut(scope: Scope, receive: Receive) -> None:
    scope["extensions"][ABORT]["call"]()
    # Until the server has noticed, it would take the missing answer for a mistake of the app.
    while (await receive())["type"] != "http.disconnect":
        pass
