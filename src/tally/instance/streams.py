"""The open streams of this instance: each counts for its client, and ends with its session.

A long download counts as a stream too (`AbortableDownload`).

    owner = streams.admit(request, person=f"cricket:{user_id}", expires_at=claims["exp"])
    return streams.response(owner, EventStream(hub, topic, request, snapshot))

A session may end on another instance, so every instance checks the sessions of its open streams
every two seconds, with one request per kind of session.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tally.errors import Unavailable
from tally.instance.repository.streams import StreamRepository
from tally.instance.stream_limits import StreamLimits
from tally.kit.addresses import client_address
from tally.kit.clock import Clock
from tally.kit.event_stream import ABORT
from tally.kit.hub import noop
from tally.kit.jobs import Job, JobSchedule
from tally.kit.metrics import Metrics
from tally.settings import Settings
from tally.store.store import Store

# Returns those of the session ids that are still active; raises Unavailable if it cannot tell.
FindActiveSessions: TypeAlias = Callable[[Sequence[str]], Awaitable[set[str]]]

CHECK_SECONDS: Final = 2.0

STREAMS_SCHEDULE: Final = JobSchedule(
    name="streams",
    description="Reports the open streams of this instance and ends those without a session",
    interval=CHECK_SECONDS,
)


@dataclass(frozen=True, slots=True)
class StreamSession:
    """A session, and the function that finds those that are still active."""

    session_id: str
    find_active: FindActiveSessions


@dataclass(frozen=True, slots=True)
class StreamOwner:
    """Whom a stream counts for, and until when it may stay open (epoch seconds)."""

    clients: tuple[str, ...]
    session: StreamSession | None = None
    expires_at: float | None = None


class StreamResponse(Protocol):
    """A response that runs until it is complete or its session ends."""

    def end(self) -> None:
        """End the response, because the session of its client has ended."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""


class AbortableDownload:
    """A streamed document. `end` aborts its connection, so that the client sees it is incomplete.

    A regular end would look like a complete response.
    """

    def __init__(self, response: StreamingResponse) -> None:
        self._response = response
        self._abort: Callable[[], object] = noop

    def end(self) -> None:
        self._abort()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._abort = scope["extensions"][ABORT]["call"]
        await self._response(scope, receive, send)


class OpenStreams:
    """Admits streams within the limits and ends them with their sessions."""

    def __init__(self, limits: StreamLimits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._open: dict[StreamResponse, StreamOwner] = {}

    def admit(
        self,
        request: Request,
        *,
        person: str | None = None,
        session: StreamSession | None = None,
        expires_at: float | None = None,
    ) -> StreamOwner:
        """Return the owner of a stream to open, or raise RateLimited.

        `person` is unique across backends, such as `cricket:{user id}`; None is anonymous.
        """
        address = f"address#{client_address(request)}"
        clients = (address,) if person is None else (address, _person_client(person))
        self.limits.check(clients)
        return StreamOwner(clients, session, expires_at)

    def response(self, owner: StreamOwner, events: StreamResponse) -> ASGIApp:
        """Return the response that counts the stream while it is open."""

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            async with self.limits.reserve(owner.clients):
                self._open[events] = owner
                try:
                    await events(scope, receive, send)
                finally:
                    del self._open[events]

        return respond

    def end_session(self, session_id: str) -> None:
        """End the streams of a session on this instance now; `maintain` ends those of others."""
        for events, owner in list(self._open.items()):
            if owner.session is not None and owner.session.session_id == session_id:
                events.end()

    def end_person(self, person: str) -> None:
        """End the streams of a person on this instance now, whichever session opened them."""
        client = _person_client(person)
        for events, owner in list(self._open.items()):
            if client in owner.clients:
                events.end()

    def job(self) -> Job:
        return STREAMS_SCHEDULE.job(self.maintain)

    async def maintain(self) -> None:
        """Renew the lease of this instance and end the streams whose session has ended."""
        await self.limits.renew()
        now = self._clock.time_ns() / 1e9
        sessions: dict[FindActiveSessions, dict[str, list[StreamResponse]]] = defaultdict(dict)
        for events, owner in list(self._open.items()):
            if owner.expires_at is not None and owner.expires_at <= now:
                events.end()
            elif owner.session is not None:
                by_id = sessions[owner.session.find_active]
                by_id.setdefault(owner.session.session_id, []).append(events)
        for find_active, by_id in sessions.items():
            await _end_inactive(find_active, by_id)


def _person_client(person: str) -> str:
    return f"person#{person}"


async def _end_inactive(
    find_active: FindActiveSessions, streams: dict[str, list[StreamResponse]]
) -> None:
    try:
        active = await find_active(list(streams))
    except Unavailable:
        return  # the next check decides
    for session_id in streams.keys() - active:
        for events in streams[session_id]:
            events.end()


def open_streams(settings: Settings, store: Store, clock: Clock, metrics: Metrics) -> OpenStreams:
    limits = StreamLimits(
        StreamRepository(store),
        clock,
        metrics,
        per_person=settings.streams_per_person,
        per_address=settings.streams_per_address,
    )
    return OpenStreams(limits, clock)
