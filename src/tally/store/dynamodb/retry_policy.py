"""Decides what is sent again, when, and how often.

The client's own retries are switched off: it cannot know what is safe.

| the request | and the attempt … | then |
|---|---|---|
| any | was throttled, met a conflict, or was never sent | again, after a pause |
| a read, or a transaction with its token | broke in the middle | again, after a pause |
| any other write | broke in the middle | `OutcomeUnknown`, at once: another try could undo what somebody wrote since |

Pauses grow exponentially and are drawn from zero up to the full length, so that many clients do not
come back together.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from tally.kit.clock import Clock, SystemClock
from tally.store.dynamodb.error_mapping import Fault, fault_of
from tally.store.errors import OutcomeUnknown, StoreError, Unavailable

Answer = TypeVar("Answer")

_RAISED_BY_THE_CLIENT = (
    ClientError,
    BotoCoreError,
    ResponseParserError,
    aiohttp.ClientError,
    OSError,
)


class Kind(Enum):
    """Whether sending a request twice can do harm."""

    READ = "a read"
    TOKENED = "a write that happens once, however often it is sent"
    WRITE = "a write"


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long to try; no pause is begun that would end later than `deadline` seconds after the start.

    A transaction in progress wants a try at least five seconds after the first; these defaults
    leave room for it.
    """

    attempts: int = 10
    first_pause: float = 0.05
    longest_pause: float = 3.0
    deadline: float = 15.0
    clock: Clock = field(default_factory=SystemClock)
    draw: Callable[[float, float], float] = random.uniform

    def pause(self, attempt: int) -> float:
        """How long to wait after the given attempt, counted from 1."""
        return self.draw(0.0, min(self.longest_pause, self.first_pause * 2.0 ** (attempt - 1)))


class _Again(Exception):
    """An attempt that may be repeated."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault.error))
        self.fault = fault


class Line:
    """The line to the service that all of an engine's requests take, so that none is cut off when the engine closes."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._closed = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def send(
        self,
        kind: Kind,
        where: str,
        method: Callable[..., Awaitable[Answer]],
        request: Mapping[str, Any],
        patience: Patience | None = None,
    ) -> Answer:
        """Send a request by one of the client's methods until it is answered, refused, or patience is at its end."""
        if self._closed:
            raise Unavailable(f"{where}: the engine is closed")
        self._under_way += 1
        self._idle.clear()
        try:
            return await _send(patience or self.patience, kind, where, method, request)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def close(self) -> None:
        """Take nothing new, and return when what was begun has come to its end."""
        self._closed = True
        await self._idle.wait()


async def _send(
    patience: Patience,
    kind: Kind,
    where: str,
    method: Callable[..., Awaitable[Answer]],
    request: Mapping[str, Any],
) -> Answer:
    end = patience.clock.monotonic() + patience.deadline
    doubtful = False  # whether any attempt of a write may have been carried out

    async def attempt() -> Answer:
        nonlocal doubtful
        try:
            return await method(**request)
        except _RAISED_BY_THE_CLIENT as error:
            fault = fault_of(error, where)
            doubtful = doubtful or (fault.unknown and kind is not Kind.READ)
            if fault.again or (fault.unknown and kind is not Kind.WRITE):
                raise _Again(fault) from error
            raise _verdict(fault, doubtful=fault.unknown and doubtful) from error

    def give_up(state: RetryCallState) -> bool:
        spent = patience.clock.monotonic() + state.upcoming_sleep > end
        return spent or state.attempt_number >= patience.attempts

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(_Again),
        wait=lambda state: patience.pause(state.attempt_number),
        stop=give_up,
        sleep=patience.clock.sleep,
        reraise=True,
    )
    try:
        return await retrying(attempt)
    except _Again as last:
        raise _verdict(last.fault, doubtful=doubtful) from last.__cause__


def _verdict(fault: Fault, *, doubtful: bool) -> StoreError:
    return (
        OutcomeUnknown(f"{fault.error}; whether it was applied is not known")
        if doubtful
        else fault.error
    )
