"""Keeps the latest log lines of this process in memory, for the console.

They are kept after masking, so they contain no more than the log itself. Lines below the log level
are not kept.
"""

from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

import msgspec
import structlog
from structlog.typing import WrappedLogger

from tally.kit.logs import LEVELS

MAX_LINES: Final = 5_000


class RecentLogs:
    """A bounded buffer of log lines, and a processor of structlog that fills it."""

    def __init__(self, limit: int = MAX_LINES) -> None:
        self._lines: deque[Mapping[str, Any]] = deque(maxlen=limit)

    def __call__(
        self, _: WrappedLogger, __: str, entry: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        self._lines.append(entry)
        return entry

    def find(
        self, *, request_id: str = "", level: str = "debug", text: str = "", limit: int
    ) -> list[Mapping[str, Any]]:
        """Return the newest lines of a request, from a level on, that contain a text."""
        found: list[Mapping[str, Any]] = []
        for line in self._matching(request_id, LEVELS.get(level, 0), text.lower()):
            found.append(line)
            if len(found) >= limit:
                break
        return found

    def _matching(self, request_id: str, lowest: int, text: str) -> Iterator[Mapping[str, Any]]:
        for line in reversed(self._lines):
            if request_id and request_id not in (line["requestId"], line.get("correlationId")):
                continue
            if LEVELS.get(line["level"], LEVELS["error"]) < lowest:
                continue
            if text and text not in msgspec.json.encode(line).decode().lower():
                continue
            yield line


def keep_recent_logs() -> RecentLogs:
    """Start to keep the lines of this process; call it after `logs.configure`."""
    recent = RecentLogs()
    *builders, renderer = structlog.get_config()["processors"]
    builders = [builder for builder in builders if not isinstance(builder, RecentLogs)]
    structlog.configure(processors=[*builders, recent, renderer])
    return recent
