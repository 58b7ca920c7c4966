"""How many parts were minted this month, and the latest of them: from collect's audit trail, which has them newest first.

The first look goes back over the month, up to a bound. Later ones go back to where the one before
was sure of the count.
"""

from dataclasses import dataclass
from typing import Final

from tally.collect.model import AuditEvent
from tally.collect.service.audit_search import AuditKey, AuditSearch

MINTED: Final = "MILESTONE_PART_MINTED"
PAGE: Final = 100
MOST: Final = 1_000
# Events of the same second are in no order, and one may be written a little late: the last seconds
# are counted anew.
UNSURE_SECONDS: Final = 60


@dataclass(slots=True)
class MintCounter:
    """The count, kept between looks."""

    search: AuditSearch
    count: int = 0
    is_more: bool = False
    latest: AuditEvent | None = None
    _month: str = ""
    _sure: int = 0
    _sure_until: int = 0

    async def look(self) -> None:
        """Bring the count up to date."""
        key = self.search.checked(AuditKey(event=MINTED))
        if key.month != self._month:
            self._month, self._sure, self._sure_until, self.is_more, self.latest = (
                key.month or "",
                0,
                0,
                False,
                None,
            )
        events = await self._since(key)
        self.count = self._sure + len(events)
        self.latest = max(events, key=lambda event: event.epoch, default=self.latest)
        boundary = self.search.clock.seconds() - UNSURE_SECONDS
        self._sure += sum(event.epoch < boundary for event in events)
        self._sure_until = max(self._sure_until, boundary)

    async def _since(self, key: AuditKey) -> list[AuditEvent]:
        """All that came after what is sure, at most so many."""
        found: list[AuditEvent] = []
        start = None
        while len(found) < MOST:
            events, start = await self.search.page(key, PAGE, start)
            fresh = [event for event in events if event.epoch >= self._sure_until]
            found += fresh
            if start is None or len(fresh) < len(events):
                return found
        self.is_more = True
        return found
