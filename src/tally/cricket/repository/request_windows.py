"""The table `cricket-request-windows`: the hourly request quotas that all instances share."""

from dataclasses import dataclass
from typing import ClassVar, Final

from tally.cricket.model.records import QuotaWindow
from tally.store.access import GetItem, PutItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

CRICKET_REQUEST_WINDOWS = Table(
    "cricket-request-windows",
    partition=S("resource"),
    ttl="ttl",
    attributes=(
        Attribute("resource", "S", required=True, about="the SportMonks resource: livescores…"),
        Attribute("remaining", "N", required=True, about="requests that no instance has reserved"),
        Attribute("resetsAt", "N", required=True, about="epoch milliseconds"),
        Attribute("ttl", "N", required=True, about="epoch seconds, a day after the reset"),
    ),
)
CLEANUP_SECONDS: Final = 86_400


_KEY: Final = {"resource": param("resource")}


@dataclass(frozen=True, slots=True)
class QuotaWindowRepository:
    """Windows by resource; implements the port `QuotaWindows` of the SportMonks gateway."""

    store: Store
    tables: ClassVar = (CRICKET_REQUEST_WINDOWS,)

    @access(
        "Get request window",
        GetItem(key=_KEY),
        table=CRICKET_REQUEST_WINDOWS,
        by="system",
        trigger="SportMonksClient",
        frequency="Once per ten requests to SportMonks",
    )
    async def get(self, resource: str) -> QuotaWindow | None:
        item = await self.store.get(
            CRICKET_REQUEST_WINDOWS, {"resource": resource}, consistent=True
        )
        return None if item is None else QuotaWindow(item["remaining"], item["resetsAt"])

    @access(
        "Reserve requests",
        PutItem(
            key=_KEY,
            condition=(
                not_exists("resource"),
                (F("remaining") == param("remaining")) & (F("resetsAt") == param("resetsAt")),
            ),
        ),
        table=CRICKET_REQUEST_WINDOWS,
        by="system",
        trigger="SportMonksClient",
        frequency="Once per ten requests to SportMonks",
    )
    async def replace(self, resource: str, before: QuotaWindow | None, after: QuotaWindow) -> bool:
        """Store a window; return False if the stored one is not `before`."""
        item = {
            "resource": resource,
            "remaining": after.remaining,
            "resetsAt": after.resets_at,
            "ttl": after.resets_at // 1000 + CLEANUP_SECONDS,
        }
        is_unchanged = (
            not_exists("resource")
            if before is None
            else (F("remaining") == before.remaining) & (F("resetsAt") == before.resets_at)
        )
        try:
            await self.store.put(CRICKET_REQUEST_WINDOWS, item, condition=is_unchanged)
        except ConditionFailed:
            return False
        return True
