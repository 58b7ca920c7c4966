"""The table `tally-probe`: one item per running instance, overwritten by its readiness probe."""

from dataclasses import dataclass
from typing import ClassVar, Final

from tally.errors import Unavailable
from tally.store.access import PutItem, access, param
from tally.store.damage import damage_unavailable
from tally.store.errors import StorageDamaged, StorageFull, StoreUnavailable
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

PROBES = Table(
    "tally-probe",
    partition=S("instance_id"),
    ttl="expires_at",
    attributes=(
        Attribute("instance_id", "S", required=True, about="UUID of the process"),
        Attribute("written_at", "N", required=True, about="epoch milliseconds"),
        Attribute("expires_at", "N", required=True, about="epoch seconds"),
    ),
)
EXPIRY_STEP_SECONDS: Final = 3_600


@dataclass(frozen=True, slots=True)
class ProbeRepository:
    """The last write of each instance's readiness probe."""

    store: Store
    tables: ClassVar = (PROBES,)

    @access(
        "Write readiness probe",
        PutItem(key={"instance_id": param("instanceId")}),
        table=PROBES,
        by="system",
        trigger="Readiness probe",
        frequency="Every second per instance",
    )
    async def write(self, instance_id: str, now_ms: int) -> None:
        """Overwrite the item of an instance; raises Unavailable with the reason.

        The expiry changes once per hour, so that most writes leave its index unchanged.
        """
        step = now_ms // 1000 // EXPIRY_STEP_SECONDS
        item = {
            "instance_id": instance_id,
            "written_at": now_ms,
            "expires_at": (step + 2) * EXPIRY_STEP_SECONDS,
        }
        # Translated here: the decorator would log every failed attempt.
        try:
            await self.store.put(PROBES, item)
        except StorageDamaged as error:
            raise damage_unavailable() from error
        except StorageFull as error:
            raise Unavailable("The disk is full") from error
        except StoreUnavailable as error:
            raise Unavailable("The store does not accept writes") from error
