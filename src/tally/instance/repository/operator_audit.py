"""The table `tally-operator-audit`: every change that an operator made, newest first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from tally.store.access import PutItem, Query, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

TRAIL: Final = "audit"

OPERATOR_AUDIT = Table(
    "tally-operator-audit",
    partition=S("operator"),
    sort=S("id"),
    indexes=(GlobalIndex("newest", partition=S("trail"), sort=S("id")),),
    ttl="expires_at",
    attributes=(
        Attribute("operator", "S", required=True, about="name of the operator"),
        Attribute("id", "S", required=True, about="time-ordered ID"),
        Attribute("trail", "S", required=True, about='always "audit"'),
        Attribute("time", "S", required=True, about="RFC 3339"),
        Attribute("action", "S", required=True, about="method and route, or the command"),
        Attribute("target", "S", required=True, about="path, or the name of what changed"),
        Attribute("outcome", "S", required=True, about="started, succeeded or failed"),
        Attribute("error", "S", about="error code of a failure"),
        Attribute("request_id", "S", about="request ID in the logs"),
        Attribute("details", "M", about="without secrets"),
        Attribute("expires_at", "N", required=True, about="epoch seconds"),
    ),
)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One change. The outcome `started` means that the process died before it knew the outcome."""

    operator: str
    id: str
    time: str
    action: str
    target: str
    outcome: str
    error: str | None = None
    request_id: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


_KEY = {"operator": param("operator"), "id": param("id")}


@dataclass(frozen=True, slots=True)
class OperatorAuditRepository:
    """Changes of operators by time, and by operator."""

    store: Store
    tables: ClassVar = (OPERATOR_AUDIT,)

    @access(
        "Record operator change",
        PutItem(key=_KEY),
        table=OPERATOR_AUDIT,
        by="user",
        trigger="Changes through admin routes, console and command line",
        frequency="Per change",
    )
    async def append(self, record: AuditRecord, expires_at: int) -> None:
        item: Item = {
            "operator": record.operator,
            "id": record.id,
            "trail": TRAIL,
            "time": record.time,
            "action": record.action,
            "target": record.target,
            "outcome": record.outcome,
            "expires_at": expires_at,
        }
        if record.request_id is not None:
            item["request_id"] = record.request_id
        if record.details:
            item["details"] = dict(record.details)
        await self.store.put(OPERATOR_AUDIT, item)

    @access(
        "Record outcome of operator change",
        UpdateItem(key=_KEY, condition=exists("id")),
        table=OPERATOR_AUDIT,
        by="user",
        trigger="Changes through admin routes, console and command line",
        frequency="Per change",
    )
    async def finish(self, operator: str, record_id: str, outcome: str, error: str | None) -> None:
        actions = [F("outcome").set(outcome)]
        if error is not None:
            actions.append(F("error").set(error))
        key = {"operator": operator, "id": record_id}
        try:
            await self.store.update(OPERATOR_AUDIT, key, *actions, condition=exists("id"))
        except ConditionFailed:
            return  # the record has expired

    @access(
        "List operator changes",
        Query(where=F("trail") == TRAIL, index="newest", forward=False),
        table=OPERATOR_AUDIT,
        by="user",
        trigger="tally operator audit",
        frequency="Rare",
    )
    async def newest(self, limit: int, start: Key | None) -> tuple[list[AuditRecord], Key | None]:
        page = await self.store.query(
            OPERATOR_AUDIT,
            F("trail") == TRAIL,
            index="newest",
            forward=False,
            limit=limit,
            start=start,
        )
        return [_record(item) for item in page.items], page.next

    @access(
        "List changes of an operator",
        Query(where=F("operator") == param("operator"), forward=False),
        table=OPERATOR_AUDIT,
        by="user",
        trigger="tally operator audit --operator",
        frequency="Rare",
    )
    async def by_operator(
        self, operator: str, limit: int, start: Key | None
    ) -> tuple[list[AuditRecord], Key | None]:
        page = await self.store.query(
            OPERATOR_AUDIT, F("operator") == operator, forward=False, limit=limit, start=start
        )
        return [_record(item) for item in page.items], page.next


def _record(item: Mapping[str, Any]) -> AuditRecord:
    return AuditRecord(
        operator=item["operator"],
        id=item["id"],
        time=item["time"],
        action=item["action"],
        target=item["target"],
        outcome=item["outcome"],
        error=item.get("error"),
        request_id=item.get("request_id"),
        details=item.get("details", {}),
    )
