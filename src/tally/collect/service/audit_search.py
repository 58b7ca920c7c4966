"""What happened: looked up by person, by correlation id, or by kind of event and month."""

from dataclasses import dataclass, replace

from tally.collect.model import AuditEvent, PageKey
from tally.collect.repository.audit import AuditRepository
from tally.errors import Invalid
from tally.kit.clock import Clock


@dataclass(frozen=True, slots=True)
class AuditKey:
    """Exactly one of user, correlation and event; an event is looked for in a month, such as 202601."""

    user: str | None = None
    correlation: str | None = None
    event: str | None = None
    month: str | None = None


@dataclass(frozen=True, slots=True)
class AuditSearch:
    """The audit trail for operators. What writes it is `AuditTrail`."""

    repository: AuditRepository
    clock: Clock

    def checked(self, key: AuditKey) -> AuditKey:
        """The key with its month, this one where none is given; Invalid where it is none of the table's three."""
        given = [name for name in (key.user, key.correlation, key.event) if name is not None]
        if len(given) != 1 or (key.month is not None and key.event is None):
            message = "Give exactly one of user, correlation and event; a month goes with an event"
            raise Invalid(message, code="invalid_field", field="user")
        return replace(key, month=key.month or self.clock.now().strftime("%Y%m"))

    async def page(
        self, key: AuditKey, limit: int, start: PageKey | None
    ) -> tuple[list[AuditEvent], PageKey | None]:
        """Events of a checked key, newest first, and where the next page starts."""
        if key.user is not None:
            return await self.repository.by_user(key.user, limit, start)
        if key.correlation is not None:
            return await self.repository.by_correlation(key.correlation, limit, start)
        return await self.repository.by_event(key.event or "", key.month or "", limit, start)
