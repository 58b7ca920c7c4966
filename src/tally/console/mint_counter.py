"""Counts the parts minted this month from collect's audit trail, newest first.

The first query reads the whole month, up to a limit. Later queries read back only to the point
up to which the count is final.
"""

from dataclasses import dataclass
from typing import Final

from tally.collect.model.records import AuditEvent
from tally.collect.service.audit import AuditKey, AuditSearch

PART_MINTED: Final = "MILESTONE_PART_MINTED"
PAGE_SIZE: Final = 100
MAX_EVENTS: Final = 1_000
# Events of one second are unordered and may be written late, so the last seconds are counted again.
UNSETTLED_SECONDS: Final = 60


@dataclass(slots=True)
class MintCounter:
    """The number of parts minted this month and the latest mint, updated incrementally."""

    search: AuditSearch
    count: int = 0
    is_more: bool = False
    latest: AuditEvent | None = None
    _month: str = ""
    _settled: int = 0
    _settled_until: int = 0

    async def update(self) -> None:
        """Read new mints and update the count."""
        key = self.search.complete_key(AuditKey(event=PART_MINTED))
        if key.month != self._month:
            self._month, self._settled, self._settled_until, self.is_more, self.latest = (
                key.month or "",
                0,
                0,
                False,
                None,
            )
        events = await self._unsettled_events(key)
        self.count = self._settled + len(events)
        self.latest = max(events, key=lambda event: event.epoch, default=self.latest)
        boundary = self.search.clock.seconds() - UNSETTLED_SECONDS
        self._settled += sum(event.epoch < boundary for event in events)
        self._settled_until = max(self._settled_until, boundary)

    async def _unsettled_events(self, key: AuditKey) -> list[AuditEvent]:
        """Return the events after the settled ones, at most `MAX_EVENTS`."""
        unsettled: list[AuditEvent] = []
        start = None
        while len(unsettled) < MAX_EVENTS:
            events, start = await self.search.page(key, PAGE_SIZE, start)
            fresh = [event for event in events if event.epoch >= self._settled_until]
            unsettled += fresh
            if start is None or len(fresh) < len(events):
                return unsettled
        self.is_more = True
        return unsettled
