"""Captures the log of a test, one JSON object per line, and restores the configuration."""

import contextlib
import io
import logging
from collections.abc import Iterator

import structlog

from tally.kit import logs
from tally.kit.clock import Clock, SystemClock
from tally.settings import Settings


@contextlib.contextmanager
def captured_log(log_level: str = "info", clock: Clock | None = None) -> Iterator[io.StringIO]:
    """Write the log of all loggers to a stream."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure(Settings(log_format="json", log_level=log_level), clock or SystemClock(), stream)
    try:
        yield stream
    finally:
        structlog.reset_defaults()
        root.handlers[:], root.level = handlers, level
        logs.set_context(logs.Context())
