"""The table `CommitCollectAudit`: audit events of 90 days by user, correlation, event and month."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from tally.collect.model.records import AUDIT_TTL_SECONDS, AuditEvent
from tally.store.access import PutItem, Query, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

COMMIT_COLLECT_AUDIT = Table(
    "CommitCollectAudit",
    partition=S("PK"),
    sort=S("SK"),
    indexes=(
        GlobalIndex("GSI1", partition=S("GSI1PK"), sort=S("GSI1SK")),
        GlobalIndex("GSI2", partition=S("GSI2PK"), sort=S("GSI2SK")),
    ),
    ttl="expiresAt",
    attributes=(
        Attribute("PK", "S", required=True, about="USER#{userId}"),
        Attribute(
            "SK",
            "S",
            required=True,
            about="AUDIT#{unixEpoch}#{requestId}; #2 and up for further events of a request",
        ),
        Attribute("GSI1PK", "S", required=True, about="CORR#{correlationId}"),
        Attribute("GSI1SK", "S", required=True, about="equals SK"),
        Attribute("GSI2PK", "S", required=True, about="EVENT#{eventType}#{yyyyMM}"),
        Attribute("GSI2SK", "S", required=True, about="equals SK"),
        Attribute("eventType", "S", required=True),
        Attribute("userId", "S", required=True),
        Attribute("requestId", "S", required=True),
        Attribute("correlationId", "S", required=True),
        Attribute("epoch", "N", required=True, about="epoch seconds"),
        Attribute("facts", "M", required=True, about="details, without secrets"),
        Attribute("ipHash", "S", about="keyed hash of the IP address"),
        Attribute("expiresAt", "N", required=True, about="epoch seconds, 90 days later"),
    ),
)


@dataclass(frozen=True, slots=True)
class AuditRepository:
    """Audit events by user, correlation and event."""

    store: Store
    tables: ClassVar = (COMMIT_COLLECT_AUDIT,)

    @access(
        "Append audit event",
        PutItem(
            key={
                "PK": f"USER#{param('userId')}",
                "SK": f"AUDIT#{param('unixEpoch')}#{param('requestId')}",
            },
            condition=not_exists("PK"),
        ),
        table=COMMIT_COLLECT_AUDIT,
        by="system",
        trigger="AUTH_*, STRAVA_*, MILESTONE_*, ACCOUNT_*",
        frequency="Per event",
    )
    async def append(self, event: AuditEvent, number: int = 1) -> bool:
        """Write an event. Return False if the number is taken and the caller must try the next."""
        try:
            await self.store.put(
                COMMIT_COLLECT_AUDIT, _item(event, number), condition=not_exists("PK")
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Audit by user",
        Query(
            where=(F("PK") == f"USER#{param('userId')}") & F("SK").begins_with("AUDIT#"),
            forward=False,
        ),
        table=COMMIT_COLLECT_AUDIT,
        by="user",
        trigger="GET /admin/audit?user=",
        frequency="Rare",
    )
    async def by_user(
        self, user_id: str, limit: int, start: Key | None
    ) -> tuple[list[AuditEvent], Key | None]:
        where = (F("PK") == f"USER#{user_id}") & F("SK").begins_with("AUDIT#")
        page = await self.store.query(
            COMMIT_COLLECT_AUDIT, where, forward=False, limit=limit, start=start
        )
        return [_event(item) for item in page.items], page.next

    @access(
        "Audit by correlation",
        Query(where=F("GSI1PK") == f"CORR#{param('correlationId')}", index="GSI1", forward=False),
        table=COMMIT_COLLECT_AUDIT,
        by="user",
        trigger="GET /admin/audit?correlation=",
        frequency="Rare",
    )
    async def by_correlation(
        self, correlation_id: str, limit: int, start: Key | None
    ) -> tuple[list[AuditEvent], Key | None]:
        where = F("GSI1PK") == f"CORR#{correlation_id}"
        page = await self.store.query(
            COMMIT_COLLECT_AUDIT, where, index="GSI1", forward=False, limit=limit, start=start
        )
        return [_event(item) for item in page.items], page.next

    @access(
        "Audit by event and month",
        Query(
            where=F("GSI2PK") == f"EVENT#{param('eventType')}#{param('yyyyMM')}",
            index="GSI2",
            forward=False,
        ),
        table=COMMIT_COLLECT_AUDIT,
        by="user",
        trigger="GET /admin/audit?event=&month=",
        frequency="Rare",
    )
    async def by_event(
        self, event_type: str, month: str, limit: int, start: Key | None
    ) -> tuple[list[AuditEvent], Key | None]:
        where = F("GSI2PK") == f"EVENT#{event_type}#{month}"
        page = await self.store.query(
            COMMIT_COLLECT_AUDIT, where, index="GSI2", forward=False, limit=limit, start=start
        )
        return [_event(item) for item in page.items], page.next


def _item(event: AuditEvent, number: int) -> Item:
    sort = f"AUDIT#{event.epoch:010}#{event.request_id}" + (f"#{number}" if number > 1 else "")
    month = datetime.fromtimestamp(event.epoch, UTC).strftime("%Y%m")
    item: Item = {
        "PK": f"USER#{event.user_id}",
        "SK": sort,
        "GSI1PK": f"CORR#{event.correlation_id}",
        "GSI1SK": sort,
        "GSI2PK": f"EVENT#{event.event_type}#{month}",
        "GSI2SK": sort,
        "eventType": event.event_type,
        "userId": event.user_id,
        "requestId": event.request_id,
        "correlationId": event.correlation_id,
        "epoch": event.epoch,
        "facts": dict(event.facts),
        "expiresAt": event.epoch + AUDIT_TTL_SECONDS,
    }
    if event.ip_hash is not None:
        item["ipHash"] = event.ip_hash
    return item


def _event(item: Mapping[str, Any]) -> AuditEvent:
    return AuditEvent(
        event_type=item["eventType"],
        user_id=item["userId"],
        epoch=item["epoch"],
        request_id=item["requestId"],
        correlation_id=item["correlationId"],
        facts=item["facts"],
        ip_hash=item.get("ipHash"),
    )
