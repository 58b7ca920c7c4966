"""Sends requests and decides which to retry.

The client's own retries are disabled, because they do not distinguish what is safe to repeat.

| request | attempt | action |
|---|---|---|
| any | throttled, in conflict, or not sent | retry after a back-off |
| a read, or a transaction with a token | connection broke | retry after a back-off |
| any other write | connection broke | `OutcomeUnknown`: a retry could overwrite a newer write |

Back-off grows exponentially with full jitter, so many clients do not retry simultaneously.
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

ResponseT = TypeVar("ResponseT")

_CLIENT_ERRORS = (
    ClientError,
    BotoCoreError,
    ResponseParserError,
    aiohttp.ClientError,
    OSError,
)


class RequestKind(Enum):
    """Whether a request is safe to repeat."""

    READ = "a read"
    IDEMPOTENT_WRITE = "an idempotent write"
    WRITE = "a write"


class _RetryableError(Exception):
    """A failed attempt that may be repeated."""

    def __init__(self, mapped: MappedError) -> None:
        super().__init__(str(mapped.error))
        self.mapped = mapped


class RequestSender:
    """Sends all requests of an engine, so that `close` can wait for those in flight."""

    def __init__(self, retry_policy: DynamoDBRetryPolicy) -> None:
        self.retry_policy = retry_policy
        self._closed = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def send(
        self,
        kind: RequestKind,
        context: str,
        method: Callable[..., Awaitable[ResponseT]],
        request: Mapping[str, Any],
        retry_policy: DynamoDBRetryPolicy | None = None,
    ) -> ResponseT:
        """Send a request with one of the client's methods, and retry by the policy."""
        if self._closed:
            raise StoreUnavailable(f"{context}: the engine is closed")
        self._in_flight += 1
        self._idle.clear()
        try:
            return await _send(retry_policy or self.retry_policy, kind, context, method, request)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def close(self) -> None:
        """Reject new requests and wait for those in flight."""
        self._closed = True
        await self._idle.wait()


async def _send(
    retry_policy: DynamoDBRetryPolicy,
    kind: RequestKind,
    context: str,
    method: Callable[..., Awaitable[ResponseT]],
    request: Mapping[str, Any],
) -> ResponseT:
    deadline = retry_policy.clock.monotonic() + retry_policy.deadline
    may_be_applied = False  # an attempt of a write may have been applied

    async def attempt() -> ResponseT:
        nonlocal may_be_applied
        try:
            return await method(**request)
        except _CLIENT_ERRORS as error:
            mapped = map_error(error, context)
            may_be_applied = may_be_applied or (
                mapped.outcome_unknown and kind is not RequestKind.READ
            )
            if mapped.retryable or (mapped.outcome_unknown and kind is not RequestKind.WRITE):
                raise _RetryableError(mapped) from error
            raise _final_error(
                mapped, may_be_applied=mapped.outcome_unknown and may_be_applied
            ) from error

    def should_stop(state: RetryCallState) -> bool:
        is_past_deadline = retry_policy.clock.monotonic() + state.upcoming_sleep > deadline
        return is_past_deadline or state.attempt_number >= retry_policy.attempts

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(_RetryableError),
        wait=lambda state: retry_policy.backoff(state.attempt_number),
        stop=should_stop,
        sleep=retry_policy.clock.sleep,
        reraise=True,
    )
    try:
        return await retrying(attempt)
    except _RetryableError as last:
        raise _final_error(last.mapped, may_be_applied=may_be_applied) from last.__cause__


def _final_error(mapped: MappedError, *, may_be_applied: bool) -> StoreError:
    return (
        OutcomeUnknown(f"{mapped.error}; it may or may not have been applied")
        if may_be_applied
        else mapped.error
    )
