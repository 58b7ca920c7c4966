"""Structured logs: one JSON object per line, or readable text on a terminal, with secrets masked.

    log = logger()
    log.info("Score updated successfully", action="score_update", scoreDelta=100, newScore=1500)

Every line has the fields timestamp, level, service, requestId, userId, action, message and data,
and correlationId if it is known. All other keyword arguments go into data. `bind` adds fields to
all lines of the current request or job run. The loggers of the standard library, including
uvicorn's, write through this module.
"""

import logging
import sys
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TextIO, cast

import msgspec
import structlog
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger, WrappedLogger

from tally.kit.clock import Clock, rfc3339_seconds
from tally.kit.masking import mask, mask_text
from tally.settings import Settings

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class Context(msgspec.Struct, frozen=True):
    """Fields that appear on every line of a request or job run."""

    service: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    user_id: str | None = None
    action: str | None = None


_context: ContextVar[Context] = ContextVar("log_context", default=Context())  # noqa: B039  (Context is frozen)


def current_context() -> Context:
    return _context.get()


def set_context(context: Context) -> None:
    """Replace the context, at the start of a request."""
    _context.set(context)


def bind(**changes: str | None) -> None:
    """Add to the context of this task: `bind(user_id=user.id)`."""
    _context.set(replace(_context.get(), **changes))


def bind_service(service: str) -> None:
    """Add the backend's name; every request does, and `replace` costs more."""
    known = _context.get()
    _context.set(
        Context(service, known.request_id, known.correlation_id, known.user_id, known.action)
    )


@contextmanager
def bound(**changes: str | None) -> Iterator[None]:
    """Add to the context inside the block."""
    token = _context.set(replace(_context.get(), **changes))
    try:
        yield
    finally:
        _context.reset(token)


def logger() -> FilteringBoundLogger:
    """Return a logger that always uses the latest configuration."""
    return cast(FilteringBoundLogger, structlog.get_logger())


def configure(
    settings: Settings, clock: Clock, stream: TextIO | None = None, service: str = "tally"
) -> None:
    """Write all logs of this process to `stream` (standard error) in the configured format."""
    stream = stream or sys.stderr
    as_text = settings.log_format == "text" or (settings.log_format == "auto" and stream.isatty())
    renderer: Callable[..., str] = _TextRenderer(stream.isatty()) if as_text else _render_json
    level = LEVELS[settings.log_level]
    build_entry = _Entry(clock, service)

    def notice(lines: int) -> str:
        event = {"event": "Log lines were lost", "action": "log_lines_lost", "lines": lines}
        return renderer(None, "warning", build_entry(None, "warning", event)) + "\n"

    structlog.configure(
        processors=[build_entry, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _LossyStream(stream, notice))),
        cache_logger_on_first_use=False,
    )
    # Debug output of libraries contains whole requests, including credentials.
    logging.basicConfig(
        handlers=[_StandardLibraryHandler()], level=max(level, logging.INFO), force=True
    )
    # Tally itself logs the start and stop of the server; where AWS's credentials were found is in
    # the way of every command on DynamoDB.
    for name in ("uvicorn", "aiobotocore"):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.getLogger("uvicorn.error").addFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    """Return False for uvicorn's report that the app refused a WebSocket, which is no error."""
    return record.msg != "ASGI callable returned without completing handshake."


class _LossyStream:
    """Writes lines to a stream, and drops those that it does not accept.

    A full disk or a closed pipe must not fail the request or job that logs. The number of dropped
    lines is logged before the next line that can be written.
    """

    def __init__(self, stream: TextIO, notice: Callable[[int], str]) -> None:
        self._stream = stream
        self._notice = notice
        self._dropped = 0

    def write(self, line: str) -> None:
        try:
            self._stream.write(self._notice(self._dropped) + line if self._dropped else line)
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            self._dropped += 1
        else:
            self._dropped = 0

    def flush(self) -> None:
        """Do nothing: `write` flushes each line."""


class _Entry:
    """Builds the fields of a line from a log call and its context."""

    def __init__(self, clock: Clock, service: str) -> None:
        self._clock = clock
        self._service = service

    def __call__(
        self, _: WrappedLogger, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        context = _context.get()
        message, action, error = (
            event.pop("event", ""),
            event.pop("action", None),
            event.pop("exc_info", None),
        )
        data = mask(event)
        if error:
            data["exception"] = mask_text(_traceback(error))
        seconds, milliseconds = divmod(self._clock.milliseconds(), 1000)
        entry = {
            "timestamp": f"{rfc3339_seconds(seconds)[:-1]}.{milliseconds:03}Z",
            "level": method,
            "service": context.service or self._service,
            "requestId": context.request_id,
            "userId": context.user_id,
            "action": action or context.action,
            "message": mask_text(str(message)),
            "data": data,
        }
        if context.correlation_id is not None:
            entry["correlationId"] = context.correlation_id
        return entry


def _traceback(error: object) -> str:
    """Format an exception, a `sys.exc_info()` tuple or the exception being handled."""
    if isinstance(error, tuple):
        error = error[1]
    elif not isinstance(error, BaseException):
        error = sys.exc_info()[1]
    return (
        "".join(traceback.format_exception(error)).rstrip()
        if isinstance(error, BaseException)
        else ""
    )


def _render_json(_: WrappedLogger, __: str, entry: MutableMapping[str, Any]) -> str:
    return msgspec.json.encode(entry).decode()


class _TextRenderer:
    """Renders a line as text: time, level, message, and the other fields as name=value."""

    def __init__(self, colors: bool) -> None:
        self._console = structlog.dev.ConsoleRenderer(
            colors=colors, sort_keys=False, pad_event_to=0
        )

    def __call__(self, wrapped: WrappedLogger, method: str, entry: MutableMapping[str, Any]) -> str:
        known = {name: entry[name] for name in ("action", "userId", "requestId") if entry[name]}
        flat = {**entry["data"], **known}
        flat |= {
            "timestamp": entry["timestamp"][11:-1],
            "level": entry["level"],
            "event": entry["message"],
        }
        return self._console(wrapped, method, flat)


class _StandardLibraryHandler(logging.Handler):
    """Forwards records of the standard library's loggers.

    The store logs with `extra={"fields": ...}`; a record of another library has its logger's name.
    """

    def emit(self, record: logging.LogRecord) -> None:
        level = max(logging.DEBUG, min(logging.CRITICAL, record.levelno // 10 * 10))
        fields = getattr(record, "fields", None) or {"logger": record.name}
        logger().log(level, record.getMessage(), exc_info=record.exc_info, **fields)
