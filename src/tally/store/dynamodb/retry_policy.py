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
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from tally.store.dynamodb.error_mapping import MappedError, map_error
from tally.store.dynamodb.options import DynamoDBRetryPolicy
from tally.store.errors import OutcomeUnknown, StoreError, StoreUnavailable

Answer = TypeVar("Answer")

_RAISED_BY_THE_CLIENT = (
    ClientError,
    BotoCoreError,
    ResponseParserError,
    aiohttp.ClientError,
    OSError,
)


class RequestKind(Enum):
    """Whether sending a request twice can do harm."""

    READ = "a read"
    TOKENED = "a write that happens once, however often it is sent"
    WRITE = "a write"


class _Again(Exception):
    """An attempt that may be repeated."""

    def __init__(self, fault: MappedError) -> None:
        super().__init__(str(fault.error))
        self.fault = fault


class RequestSender:
    """The line to the service that all of an engine's requests take, so that none is cut off when the engine closes."""

    def __init__(self, retry_policy: DynamoDBRetryPolicy) -> None:
        self.retry_policy = retry_policy
        self._closed = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def send(
        self,
        kind: RequestKind,
        where: str,
        method: Callable[..., Awaitable[Answer]],
        request: Mapping[str, Any],
        retry_policy: DynamoDBRetryPolicy | None = None,
    ) -> Answer:
        """Send a request by one of the client's methods until it is answered, refused, or patience is at its end."""
        if self._closed:
            raise StoreUnavailable(f"{where}: the engine is closed")
        self._under_way += 1
        self._idle.clear()
        try:
            return await _send(retry_policy or self.retry_policy, kind, where, method, request)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def close(self) -> None:
        """Take nothing new, and return when what was begun has come to its end."""
        self._closed = True
        await self._idle.wait()


async def _send(
    retry_policy: DynamoDBRetryPolicy,
    kind: RequestKind,
    where: str,
    method: Callable[..., Awaitable[Answer]],
    request: Mapping[str, Any],
) -> Answer:
    end = retry_policy.clock.monotonic() + retry_policy.deadline
    doubtful = False  # whether any attempt of a write may have been carried out

    async def attempt() -> Answer:
        nonlocal doubtful
        try:
            return await method(**request)
        except _RAISED_BY_THE_CLIENT as error:
            fault = map_error(error, where)
            doubtful = doubtful or (fault.unknown and kind is not RequestKind.READ)
            if fault.again or (fault.unknown and kind is not RequestKind.WRITE):
                raise _Again(fault) from error
            raise _verdict(fault, doubtful=fault.unknown and doubtful) from error

    def give_up(state: RetryCallState) -> bool:
        spent = retry_policy.clock.monotonic() + state.upcoming_sleep > end
        return spent or state.attempt_number >= retry_policy.attempts

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(_Again),
        wait=lambda state: retry_policy.backoff(state.attempt_number),
        stop=give_up,
        sleep=retry_policy.clock.sleep,
        reraise=True,
    )
    try:
        return await retrying(attempt)
    except _Again as last:
        raise _verdict(last.fault, doubtful=doubtful) from last.__cause__


def _verdict(fault: MappedError, *, doubtful: bool) -> StoreError:
    return (
        OutcomeUnknown(f"{fault.error}; whether it was applied is not known")
        if doubtful
        else fault.error
    )
