"""What rules of silence need to know: new boards, and when rules were evaluated last."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import ClassVar, Final

from tally.devices.repository.alarms import DEVICE_ALARM_BOARDS, EVALUATION_KEY
from tally.devices.repository.devices import ALL_DEVICES, DEVICES, MAX_DEVICES
from tally.store.access import GetItem, Query, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists
from tally.store.store import Store

_SEEN_SINCE: Final = (F("gsi1pk") == ALL_DEVICES) & (F("gsi1sk") >= param("since"))


@dataclass(frozen=True, slots=True)
class AlarmWatchRepository:
    """Boards by last activity, and the time of the last evaluation."""

    store: Store
    tables: ClassVar = ()
    reads: ClassVar = (DEVICES,)
    writes: ClassVar = (DEVICE_ALARM_BOARDS,)

    @access(
        "Get time of last alarm evaluation",
        GetItem(key=EVALUATION_KEY),
        table=DEVICE_ALARM_BOARDS,
        trigger="Stream consumers",
        frequency="When an instance begins to evaluate",
    )
    async def evaluated_ms(self) -> int | None:
        item = await self.store.get(DEVICE_ALARM_BOARDS, EVALUATION_KEY, consistent=True)
        return None if item is None else item.get("evaluated_ms")

    @access(
        "Record time of alarm evaluation",
        UpdateItem(key=EVALUATION_KEY, condition=exists("position")),
        table=DEVICE_ALARM_BOARDS,
        trigger="Stream consumers",
        frequency="Every 10 s, while there are rules of silence",
    )
    async def record_evaluation(self, now_ms: int) -> None:
        """Record that rules are evaluated now, unless there is none any more."""
        try:
            await self.store.update(
                DEVICE_ALARM_BOARDS,
                EVALUATION_KEY,
                F("evaluated_ms").set(now_ms),
                condition=exists("position"),
            )
        except ConditionFailed:
            return

    @access(
        "Recently active devices",
        Query(where=_SEEN_SINCE, index="gsi1", project=("hardware_id",)),
        table=DEVICES,
        trigger="Stream consumers",
        frequency="Every 10 s, while there are rules of silence",
        bound=MAX_DEVICES,
    )
    async def seen_since(self, since: str) -> AsyncGenerator[str, None]:
        """Iterate over the ids of devices that were active since a time, also new ones."""
        where = (F("gsi1pk") == ALL_DEVICES) & (F("gsi1sk") >= since)
        async for item in self.store.items(
            DEVICES, where, index="gsi1", project=("hardware_id",), page=500
        ):
            yield item["hardware_id"]
