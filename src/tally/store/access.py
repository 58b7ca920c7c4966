"""How a repository's method becomes an access pattern that the store holds to its word.

    class Follows:
        tables = (FOLLOWS,)

        @access("Get all followers for match", Query, table=FOLLOWS, key="PK=matchId", by="system",
                trigger="TossDetectionJob, LiveActivityPushJob", frequency="every 2.5 s per live match", bound=200_000)
        async def of_match(self, match_id: str) -> AsyncIterator[Follow]: ...

While the method's body runs, the store lets through the declared operations on the declared tables
and nothing else. The decorator registers nothing anywhere: the pattern hangs on the method, and
`access_patterns` collects them from a class.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar, Token
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.store.errors import AccessViolation, StoreUnavailable
from tally.store.meters import Meters, PatternMeter
from tally.store.patterns import (
    AccessPattern,
    BatchGetItem,
    BatchWriteItem,
    By,
    DeleteItem,
    GetItem,
    PatternOperation,
    PutItem,
    Query,
    Scan,
    TransactGetItems,
    TransactWriteItems,
    UpdateItem,
)
from tally.store.schema import Table

__all__ = [
    "AccessPattern",
    "BatchGetItem",
    "BatchWriteItem",
    "DeleteItem",
    "GetItem",
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
    "to_unavailable",
]

_log = logs.logger()
P = ParamSpec("P")
R = TypeVar("R")


class Invocation:
    """One call of a pattern's method, from its first line to its last.

    It is known to the store while the body runs, and to tasks that the body starts, until the body
    ends. `meter` is set by the store on its first operation: a call that was answered from memory
    is no access.
    """

    __slots__ = (
        "_clock",
        "_elapsed",
        "_started",
        "_token",
        "ended",
        "meter",
        "pages",
        "pattern",
        "read",
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
        self.pages = 0
        self.ended = False

    def attach(self, meters: Meters, clock: Clock) -> PatternMeter:
        """Begin to measure, now that the store is reached."""
        self.meter = meters.of(self.pattern)
        self._clock = clock
        self._elapsed = 0.0
        self._started = clock.monotonic()
        return self.meter

    def __enter__(self) -> None:
        """Let the body run, from its start or from where a generator stopped."""
        self._token = _CURRENT.set(self)
        if self.meter is not None:
            self._started = self._clock.monotonic()

    def __exit__(self, *_: object) -> None:
        if self.meter is not None:
            self._elapsed += self._clock.monotonic() - self._started
        _CURRENT.reset(self._token)

    def end(self) -> None:
        """The body has ended: count it, and let nothing more through in its name."""
        self.ended = True
        if self.meter is not None:
            self.meter.whole.took(self._elapsed)


_CURRENT: ContextVar[Invocation | None] = ContextVar("tally_access", default=None)


def current_invocation() -> Invocation | None:
    """The call of a pattern that is running here, if any."""
    return _CURRENT.get()


def access(
    name: str,
    operation: PatternOperation,
    *,
    table: Table,
    index: str | None = None,
    key: str = "",
    by: By = "system",
    trigger: str = "",
    frequency: str = "",
    bound: int | None = None,
    tables: tuple[Table, ...] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare a repository's method to be this access pattern; `index` is for each Query and Scan that names none."""
    uses = tuple(
        PatternOperation((use,)).on(index).uses[0]
        if index and use.index is None and use.name in {"Query", "Scan"}
        else use
        for use in operation.uses
    )
    pattern = AccessPattern(
        name, PatternOperation(uses), table, key, by, trigger, frequency, bound, tables
    )

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isasyncgenfunction(function):
            held: Any = _hold_generator(pattern, function)
        elif inspect.iscoroutinefunction(function):
            held = _hold_coroutine(pattern, function)
        else:
            raise AccessViolation(
                f"access pattern {name!r}: {function!r} is neither async nor an async generator"
            )
        held.__access__ = pattern
        return cast("Callable[P, R]", held)

    return declare


def _hold_coroutine(
    pattern: AccessPattern, function: Callable[P, Awaitable[R]]
) -> Callable[P, Awaitable[R]]:
    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        invocation = Invocation(pattern)
        try:
            with invocation:
                return await function(*args, **kwargs)
        except StoreUnavailable as error:
            raise to_unavailable(error) from error
        finally:
            invocation.end()

    return call


def _hold_generator(
    pattern: AccessPattern, function: Callable[P, AsyncGenerator[R, None]]
) -> Callable[P, AsyncGenerator[R, None]]:
    """Between two steps the consumer's code runs, in the same task: the pattern must be hidden from it."""

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
                except StoreUnavailable as error:
                    raise to_unavailable(error) from error
                yield element
        finally:
            with invocation:
                await body.aclose()
            invocation.end()

    return stream


def to_unavailable(error: StoreUnavailable) -> Unavailable:
    """The store's trouble in the domain's words: what exactly it is, is for the log, not for a client."""
    _log.warning("The store cannot answer", action="store_unavailable", error=error)
    return Unavailable("The store cannot answer now", retry_after=1)


def access_pattern(method: Callable[..., Any]) -> AccessPattern | None:
    """The pattern that a method was declared to be, if any."""
    return getattr(method, "__access__", None)


def access_patterns(repository: type) -> dict[str, AccessPattern]:
    """The patterns of a repository class by the names of their methods, in the order of their declaration."""
    found: dict[str, AccessPattern] = {}
    for base in reversed(repository.__mro__):
        for name, member in vars(base).items():
            pattern = access_pattern(member)
            found.pop(name, None)
            if pattern is not None:
                found[name] = pattern
    return found
