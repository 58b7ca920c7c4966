"""Declares repository methods as access patterns, which the store enforces.

    class Follows:
        tables = (FOLLOWS,)

        @access("Get all followers for match",
                Query(where=F("matchId") == param("matchId"), filter=F("expiresAt") > param("now")),
                table=FOLLOWS, frequency="every 2.5 s per match", bound=200_000)
        async def list_by_match(self, match_id: str) -> AsyncIterator[Follow]: ...

While the method runs, the store permits only the declared operations on the declared tables, with
the declared keys, conditions, filters and projections, once each unless declared. The decorator
stores the pattern on the method; there is no global registry. `access_patterns` collects the
patterns of a class.
"""

import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar, Token
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.store.damage import damage_unavailable
from tally.store.errors import (
    AccessViolation,
    StorageDamaged,
    StoreError,
    StoreUnavailable,
    StreamNotFound,
    TableNotFound,
    UnknownIndex,
    WritesPaused,
)
from tally.store.meters import Meters, PatternMeter
from tally.store.pattern_operations import (
    BatchGetItem,
    BatchWriteItem,
    ConditionCheck,
    DeleteItem,
    GetItem,
    GetRecords,
    PatternOperation,
    PutItem,
    Query,
    Scan,
    TransactGetItems,
    TransactWriteItems,
    UpdateItem,
    UseKey,
)
from tally.store.patterns import AccessPattern, By
from tally.store.schema import Table
from tally.store.templates import param
from tally.store.values import Key

__all__ = [
    "AccessPattern",
    "BatchGetItem",
    "BatchWriteItem",
    "ConditionCheck",
    "DeleteItem",
    "GetItem",
    "GetRecords",
    "Invocation",
    "PatternOperation",
    "PutItem",
    "Query",
    "Scan",
    "TransactGetItems",
    "TransactWriteItems",
    "UpdateItem",
    "access",
    "access_pattern",
    "access_patterns",
    "current_invocation",
    "param",
    "to_unavailable",
]

# The standard library's: programs that use only the store need not load structlog.
_log = logging.getLogger(__name__)
# A pattern names a table, an index or a stream of Tally: if one is missing, the installation or the
# upgrade is not complete yet.
UNAVAILABLE: Final = (StoreUnavailable, TableNotFound, UnknownIndex, StreamNotFound)
PAUSE_RETRY_SECONDS: Final = 5  # until the servers of the other store have started
P = ParamSpec("P")
R = TypeVar("R")


class Invocation:
    """One call of a pattern's method.

    The store sees it while the body runs, also in tasks that the body starts. The store sets
    `meter` on the first operation, so a call served from a cache is not counted.
    """

    __slots__ = (
        "_clock",
        "_elapsed",
        "_started",
        "_token",
        "ended",
        "meter",
        "next_page",
        "pattern",
        "read",
        "sent",
        "written",
    )
    _clock: Clock
    _started: float
    _elapsed: float
    _token: "Token[Invocation | None]"

    def __init__(self, pattern: AccessPattern) -> None:
        self.pattern = pattern
        self.meter: PatternMeter | None = None
        self.read = 0
        self.written = 0
        self.ended = False
        # Requests by operation, and where the last page ended.
        self.sent: dict[UseKey, int] = {}
        self.next_page: Key | None = None

    def attach(self, meters: Meters, clock: Clock) -> PatternMeter:
        """Start to measure on the first operation."""
        self.meter = meters.of(self.pattern)
        self._clock = clock
        self._elapsed = 0.0
        self._started = clock.monotonic()
        return self.meter

    def __enter__(self) -> None:
        """Enter the body, at its start or where a generator was suspended."""
        self._token = _CURRENT.set(self)
        if self.meter is not None:
            self._started = self._clock.monotonic()

    def __exit__(self, *_: object) -> None:
        if self.meter is not None:
            self._elapsed += self._clock.monotonic() - self._started
        _CURRENT.reset(self._token)

    def end(self) -> None:
        """Count the call and reject further operations in its name."""
        self.ended = True
        if self.meter is not None:
            self.meter.whole.record_call(self._elapsed)


_CURRENT: ContextVar[Invocation | None] = ContextVar("tally_access", default=None)


def current_invocation() -> Invocation | None:
    """Return the running call of a pattern, or None."""
    return _CURRENT.get()


def access(
    name: str,
    operation: PatternOperation,
    *,
    table: Table,
    by: By = "system",
    trigger: str = "",
    frequency: str = "",
    bound: int | None = None,
    tables: tuple[Table, ...] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare a repository method as an access pattern.

    `operation` has the DynamoDB operations with the form of their requests. `bound` limits the
    items that one call may read, and the items that it may write. `tables` are further tables of a
    transaction. `by`, `trigger` and `frequency` document the pattern.
    """
    pattern = AccessPattern(name, operation, table, by, trigger, frequency, bound, tables)

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isasyncgenfunction(function):
            wrapped: Any = _wrap_generator(pattern, function)
        elif inspect.iscoroutinefunction(function):
            wrapped = _wrap_coroutine(pattern, function)
        else:
            raise AccessViolation(
                f"access pattern {name!r}: {function!r} must be async or an async generator"
            )
        wrapped.__access__ = pattern
        return cast("Callable[P, R]", wrapped)

    return declare


def _wrap_coroutine(
    pattern: AccessPattern, function: Callable[P, Awaitable[R]]
) -> Callable[P, Awaitable[R]]:
    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        invocation = Invocation(pattern)
        try:
            with invocation:
                return await function(*args, **kwargs)
        except UNAVAILABLE as error:
            raise to_unavailable(error) from error
        finally:
            invocation.end()

    return call


def _wrap_generator(
    pattern: AccessPattern, function: Callable[P, AsyncGenerator[R, None]]
) -> Callable[P, AsyncGenerator[R, None]]:
    """Hide the pattern from the consumer, whose code runs in the same task between two elements."""

    @wraps(function)
    async def stream(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[R, None]:
        invocation = Invocation(pattern)
        body = function(*args, **kwargs)
        try:
            while True:
                try:
                    with invocation:
                        element = await anext(body)
                except StopAsyncIteration:
                    return
                except UNAVAILABLE as error:
                    raise to_unavailable(error) from error
                yield element
        finally:
            with invocation:
                await body.aclose()
            invocation.end()

    return stream


def to_unavailable(error: StoreError) -> Unavailable:
    """Convert a store error for clients; the details go to the log only."""
    if isinstance(error, StorageDamaged):  # logged once, by the damage monitor
        return damage_unavailable()
    if isinstance(error, WritesPaused):  # on purpose, and for every write
        return Unavailable(
            "The store does not accept writes while its data moves",
            code="store_moving",
            retry_after=PAUSE_RETRY_SECONDS,
        )
    _log.warning(
        "Store unavailable", extra={"fields": {"action": "store_unavailable", "error": error}}
    )
    return Unavailable("The store is unavailable", retry_after=1)


def access_pattern(method: Callable[..., Any]) -> AccessPattern | None:
    """Return the pattern of a method, or None."""
    return getattr(method, "__access__", None)


def access_patterns(repository: type) -> dict[str, AccessPattern]:
    """Return the patterns of a repository class by method name, in declaration order."""
    found: dict[str, AccessPattern] = {}
    for base in reversed(repository.__mro__):
        for name, member in vars(base).items():
            pattern = access_pattern(member)
            found.pop(name, None)
            if pattern is not None:
                found[name] = pattern
    return found
