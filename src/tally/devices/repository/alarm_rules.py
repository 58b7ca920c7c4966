"""The table `device_alarm_rules`: the rules of alarms.

One more item holds a revision. Every change of rules or groups, and every deletion of a device,
increments it in the same transaction. A rule holds the position in the change log of readings at
which it was stored.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Final, NamedTuple

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
from tally.store.errors import TransactionCancelled
from tally.store.expressions import Condition, F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

DEVICE_ALARM_RULES = Table(
    "device_alarm_rules",
    partition=S("kind"),
    sort=S("rule_id"),
    attributes=(
        Attribute("kind", "S", required=True, about="rule or revision"),
        Attribute("rule_id", "S", required=True, about='UUID v4, or "-" for the revision'),
        Attribute("rule", "M", about="name, condition, scope, version and time of the rule"),
        Attribute("position", "S", about="the last change of readings before the rule"),
        Attribute("revision", "N", about="increases with every change of rules or groups"),
    ),
)
REVISION_KEY: Final = {"kind": "revision", "rule_id": "-"}
_RULE_KEY: Final = {"kind": "rule", "rule_id": param("ruleId")}
_IS_REVISION: Final = F("revision") == param("revision")


class StoredRule(NamedTuple):
    """A rule, and the position in the change log of readings at which it was stored."""

    rule: AlarmRule
    position: str


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
        "Get revision of alarm rules",
        GetItem(key=REVISION_KEY),
        table=DEVICE_ALARM_RULES,
        by="both",
        trigger="PUT /alarm-rules/{rule_id}, stream consumers",
        frequency="Per transaction of the consumer, and twice a second",
    )
    async def revision(self) -> int:
        item = await self.store.get(DEVICE_ALARM_RULES, REVISION_KEY, consistent=True) or {}
        return int(item.get("revision", 0))

    @access(
        "List alarm rules",
        Query(where=F("kind") == "rule"),
        table=DEVICE_ALARM_RULES,
        by="both",
        trigger="GET /alarm-rules, stream consumers",
        frequency="Per request, and per change of rules",
        bound=2 * MAX_ALARM_RULES,
    )
    async def all(self) -> list[StoredRule]:
        where = F("kind") == "rule"
        return [
            StoredRule(decode_rule(item["rule"]), item["position"])
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
            UpdateItem(key=REVISION_KEY, condition=(_IS_REVISION, not_exists("revision"))),
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
        item = {
            "kind": "rule",
            "rule_id": rule.rule_id,
            "rule": encode_rule(rule),
            "position": position,
        }
        await self._change(revision, Put(DEVICE_ALARM_RULES, item))

    @access(
        "Delete alarm rule",
        TransactWriteItems(
            UpdateItem(key=REVISION_KEY, condition=_IS_REVISION), DeleteItem(key=_RULE_KEY)
        ),
        table=DEVICE_ALARM_RULES,
        by="user",
        trigger="DELETE /alarm-rules/{rule_id}",
        frequency="Rare",
        bound=2,
    )
    async def delete(self, rule_id: str, revision: int) -> None:
        key = {"kind": "rule", "rule_id": rule_id}
        await self._change(revision, Delete(DEVICE_ALARM_RULES, key))

    async def _change(self, revision: int, write: Write) -> None:
        actions = (F("revision").set(revision + 1),)
        update = Update(DEVICE_ALARM_RULES, REVISION_KEY, actions, is_revision(revision))
        try:
            await self.store.transact([update, write])
        except TransactionCancelled as error:
            if error.reasons[0].condition_failed:
                raise RulesChanged from error
            raise


def increment_revision() -> Update:
    """Return a write after which the evaluation reads rules and groups again."""
    return Update(DEVICE_ALARM_RULES, REVISION_KEY, (F("revision").add(1),))


def encode_rule(rule: AlarmRule) -> Item:
    item: Item = msgspec.to_builtins(rule, builtin_types=(Decimal,))
    return item


def decode_rule(item: Item) -> AlarmRule:
    return msgspec.convert(item, AlarmRule)
