"""Alarm rules and alarms, as operators use them. `alarm_consumer` evaluates the rules."""

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from tally.devices.model.alarms import (
    MAX_ALARM_RULES,
    Alarm,
    AlarmCondition,
    AlarmEntry,
    AlarmRule,
    AlarmScope,
    AlarmState,
    RateOfChange,
    Silence,
    Threshold,
)
from tally.devices.model.fleet import check_group
from tally.devices.model.records import PageKey
from tally.devices.model.validation import (
    NAME_RULE,
    are_names,
    check_hardware_id,
    check_text,
    check_uuid4,
    invalid_field,
)
from tally.devices.repository.alarm_rules import AlarmRuleRepository, RulesChanged
from tally.devices.repository.alarms import AlarmRepository
from tally.devices.repository.measurements import MeasurementRepository
from tally.devices.service.sensors import SensorService
from tally.errors import Conflict, Invalid, NotFound
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class AlarmService:
    """Manages rules, lists alarms and acknowledges them."""

    rules: AlarmRuleRepository
    alarms: AlarmRepository
    measurements: MeasurementRepository
    sensors: SensorService
    clock: Clock

    async def create_rule(self, draft: AlarmRule) -> AlarmRule:
        """Store a new rule; it applies to readings that are sent from now on."""
        rule = replace(
            await self._check(draft), rule_id=new_uuid(), updated_at_ms=self.clock.milliseconds()
        )
        for _ in range(_ATTEMPTS):
            # Before the count: a rule that is added meanwhile changes the revision.
            revision = await self.rules.revision()
            if len(await self.rules.all()) >= MAX_ALARM_RULES:
                raise Conflict(
                    f"There may be at most {MAX_ALARM_RULES} alarm rules; delete one first",
                    code="too_many_alarm_rules",
                )
            try:
                await self.rules.put(rule, revision, await self.measurements.position())
            except RulesChanged:
                continue
            return rule
        raise _changed_meanwhile()

    async def replace_rule(self, rule_id: str, draft: AlarmRule) -> AlarmRule:
        """Change a rule; its alarms are cleared, and it is evaluated anew."""
        rule_id, draft = check_uuid4(rule_id, "rule_id"), await self._check(draft)
        for _ in range(_ATTEMPTS):
            revision = await self.rules.revision()
            known = await self.get_rule(rule_id)
            rule = replace(
                draft,
                rule_id=rule_id,
                version=known.version + 1,
                updated_at_ms=self.clock.milliseconds(),
            )
            try:
                await self.rules.put(rule, revision, await self.measurements.position())
            except RulesChanged:
                continue
            return rule
        raise _changed_meanwhile()

    async def delete_rule(self, rule_id: str) -> None:
        """Delete a rule; its alarms are cleared."""
        rule_id = check_uuid4(rule_id, "rule_id")
        for _ in range(_ATTEMPTS):
            revision = await self.rules.revision()
            await self.get_rule(rule_id)
            try:
                await self.rules.delete(rule_id, revision)
            except RulesChanged:
                continue
            return
        raise _changed_meanwhile()

    async def get_rule(self, rule_id: str) -> AlarmRule:
        rule = await self.rules.get(check_uuid4(rule_id, "rule_id"))
        if rule is None:
            raise NotFound(f"Alarm rule {rule_id} does not exist", code="alarm_rule_not_found")
        return rule

    async def list_rules(self) -> list[AlarmRule]:
        rules = [stored.rule for stored in await self.rules.all()]
        return sorted(rules, key=lambda rule: (rule.name, rule.rule_id))

    async def list_alarms(
        self,
        state: AlarmState | None,
        hardware_id: str | None,
        limit: int,
        start: PageKey | None,
    ) -> tuple[list[Alarm], PageKey | None]:
        """Return a page of alarms, newest first."""
        if hardware_id is not None and state is not None:
            raise invalid_field("state", "must not be combined with hardware_id")
        if hardware_id is not None:
            return await self.alarms.by_device(check_hardware_id(hardware_id), limit, start)
        if state is not None:
            return await self.alarms.by_state(state, limit, start)
        return await self.alarms.newest(limit, start)

    async def get_alarm(self, alarm_id: str) -> Alarm:
        alarm = await self.alarms.get(alarm_id[:64] or "-")
        if alarm is None:
            raise NotFound(f"Alarm {alarm_id[:64]} does not exist", code="alarm_not_found")
        return alarm

    async def acknowledge(self, alarm_id: str, operator: str) -> Alarm:
        """Acknowledge an open alarm; repeating it has no effect."""
        entry = AlarmEntry("acknowledged", self.clock.milliseconds(), operator)
        await self.get_alarm(alarm_id)
        alarm = await self.alarms.acknowledge(alarm_id, entry)
        if alarm is not None:
            return alarm
        alarm = await self.get_alarm(alarm_id)
        if alarm.state == "cleared":
            raise Conflict(f"Alarm {alarm_id} is cleared already", code="alarm_cleared")
        return alarm

    async def latest_alarms(self, limit: int) -> list[Alarm]:
        """Return alarms for the snapshot of a stream: those that are not cleared."""
        opened, _ = await self.alarms.by_state("open", limit, None)
        acknowledged, _ = await self.alarms.by_state("acknowledged", limit, None)
        return sorted([*opened, *acknowledged], key=lambda alarm: alarm.alarm_id)[-limit:]

    async def _check(self, rule: AlarmRule) -> AlarmRule:
        check_text(rule.name, "name")
        _check_scope(rule.scope)
        await self._check_condition(rule.condition)
        info = None if rule.sensor is None else await self.sensors.find(rule.sensor)
        return replace(rule, unit=None if info is None else info.unit)

    async def _check_condition(self, condition: AlarmCondition) -> None:
        if isinstance(condition, Silence):
            return
        if not are_names((condition.sensor,)):
            raise invalid_field("condition.sensor", NAME_RULE)
        if condition.hysteresis < 0:
            raise invalid_field("condition.hysteresis", "must not be negative")
        if isinstance(condition, RateOfChange):
            if condition.change <= 0:
                raise invalid_field("condition.change", "must be positive")
            if condition.hysteresis > condition.change:
                raise invalid_field("condition.hysteresis", "must not be more than change")
            return
        await self._check_limit(condition)

    async def _check_limit(self, condition: Threshold) -> None:
        """Reject a limit that no plausible value can exceed."""
        info = await self.sensors.find(condition.sensor)
        if info is None:
            return
        sensor, unit = condition.sensor, f" {info.unit}" if info.unit else ""
        if info.minimum is not None and condition.limit < info.minimum:
            rule = f"must be at least {info.minimum}{unit}, the minimum of {sensor}"
            raise invalid_field("condition.limit", rule)
        if info.maximum is not None and condition.limit > info.maximum:
            rule = f"must be at most {info.maximum}{unit}, the maximum of {sensor}"
            raise invalid_field("condition.limit", rule)


def _check_scope(scope: AlarmScope) -> None:
    if scope.hardware_id is not None and scope.group is not None:
        raise invalid_field("scope", "must name a hardware_id or a group, not both")
    if scope.hardware_id is not None:
        check_hardware_id(scope.hardware_id)
    if scope.group is not None:
        check_group(scope.group, "scope.group")


def _changed_meanwhile() -> Invalid | Conflict:
    return Conflict("The rules were changed at the same time; try again", code="conflict")
