"""Named consumers: each handles every change of a stream, on one instance at a time.

    consumer = NamedConsumer("webhooks", awards.changes, deliver, repository, clock, metrics)
    await consumer.run()

The position is stored after the handler succeeded, so a crash repeats the last changes: handlers
must be idempotent, for example by `change.id`. A change whose handler keeps failing becomes a
dead letter, and the consumer continues.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from prometheus_client import Counter, Gauge

from tally.errors import NotFound, Unavailable
from tally.instance.repository.consumers import ConsumerLocks, ConsumerRepository
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.locks import LockedElsewhere, LockLost, run_with_lock
from tally.kit.metrics import Metrics
from tally.kit.retry import RetryPolicy
from tally.store.changes import START, Change
from tally.store.errors import PositionExpired, PositionUnknown

LOCK_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 3.0
MAX_UNSAVED: Final = 100  # changes between two checkpoints while more are waiting
IDLE_SECONDS: Final = 0.02  # without another change for this long, none is waiting

ChangeHandler: TypeAlias = Callable[[Change], Awaitable[object]]
ChangeSource: TypeAlias = Callable[[str | None], AsyncGenerator[Change, None]]

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRetries:
    """How often a change is tried, and the back-off between attempts in seconds."""

    attempts: int = 5
    initial_backoff: float = 1.0
    max_backoff: float = 60.0

    def policy(self) -> RetryPolicy:
        return RetryPolicy(
            attempts=self.attempts,
            base=self.initial_backoff,
            cap=self.max_backoff,
            deadline=float("inf"),
            is_retryable=lambda _error: True,
        )


class HandlerCancelled(Exception):
    """The handler of a change raised CancelledError although nobody cancelled the consumer."""


class ConsumerMetrics:
    """The metrics of all consumers of an instance."""

    def __init__(self, metrics: Metrics) -> None:
        labels, registry = ["consumer"], metrics.registry
        self.lag = Gauge(
            "tally_stream_consumer_lag_seconds",
            "Age of the change that a stream consumer is handling; 0 if it has handled all",
            labels,
            registry=registry,
        )
        self.dead_letters = Counter(
            "tally_stream_dead_letters_total",
            "Changes that a stream consumer could not handle",
            labels,
            registry=registry,
        )
        self.gaps = Counter(
            "tally_stream_consumer_gaps_total",
            "Times a stream consumer's position was no longer valid, so that it may miss changes",
            labels,
            registry=registry,
        )


def unknown_letter(letter_id: str) -> NotFound:
    return NotFound(f"Dead letter {letter_id} does not exist", code="dead_letter_not_found")


class NamedConsumer:
    """One consumer on this instance; it works while it holds the lock of its name."""

    def __init__(
        self,
        name: str,
        source: ChangeSource,
        handle: ChangeHandler,
        repository: ConsumerRepository,
        clock: Clock,
        *,
        metrics: ConsumerMetrics,
        retries: HandlerRetries | None = None,
    ) -> None:
        self.name = name
        self._source = source
        self._handle = handle
        self._repository = repository
        self._clock = clock
        self._owner = new_uuid()
        self._locks = ConsumerLocks(repository, clock, self._owner)
        self._metrics = metrics
        self._policy = (retries or HandlerRetries()).policy()
        self._current: Change | None = None
        self._problem: str | None = None

    async def run(self) -> None:
        """Handle changes until cancelled; wait while another instance holds the lock."""
        self._metrics.lag.labels(self.name).set_function(self._lag)
        try:
            while True:
                await self._run_with_lock()
                await self._clock.sleep(RETRY_SECONDS)
        finally:
            with suppress(KeyError):  # the consumer of a deleted webhook has no lag
                self._metrics.lag.remove(self.name)

    async def replay(self, letter_id: str) -> None:
        """Handle a dead letter again and delete it; raise the error of the handler."""
        letter = await self._repository.get_letter(self.name, letter_id)
        if letter is None:
            raise unknown_letter(letter_id)
        await self._handle(letter.change)
        await self._repository.delete_letter(self.name, letter_id)

    async def _run_with_lock(self) -> None:
        try:
            await run_with_lock(self._locks, self._clock, self.name, LOCK_SECONDS, self._consume)
        except LockedElsewhere:
            pass
        except LockLost:
            _log.warning(
                "Stream consumer lost its lock", action="consumer_lock_lost", consumer=self.name
            )
        except Exception as error:  # noqa: BLE001  (tried again)
            self._report(error)

    def _report(self, error: Exception) -> None:
        """Log what interrupted the consumer, once until it handles a change again."""
        if self._problem == str(error):
            return
        self._problem = str(error)
        log = _log.warning if isinstance(error, Unavailable) else _log.exception
        log(
            "Stream consumer interrupted",
            action="consumer_interrupted",
            consumer=self.name,
            error=error,
        )

    async def _consume(self) -> None:
        while True:
            position = await self._repository.get_position(self.name) or START
            try:
                await self._follow(position)
            except (PositionExpired, PositionUnknown) as error:
                await self._restart(error)

    async def _follow(self, position: str) -> None:
        """Handle the changes after a position, and store how far that got."""
        unsaved = 0
        async with aclosing(self._source(position)) as changes:
            while True:
                following = asyncio.ensure_future(anext(changes))
                try:
                    if unsaved:
                        await asyncio.wait({following}, timeout=IDLE_SECONDS)
                        if unsaved >= MAX_UNSAVED or not following.done():
                            await self._repository.checkpoint(self.name, self._owner, position)
                            unsaved = 0
                    change = await following
                finally:
                    following.cancel()
                    await asyncio.wait({following})
                await self._handle_or_park(change)
                self._problem = None
                position, unsaved = change.position, unsaved + 1

    async def _handle_or_park(self, change: Change) -> None:
        self._current = change
        try:
            await self._policy.call(lambda: self._try_handle(change), self._clock)
        except Exception as error:  # noqa: BLE001  (any error of the handler makes a dead letter)
            _log.exception(
                "Change could not be handled",
                action="change_parked",
                consumer=self.name,
                position=change.position,
            )
            text = f"{type(error).__name__}: {error}"
            await self._repository.park(self.name, change, text, self._clock.milliseconds())
            self._metrics.dead_letters.labels(self.name).inc()
        finally:
            self._current = None

    async def _try_handle(self, change: Change) -> None:
        try:
            await self._handle(change)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise HandlerCancelled("the handler was cancelled") from error

    async def _restart(self, error: Exception) -> None:
        """Continue with the oldest change that is kept; some may have been missed."""
        self._metrics.gaps.labels(self.name).inc()
        _log.error(
            "Stream consumer may have missed changes",
            action="consumer_gap",
            consumer=self.name,
            error=error,
        )
        await self._repository.checkpoint(self.name, self._owner, START)

    def _lag(self) -> float:
        change = self._current
        return 0.0 if change is None else max(0.0, self._clock.time_ns() / 1e9 - change.at)
