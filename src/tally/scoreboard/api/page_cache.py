"""Responses with leaderboard pages, reused while the leaderboard in Redis keeps its version.

The script that counts a request compares the version, so no response is older than Redis.
"""

from typing import Final

from starlette.responses import Response

from tally.kit.http import NO_STORE, Json
from tally.scoreboard.api.schemas.responses import LeaderboardResponse
from tally.scoreboard.model.scores import LeaderboardPage

MAX_BYTES: Final = 4 * 1024 * 1024
# Memory of an entry besides its body.
ENTRY_BYTES: Final = 1024


class PageCache:
    """Responses of one version, by limit and offset; clears itself when it is full."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._version = b""
        self._pages: dict[tuple[int, int], Response] = {}
        self._size = 0

    def find(self, limit: int, offset: int) -> tuple[bytes, Response | None]:
        """Return the version and the response of a page, if it is cached."""
        page = self._pages.get((limit, offset))
        return (b"" if page is None else self._version), page

    def store(self, limit: int, offset: int, version: bytes, page: Response) -> None:
        """Keep a response, which must not be changed, and drop those of other versions."""
        if not version:
            return
        size = len(page.body) + ENTRY_BYTES
        if version != self._version or self._size + size > self._max_bytes:
            self._version, self._size = version, 0
            self._pages.clear()
        if (limit, offset) not in self._pages:
            self._pages[limit, offset] = page
            self._size += size


def page_response(page: LeaderboardPage) -> Response:
    return Json(LeaderboardResponse.from_page(page), 200, NO_STORE)
