"""The table `device_alarm_rules`: the rules of alarms, and how far they were evaluated.

The item of the consumer holds the position up to which readings were evaluated, and a revision that
every change of rules or groups increments. Without rules there is no position.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from tally.devices.model.alarms import MAX_ALARM_RULES, AlarmRule
from tally.store.access import (
    DeleteItem,
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Delete, Put, Update, Write
from tally.store.errors import ConditionFailed, TransactionCancelled
from tally.store.expressions import Condition, F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

DEVICE_ALARM_RULES = Table(
    "device_alarm_rules",
    partition=S("kind"),
    sort=S("rule_id"),
    attributes=(
        Attribute("kind", "S", required=True, about="rule or consumer"),
        Attribute("rule_id", "S", required=True, about='UUID v4, or "-" for the consumer'),
        Attribute("rule", "M", about="name, condition, scope, version and time of the rule"),
        Attribute("revision", "N", about="of the consumer: increases with every change"),
        Attribute("position", "S", about="of the consumer: the last reading that was evaluated"),
    ),
)
EVALUATION_KEY: Final = {"kind": "consumer", "rule_id": "-"}
_RULE_KEY: Final = {"kind": "rule", "rule_id": param("ruleId")}
_IS_REVISION: Final = F("revision") == param("revision")


class EvaluationState(NamedTuple):
    """Which rules are in force, and how far readings were evaluated by them."""

    revision: int
    position: str | None


class RulesChanged(Exception):
    """Rules, groups or the position have changed meanwhile: read them again."""


def is_revision(revision: int) -> Condition:
    return not_exists("revision") if revision == 0 else F("revision") == revision


@dataclass(frozen=True, slots=True)
class AlarmRuleRepository:
    """Rules by id. Every change increments the revision in the same transaction."""

    store: Store
    tables: ClassVar = (DEVICE_ALARM_RULES,)

    @access(
        "Get state of alarm evaluation",
        GetItem(key=EVALUATION_KEY),
        table=DEVICE_ALARM_RULES,
        by="both",
        trigger="PUT /alarm-rules/{rule_id}, stream consumers",
        frequency="Per transaction of the consumer, and once a second",
    )
    async def state(self) -> EvaluationState:
        item = await self.store.get(DEVICE_ALARM_RULES, EVALUATION_KEY, consistent=True) or {}
        return EvaluationState(int(item.get("revision", 0)), item.get("position"))

    @access(
        "List alarm rules",
        Query(where=F("kind") == "rule"),
        table=DEVICE_ALARM_RULES,
        by="both",
        trigger="GET /alarm-rules, stream consumers",
        frequency="Per request, and per change of rules",
        bound=2 * MAX_ALARM_RULES,
    )
    async def all(self) -> list[AlarmRule]:
        where = F("kind") == "rule"
        return [
            decode_rule(item["rule"])
            async for item in self.store.items(DEVICE_ALARM_RULES, where, consistent=True)
        ]

    @access(
        "Get alarm rule",
        GetItem(key=_RULE_KEY),
        table=DEVICE_ALARM_RULES,
        by="user",
        trigger="GET /alarm-rules/{rule_id}",
        frequency="Per request",
    )
    async def get(self, rule_id: str) -> AlarmRule | None:
        key = {"kind": "rule", "rule_id": rule_id}
        item = await self.store.get(DEVICE_ALARM_RULES, key, consistent=True)
        return None if item is None else decode_rule(item["rule"])

    @access(
        "Store alarm rule",
        TransactWriteItems(
            UpdateItem(key=EVALUATION_KEY, condition=(_IS_REVISION, not_exists("revision"))),
            PutItem(key=_RULE_KEY),
        ),
        table=DEVICE_ALARM_RULES,
        by="user",
        trigger="POST /alarm-rules, PUT /alarm-rules/{rule_id}",
        frequency="Rare",
        bound=2,
    )
    async def put(self, rule: AlarmRule, revision: int, position: str) -> None:
        """Store a rule; the evaluation starts at `position` if there was no rule before."""
        item = {"kind": "rule", "rule_id": rule.rule_id, "rule": encode_rule(rule)}
        start = F("position").set(F("position").if_not_exists(position))
        await self._change(revision, start, Put(DEVICE_ALARM_RULES, item))

    @access(
        "Delete alarm rule",
        TransactWriteItems(
            UpdateItem(key=EVALUATION_KEY, condition=_IS_REVISION), DeleteItem(key=_RULE_KEY)
        ),
        table=DEVICE_ALARM_RULES,
        by="user",
        trigger="DELETE /alarm-rules/{rule_id}",
        frequency="Rare",
        bound=2,
    )
    async def delete(self, rule_id: str, revision: int) -> None:
        key = {"kind": "rule", "rule_id": rule_id}
        await self._change(revision, None, Delete(DEVICE_ALARM_RULES, key))

    async def _change(self, revision: int, start: Any, write: Write) -> None:
        actions = (F("revision").set(revision + 1), *(() if start is None else (start,)))
        update = Update(DEVICE_ALARM_RULES, EVALUATION_KEY, actions, is_revision(revision))
        try:
            await self.store.transact([update, write])
        except TransactionCancelled as error:
            if error.reasons[0].condition_failed:
                raise RulesChanged from error
            raise

    @access(
        "Stop or restart alarm evaluation",
        UpdateItem(key=EVALUATION_KEY, condition=_IS_REVISION),
        table=DEVICE_ALARM_RULES,
        trigger="Stream consumers",
        frequency="After the last rule was deleted, and after a gap in the change log",
    )
    async def restart(self, state: EvaluationState, position: str | None) -> None:
        """Continue at another position, or with None stop until there is a rule."""
        action = F("position").remove() if position is None else F("position").set(position)
        try:
            await self.store.update(
                DEVICE_ALARM_RULES,
                EVALUATION_KEY,
                action,
                condition=F("revision") == state.revision,
            )
        except ConditionFailed as error:
            raise RulesChanged from error


def encode_rule(rule: AlarmRule) -> Item:
    item: Item = msgspec.to_builtins(rule, builtin_types=(Decimal,))
    return item


def decode_rule(item: Item) -> AlarmRule:
    return msgspec.convert(item, AlarmRule)
