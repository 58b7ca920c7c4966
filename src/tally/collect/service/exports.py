"""The export of an account: everything stored about a person, page by page and without secrets.

An export holds one page in memory, however many workouts the account has.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

from tally.collect.model.accounts import ExportedItem
from tally.collect.model.records import AuditEvent, PageKey
from tally.collect.repository.audit import AuditRepository
from tally.collect.repository.main import CollectRepository

AUDIT_PAGE_SIZE: Final = 200


@dataclass(frozen=True, slots=True)
class ExportService:
    """Reads everything that is stored about a person."""

    repository: CollectRepository
    audit: AuditRepository

    async def item_pages(self, user_id: str) -> AsyncGenerator[list[ExportedItem], None]:
        """Iterate over all items of a user. A milestone contains its awards."""
        start: PageKey | None = None
        milestone: dict[str, Any] | None = None
        while True:
            page, start = await self.repository.exported_items(user_id, start)
            complete: list[ExportedItem] = []
            for item in page:
                if item.section == "awards" and milestone is not None:
                    milestone["awards"].append(item.content)
                    continue
                if milestone is not None:
                    complete.append(ExportedItem("milestones", milestone))
                    milestone = None
                if item.section == "milestones":
                    milestone = item.content | {"awards": []}
                else:
                    complete.append(item)
            if start is None and milestone is not None:
                complete.append(ExportedItem("milestones", milestone))
            yield complete
            if start is None:
                return

    async def event_pages(self, user_id: str) -> AsyncGenerator[list[ExportedItem], None]:
        """Iterate over the events of the user's athlete that are not applied yet."""
        connection = await self.repository.connection(user_id)
        if connection is None:
            return
        for parked in (False, True):
            start: PageKey | None = None
            while True:
                page, start = await self.repository.exported_events(
                    connection.athlete_id, parked=parked, start=start
                )
                yield page
                if start is None:
                    break

    async def audit_pages(self, user_id: str) -> AsyncGenerator[list[AuditEvent], None]:
        """Iterate over the audit events of a user, newest first."""
        start: PageKey | None = None
        while True:
            page, start = await self.audit.by_user(user_id, AUDIT_PAGE_SIZE, start)
            yield page
            if start is None:
                return
