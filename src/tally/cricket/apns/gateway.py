"""The APNs gateway: sends pushes and returns a result for each, including failures.

    async with open_apns(settings, clock, metrics) as apns:
        async with aclosing(apns.send_all(pushes)) as results:
            async for push, result in results: ...

Transient failures (429, 500, 503, a broken or silent connection, an expired provider token) are
retried with back-off, within `RETRY_POLICY`; then the result is RETRY and the sender decides.
Without a key the gateway sends nothing, and every result says so.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from prometheus_client import Counter, Gauge

from tally.cricket.apns.channels import ChannelManager
from tally.cricket.apns.connection_pool import ConnectionPool, PooledConnection
from tally.cricket.apns.push_stream import PushStream
from tally.cricket.apns.token_queue import QueueEntry, TokenQueue
from tally.cricket.apns.transport import (
    RESPONSE_TIMEOUT_SECONDS,
    ApnsTransport,
    open_transport,
)
from tally.cricket.model.push import (
    NO_ANSWER,
    NOT_CONFIGURED,
    BroadcastChannel,
    Priority,
    Push,
    PushOutcome,
    PushResult,
)
from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics
from tally.kit.retry import RetryPolicy, full_jitter
from tally.kit.ttl_cache import TTLCache
from tally.settings import Settings

# For each push.
RETRY_POLICY: Final = RetryPolicy(attempts=6, base=0.25, cap=5.0, deadline=20.0)
_LOG_INTERVAL_SECONDS: Final = 60.0
_NOT_CONFIGURED_RETRY_SECONDS: Final = 60.0
_NOT_CONFIGURED: Final = PushResult(
    PushOutcome.RETRY,
    reason=NOT_CONFIGURED,
    retry_after=_NOT_CONFIGURED_RETRY_SECONDS,
    attempts=0,
)
_SUPERSEDED: Final = PushResult(PushOutcome.SUPERSEDED, attempts=0)

_log = logs.logger()


class ApnsGateway:
    """The push service of one app; `service.ports.PushGateway` specifies its methods."""

    def __init__(
        self,
        transport: ApnsTransport | None,
        clock: Clock,
        metrics: Metrics,
        retry_policy: RetryPolicy = RETRY_POLICY,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._retry_policy = retry_policy
        self._queue = TokenQueue()
        self._logged: TTLCache[str, bool] = TTLCache(clock, _LOG_INTERVAL_SECONDS, 100)
        registry = metrics.registry
        self._pushes = Counter(
            "tally_apns_pushes", "Pushes by outcome", ["outcome"], registry=registry
        )
        self._delivered = self._pushes.labels(PushOutcome.DELIVERED.value)
        self._errors = Counter(
            "tally_apns_errors",
            "Failed requests to APNs by status and reason; status 0 means no response",
            ["status", "reason"],
            registry=registry,
        )
        in_flight = Gauge(
            "tally_apns_requests_in_flight", "Requests to APNs in flight", registry=registry
        )
        in_flight.set_function(lambda: transport.pool.in_flight if transport is not None else 0)

    @property
    def is_configured(self) -> bool:
        return self._transport is not None

    async def send(self, push: Push) -> PushResult:
        if self._transport is None:
            return _NOT_CONFIGURED
        return await self._send_in_order(push.token, push)

    def send_all(
        self, pushes: AsyncIterable[Push], concurrency: int | None = None
    ) -> AsyncGenerator[tuple[Push, PushResult], None]:
        capacity = self._transport.pool.capacity if self._transport is not None else 1
        return PushStream(self.send, concurrency or capacity).run(pushes)

    async def broadcast(
        self, channel_id: str, payload: bytes, *, priority: Priority, expiration: int = 0
    ) -> PushResult:
        if self._transport is None:
            return _NOT_CONFIGURED
        push = Push(
            token="", payload=payload, priority=priority, expiration=expiration, is_replaceable=True
        )
        return await self._send_in_order(f"channel {channel_id}", push, channel_id)

    async def create_channel(self, *, stores_latest: bool = True) -> str:
        return await self._channels().create(stores_latest=stores_latest)

    async def delete_channel(self, channel_id: str) -> bool:
        return await self._channels().delete(channel_id)

    async def read_channel(self, channel_id: str) -> BroadcastChannel | None:
        return await self._channels().read(channel_id)

    async def list_channels(self) -> Sequence[str]:
        return await self._channels().list_ids()

    def _channels(self) -> ChannelManager:
        if self._transport is None:
            raise Unavailable("APNs is not configured", code="apns_not_set_up")
        return self._transport.channels

    async def _send_in_order(
        self, key: str, push: Push, channel_id: str | None = None
    ) -> PushResult:
        entry = self._queue.enqueue(key)
        try:
            if entry.previous is not None:
                await entry.wait_for_previous()
            result = await self._send_with_retries(push, entry, channel_id)
        finally:
            self._queue.finish(key, entry)
        if result.outcome is PushOutcome.DELIVERED:
            self._delivered.inc()
        else:
            self._pushes.labels(result.outcome.value).inc()
            if result.outcome is PushOutcome.REJECTED:
                self._log_rejection(push, result)
        return result

    async def _send_with_retries(
        self, push: Push, entry: QueueEntry, channel_id: str | None
    ) -> PushResult:
        """Send until the result is final, the retry policy is exhausted or a newer push arrives."""
        attempts, deadline = 0, 0.0
        result = _SUPERSEDED
        while not (push.is_replaceable and entry.is_superseded):
            attempts += 1
            result = await self._attempt(push, channel_id)
            is_final = result.reason == NO_ANSWER and not push.is_repeatable
            if result.outcome is not PushOutcome.RETRY or is_final:
                if attempts == 1:
                    return result
                return msgspec.structs.replace(result, attempts=attempts)
            policy, now = self._retry_policy, self._clock.monotonic()
            deadline = deadline or now + policy.deadline
            wait = max(full_jitter(attempts, policy.base, policy.cap), result.retry_after)
            if attempts >= policy.attempts or now + wait > deadline:
                return msgspec.structs.replace(result, attempts=attempts, retry_after=wait)
            await entry.back_off(self._clock, wait, is_replaceable=push.is_replaceable)
        return msgspec.structs.replace(
            _SUPERSEDED, status=result.status, reason=result.reason, attempts=attempts
        )

    async def _attempt(self, push: Push, channel_id: str | None) -> PushResult:
        transport = self._transport
        if transport is None:
            return _NOT_CONFIGURED
        pool, requests = transport.pool, transport.requests
        connection = pool.try_acquire() or await pool.acquire()
        number = connection.requests
        try:
            url, headers = (
                requests.to_device(push)
                if channel_id is None
                else requests.to_channel(channel_id, push)
            )
            result = await requests.send(connection.client, url, headers, push.payload)
        finally:
            pool.release(connection)
        if result.status == 200:
            pool.record_success(connection)
        else:
            self._record_error(pool, connection, number, result)
        return result

    def _record_error(
        self, pool: ConnectionPool, connection: PooledConnection, number: int, result: PushResult
    ) -> None:
        self._errors.labels(str(result.status), result.reason).inc()
        # 403 is a problem of the provider token, not of the connection.
        if result.outcome is PushOutcome.RETRY and result.status != 403:
            pool.throttle(connection, number, result.retry_after, has_response=result.status != 0)
        else:
            pool.record_success(connection)

    def _log_rejection(self, push: Push, result: PushResult) -> None:
        """Log an error that an operator has to fix, at most once per interval and reason."""
        if self._logged.get(result.reason) is None:
            self._logged.put(result.reason, value=True)
            _log.error(
                "APNs rejected a push",
                action="apns_rejected",
                status=result.status,
                reason=result.reason,
                push_type=push.push_type,
                bytes=len(push.payload),
            )


@asynccontextmanager
async def open_apns(
    settings: Settings,
    clock: Clock,
    metrics: Metrics,
    retry_policy: RetryPolicy = RETRY_POLICY,
    response_timeout: float = RESPONSE_TIMEOUT_SECONDS,
) -> AsyncIterator[ApnsGateway]:
    """Open the gateway that the settings describe; raise SettingsError if they are invalid."""
    if settings.cricket_apns_key is None:
        _log.warning(
            "APNs is not configured: TALLY_CRICKET_APNS_KEY is missing, no pushes are sent",
            action="apns_not_configured",
        )
        yield ApnsGateway(None, clock, metrics, retry_policy)
        return
    async with open_transport(
        settings, settings.cricket_apns_key, clock, retry_policy, response_timeout
    ) as transport:
        yield ApnsGateway(transport, clock, metrics, retry_policy)
