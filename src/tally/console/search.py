"""The search over all backends. Each kind of result has a source that the pages register.

search = Search(clock)
search.add("Devices", find_devices)
await search.find("kitchen")
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tally.errors import TallyError
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within
from tally.store.errors import StoreError

# Results of one kind; a longer list needs a more specific text.
MAX_RESULTS: Final = 10
MAX_TEXT: Final = 100
SOURCE_TIMEOUT_SECONDS: Final = 3.0

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One result: a label that links to `path`, and a detail to tell similar results apart."""

    label: str
    path: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SearchGroup:
    """The results of one kind; `problem` says why there are none."""

    kind: str
    results: tuple[SearchResult, ...]
    problem: str = ""


SearchSource: TypeAlias = Callable[[str], Awaitable[Sequence[SearchResult]]]


class Search:
    """Asks all sources at once; one that fails does not affect the others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sources: dict[str, SearchSource] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._sources)

    def add(self, kind: str, source: SearchSource) -> None:
        """Register what finds results of a kind, such as "Devices"."""
        self._sources[kind] = source

    async def find(self, text: str) -> list[SearchGroup]:
        """Return the groups with results or problems; an empty text has no results."""
        text = text.strip()[:MAX_TEXT]
        if not text:
            return []
        groups = await asyncio.gather(
            *(self._find(kind, source, text) for kind, source in self._sources.items())
        )
        return [group for group in groups if group.results or group.problem]

    async def _find(self, kind: str, source: SearchSource, text: str) -> SearchGroup:
        try:
            found = await finish_within(self._clock, SOURCE_TIMEOUT_SECONDS, source(text))
        except DeadlineExceeded:
            return SearchGroup(kind, (), f"No response within {SOURCE_TIMEOUT_SECONDS:.0f} s")
        except (TallyError, StoreError) as error:
            _log.warning("Search failed", action="search_failed", kind=kind, error=error)
            return SearchGroup(kind, (), str(error))
        return SearchGroup(kind, tuple(found[:MAX_RESULTS]))


def matches(text: str, *values: str | None) -> bool:
    """Return whether each word of the text occurs in one of the values, in any case."""
    haystack = " ".join(value.casefold() for value in values if value)
    return all(word in haystack for word in text.casefold().split())
