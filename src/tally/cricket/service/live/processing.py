"""The balls of live matches, each processed once: memory first, written through to the store, and hydrated at the start.

What is in memory is good while nobody else has seen to the match, so it is kept with the version of
the match's record that it belongs to. Another version means that another instance was at work
meanwhile, and the store is asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tally.cricket.model.ball_log import BallLog, decode, encode
from tally.cricket.model.records import PROCESSING_TTL_SECONDS, ProcessingState
from tally.cricket.repository.processing import ProcessingRepository
from tally.kit.clock import Clock


@dataclass(frozen=True, slots=True)
class MatchProcessing:
    """Books of balls by match."""

    repository: ProcessingRepository
    clock: Clock
    _known: dict[str, tuple[int | None, BallLog]] = field(default_factory=dict)

    async def hydrate(self, match_ids: Sequence[str] | None) -> int:
        """Fill the memory from the store, at the start; how many matches there were."""
        found = await self.repository.hydrate(match_ids, self.clock.seconds())
        for each in found:
            self._known[each.match_id] = (None, decode(each.content))
        return len(found)

    async def get(self, match_id: str, version: int) -> BallLog:
        """The book that belongs to this version of the match's record."""
        known = self._known.get(match_id)
        if known is not None and known[0] == version:
            return known[1]
        found = await self.repository.get(match_id, self.clock.seconds())
        return BallLog() if found is None else decode(found.content)

    async def put(self, match_id: str, book: BallLog) -> None:
        """Write through.

        What was written without its record's new version is read again, and found to be the same or
        further.
        """
        now = self.clock.milliseconds()
        expires_at = now // 1000 + PROCESSING_TTL_SECONDS
        content = encode(book)
        await self.repository.put(
            ProcessingState(
                match_id=match_id,
                last_ball_id=book.released,
                content=content,
                updated_at=now,
                expires_at=expires_at,
            )
        )

    def remember(self, match_id: str, version: int, book: BallLog) -> None:
        """Keep the book in memory with the version that it now belongs to."""
        self._known[match_id] = (version, book)

    def moved(self, match_id: str, before: int, version: int) -> None:
        """The record has another version, and the book is the same."""
        known = self._known.get(match_id)
        if known is not None and known[0] == before:
            self._known[match_id] = (version, known[1])

    def forget(self, match_id: str) -> None:
        self._known.pop(match_id, None)
