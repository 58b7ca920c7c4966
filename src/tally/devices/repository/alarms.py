"""The tables `device_alarms` and `device_alarm_boards`: alarms, and what rules remember of boards.

One transaction moves the position in the change log of readings, stores what the rules remember,
and raises and clears alarms. A crash or a second consumer therefore evaluates no reading twice.
All alarms are in one partition, whose change log is the stream of alarms in their order.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from tally.devices.model.alarms import ALARM_PARTITION, Alarm, AlarmEntry, AlarmState, BoardMemory
from tally.devices.model.records import Reading
from tally.devices.repository.alarm_rules import (
    DEVICE_ALARM_RULES,
    REVISION_KEY,
    RulesChanged,
    decode_rule,
    encode_rule,
    is_revision,
)
from tally.devices.repository.readings import DEVICE_READINGS, inserted_reading
from tally.store.access import (
    BatchGetItem,
    ConditionCheck,
    DeleteItem,
    GetItem,
    GetRecords,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Check, Delete, Page, Put, Update, Write
from tally.store.change_logs import change_log
from tally.store.changes import Change
from tally.store.errors import (
    ConditionFailed,
    InvalidRequest,
    PositionExpired,
    PositionUnknown,
    TransactionCancelled,
)
from tally.store.expressions import Action, F, exists, list_append, not_exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

DEVICE_ALARMS = Table(
    "device_alarms",
    partition=S("fleet"),
    sort=S("alarm_id"),
    ttl="expiration_time",
    stream="NEW_AND_OLD_IMAGES",
    indexes=(
        GlobalIndex("by_state", partition=S("state"), sort=S("alarm_id")),
        GlobalIndex("by_device", partition=S("hardware_id"), sort=S("alarm_id")),
    ),
    attributes=(
        Attribute("fleet", "S", required=True, about='always "alarms"'),
        Attribute("alarm_id", "S", required=True, about="sortable by the time of the alarm"),
        Attribute("hardware_id", "S", required=True, about="MAC address"),
        Attribute("state", "S", required=True, about="open, acknowledged or cleared"),
        Attribute("rule", "M", required=True, about="the rule as it was when the alarm was raised"),
        Attribute("history", "L", required=True, about="state, time, value and cause of each step"),
        Attribute("expiration_time", "N", about="epoch seconds: a year after the alarm cleared"),
    ),
)
DEVICE_ALARM_BOARDS = Table(
    "device_alarm_boards",
    partition=S("hardware_id"),
    attributes=(
        Attribute("hardware_id", "S", required=True, about='MAC address, or "*" for the consumer'),
        Attribute("newest", "S", about="ts_batch of the newest evaluated reading"),
        Attribute("arrived_ms", "N", about="when the last reading arrived"),
        Attribute("rules", "M", about="by rule: its version, alarm and samples"),
        Attribute("position", "S", about="of the consumer: the last reading that was evaluated"),
        Attribute("evaluated_ms", "N", about="of the consumer: when it evaluated rules of silence"),
    ),
)
CLEARED_SECONDS: Final = 365 * 86_400
MAX_EVALUATED_BOARDS: Final = 1_000_000
MAX_ALARM_WRITES: Final = 98  # of a transaction, beside the position and the revision
ALARM_KEY: Final = {"fleet": ALARM_PARTITION, "alarm_id": param("alarmId")}
EVALUATION_KEY: Final = {"hardware_id": "*"}
_BOARD_KEY: Final = {"hardware_id": param("hardwareId")}

_SAME_REVISION: Final = ConditionCheck(
    key=REVISION_KEY,
    condition=(F("revision") == param("revision"), not_exists("revision")),
    table=DEVICE_ALARM_RULES,
)

AlarmLog = change_log(DEVICE_ALARMS, "alarms", "GET /alarms/stream")


class EvaluationState(NamedTuple):
    """Which rules are in force, and how far readings were evaluated by them."""

    revision: int
    position: str | None


class EvaluatedReading(NamedTuple):
    """A change of readings: its position and time, and the reading that it stored, if any."""

    position: str
    at: float
    reading: Reading | None


class ReadingsLost(Exception):
    """Readings after a position are no longer in the change log."""


class EvaluationTooLarge(Exception):
    """The evaluation does not fit into one transaction: evaluate fewer readings at once."""


class Evaluation(NamedTuple):
    """The outcome of evaluating some changes: what to store in one transaction."""

    position: str
    boards: Mapping[str, BoardMemory]
    raised: Sequence[Alarm] = ()
    cleared: Mapping[str, AlarmEntry] = {}


@dataclass(frozen=True, slots=True)
class AlarmRepository:
    """Alarms by id, state and device, and the memory of their evaluation."""

    store: Store
    tables: ClassVar = (DEVICE_ALARMS, DEVICE_ALARM_BOARDS)
    reads: ClassVar = (DEVICE_READINGS, DEVICE_ALARM_RULES)

    @access(
        "Readings for alarms",
        GetRecords(),
        table=DEVICE_READINGS,
        trigger="Stream consumers",
        frequency="Continuously on one instance, while there are rules",
    )
    async def readings(self, after: str) -> AsyncGenerator[EvaluatedReading, None]:
        """Follow the changes after a position; raise ReadingsLost if some were trimmed."""
        try:
            async for change in self.store.changes(DEVICE_READINGS, after=after):
                yield EvaluatedReading(change.position, change.at, inserted_reading(change))
        except (PositionExpired, PositionUnknown) as error:
            raise ReadingsLost(str(error)) from error

    @access(
        "Get position of alarm evaluation",
        GetItem(key=EVALUATION_KEY),
        table=DEVICE_ALARM_BOARDS,
        trigger="Stream consumers",
        frequency="When rules change, and twice a second while there are none",
    )
    async def position(self) -> str | None:
        item = await self.store.get(DEVICE_ALARM_BOARDS, EVALUATION_KEY, consistent=True)
        return None if item is None else item.get("position")

    @access(
        "Start or stop alarm evaluation",
        TransactWriteItems(
            UpdateItem(
                key=EVALUATION_KEY,
                condition=(F("position") == param("position"), not_exists("position")),
                table=DEVICE_ALARM_BOARDS,
            ),
            _SAME_REVISION,
        ),
        table=DEVICE_ALARM_BOARDS,
        tables=(DEVICE_ALARM_RULES,),
        trigger="Stream consumers",
        frequency="With the first and the last rule, and after a gap in the change log",
        bound=2,
    )
    async def restart(self, state: EvaluationState, position: str | None) -> None:
        """Continue at another position, or with None stop until there is a rule."""
        try:
            await self.store.transact(_move(state, position))
        except TransactionCancelled as error:
            raise RulesChanged from error

    @access(
        "Get memory of alarm rules",
        BatchGetItem(key=_BOARD_KEY),
        table=DEVICE_ALARM_BOARDS,
        trigger="Stream consumers",
        frequency="All boards when an instance begins to evaluate and after a change of rules",
        bound=MAX_EVALUATED_BOARDS,
    )
    async def memories(self, hardware_ids: Iterable[str]) -> list[BoardMemory]:
        """Return what rules remember of some boards."""
        keys = [{"hardware_id": hardware_id} for hardware_id in hardware_ids]
        items = await self.store.get_many(DEVICE_ALARM_BOARDS, keys, consistent=True)
        return [msgspec.convert(item, BoardMemory) for item in items]

    @access(
        "Evaluate alarms",
        TransactWriteItems(
            UpdateItem(
                key=EVALUATION_KEY,
                condition=F("position") == param("position"),
                table=DEVICE_ALARM_BOARDS,
            ),
            _SAME_REVISION,
            PutItem(
                key=_BOARD_KEY, requests=MAX_ALARM_WRITES, table=DEVICE_ALARM_BOARDS
            ).optional(),
            DeleteItem(
                key=_BOARD_KEY, requests=MAX_ALARM_WRITES, table=DEVICE_ALARM_BOARDS
            ).optional(),
            PutItem(key=ALARM_KEY, requests=MAX_ALARM_WRITES).optional(),
            UpdateItem(
                key=ALARM_KEY, condition=exists("alarm_id"), requests=MAX_ALARM_WRITES
            ).optional(),
        ),
        table=DEVICE_ALARMS,
        tables=(DEVICE_ALARM_RULES, DEVICE_ALARM_BOARDS),
        trigger="Stream consumers",
        frequency="Per reading or group of readings, while there are rules",
        bound=MAX_ALARM_WRITES + 2,
    )
    async def apply(self, state: EvaluationState, evaluation: Evaluation, now: int) -> None:
        """Store an evaluation, or raise RulesChanged or EvaluationTooLarge."""
        writes: list[Write] = _move(state, evaluation.position)
        for hardware_id, memory in evaluation.boards.items():
            if memory.rules or memory.arrived_ms:
                writes.append(Put(DEVICE_ALARM_BOARDS, _encode(memory)))
            else:
                writes.append(Delete(DEVICE_ALARM_BOARDS, {"hardware_id": hardware_id}))
        writes += [Put(DEVICE_ALARMS, _item(alarm)) for alarm in evaluation.raised]
        writes += [_clear(*cleared, now) for cleared in evaluation.cleared.items()]
        try:
            await self.store.transact(writes)
        except TransactionCancelled as error:
            if any(reason.condition_failed for reason in error.reasons[:2]):
                raise RulesChanged from error
            raise
        except InvalidRequest as error:
            raise EvaluationTooLarge from error

    @access(
        "Acknowledge alarm",
        UpdateItem(key=ALARM_KEY, condition=F("state") == "open"),
        table=DEVICE_ALARMS,
        by="user",
        trigger="POST /alarms/{alarm_id}/acknowledge",
        frequency="Rare",
    )
    async def acknowledge(self, alarm_id: str, entry: AlarmEntry) -> Alarm | None:
        """Acknowledge an open alarm; return None if there is no open alarm with this id."""
        try:
            item = await self.store.update(
                DEVICE_ALARMS,
                _key(alarm_id),
                *_actions(entry),
                condition=F("state") == "open",
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        return _alarm(item or {})

    @access(
        "Get alarm",
        GetItem(key=ALARM_KEY),
        table=DEVICE_ALARMS,
        by="user",
        trigger="GET /alarms/{alarm_id}",
        frequency="Per request",
    )
    async def get(self, alarm_id: str) -> Alarm | None:
        item = await self.store.get(DEVICE_ALARMS, _key(alarm_id), consistent=True)
        return None if item is None else _alarm(item)

    @access(
        "List alarms",
        Query(where=F("fleet") == ALARM_PARTITION, forward=False),
        table=DEVICE_ALARMS,
        by="user",
        trigger="GET /alarms",
        frequency="Per request",
    )
    async def newest(self, limit: int, start: Key | None) -> tuple[list[Alarm], Key | None]:
        """Return a page of alarms, newest first, and the next start key."""
        where = F("fleet") == ALARM_PARTITION
        return _page(
            await self.store.query(DEVICE_ALARMS, where, forward=False, limit=limit, start=start)
        )

    @access(
        "List alarms by state",
        Query(where=F("state") == param("state"), index="by_state", forward=False),
        table=DEVICE_ALARMS,
        by="user",
        trigger="GET /alarms?state=",
        frequency="Per request",
    )
    async def by_state(
        self, state: AlarmState, limit: int, start: Key | None
    ) -> tuple[list[Alarm], Key | None]:
        where = F("state") == state
        page = await self.store.query(
            DEVICE_ALARMS, where, index="by_state", forward=False, limit=limit, start=start
        )
        return _page(page)

    @access(
        "List alarms of device",
        Query(where=F("hardware_id") == param("hardwareId"), index="by_device", forward=False),
        table=DEVICE_ALARMS,
        by="user",
        trigger="GET /alarms?hardware_id=",
        frequency="Per request",
    )
    async def by_device(
        self, hardware_id: str, limit: int, start: Key | None
    ) -> tuple[list[Alarm], Key | None]:
        where = F("hardware_id") == hardware_id
        page = await self.store.query(
            DEVICE_ALARMS, where, index="by_device", forward=False, limit=limit, start=start
        )
        return _page(page)


def _move(state: EvaluationState, position: str | None) -> list[Write]:
    """Move the position, on the condition that neither it nor the rules have changed."""
    known = state.position
    is_same = not_exists("position") if known is None else F("position") == known
    action = F("position").remove() if position is None else F("position").set(position)
    return [
        Update(DEVICE_ALARM_BOARDS, EVALUATION_KEY, (action,), is_same),
        Check(DEVICE_ALARM_RULES, REVISION_KEY, is_revision(state.revision)),
    ]


def remove_board(memory: BoardMemory, entry: AlarmEntry, now: int) -> list[Write]:
    """Delete the memory of a board, unless an evaluation changed it, and clear its alarms."""
    stored = _encode(memory).get("rules")
    is_same = F("rules") == stored if stored else not_exists("rules") | (F("rules") == {})
    active = [known.alarm_id for known in memory.rules.values() if known.alarm_id is not None]
    return [
        Delete(DEVICE_ALARM_BOARDS, {"hardware_id": memory.hardware_id}, is_same),
        *(_clear(alarm_id, entry, now) for alarm_id in active),
    ]


def _clear(alarm_id: str, entry: AlarmEntry, now: int) -> Update:
    actions = _actions(entry, F("expiration_time").set(now + CLEARED_SECONDS))
    return Update(DEVICE_ALARMS, _key(alarm_id), actions, exists("alarm_id"))


def changed_alarm(change: Change) -> Alarm | None:
    """Return the alarm after a change, or None if it expired."""
    return None if change.new is None else _alarm(change.new)


def _actions(entry: AlarmEntry, *others: Action) -> tuple[Action, ...]:
    added = list_append(F("history"), [_encode(entry)])
    return (F("state").set(entry.state), F("history").set(added), *others)


def _key(alarm_id: str) -> Key:
    return {"fleet": ALARM_PARTITION, "alarm_id": alarm_id}


def _page(page: Page) -> tuple[list[Alarm], Key | None]:
    return [_alarm(item) for item in page.items], page.next


def _encode(record: Any) -> Item:
    item: Item = msgspec.to_builtins(record, builtin_types=(Decimal,))
    return item


def _item(alarm: Alarm) -> Item:
    return {
        **_key(alarm.alarm_id),
        "hardware_id": alarm.hardware_id,
        "state": alarm.state,
        "rule": encode_rule(alarm.rule),
        "history": [_encode(entry) for entry in alarm.history],
    }


def _alarm(item: Mapping[str, Any]) -> Alarm:
    return Alarm(
        item["alarm_id"],
        decode_rule(item["rule"]),
        item["hardware_id"],
        item["state"],
        msgspec.convert(item["history"], tuple[AlarmEntry, ...]),
    )
