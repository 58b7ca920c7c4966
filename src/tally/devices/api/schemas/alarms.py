"""Bodies and queries of alarm rules and alarms."""

from typing import Annotated, Final, Literal

import msgspec

from tally.devices.api.schemas import fields
from tally.devices.api.schemas.fleet import Group, SensorName, Value, to_number
from tally.devices.api.schemas.requests import Limit
from tally.devices.api.schemas.responses import json_number
from tally.devices.model.alarms import (
    DEFAULT_MAX_AGE_SECONDS,
    Alarm,
    AlarmCondition,
    AlarmEntry,
    AlarmRule,
    AlarmScope,
    RateOfChange,
    Silence,
    Threshold,
    describe_condition,
)
from tally.kit.body import StrictStruct
from tally.kit.clock import rfc3339_seconds

MAX_SECONDS: Final = 31_622_400  # a year
Seconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_SECONDS)]
PositiveSeconds = Annotated[int, msgspec.Meta(ge=1, le=MAX_SECONDS)]
_NOT_NEGATIVE: Final = msgspec.Meta(ge=0, le=10**15)
NotNegative = Annotated[int, _NOT_NEGATIVE] | Annotated[float, _NOT_NEGATIVE]
EVENTS: Final = {
    "open": "alarm_opened",
    "acknowledged": "alarm_acknowledged",
    "cleared": "alarm_cleared",
}


class ThresholdBody(StrictStruct, frozen=True, tag="threshold", tag_field="kind"):
    """Raised while a value is above (or below) the limit, for at least `duration_seconds`.

    Cleared when the value is back at the limit, and `hysteresis` further.
    """

    sensor: SensorName
    comparison: Literal["above", "below"]
    limit: Value
    hysteresis: NotNegative = 0
    duration_seconds: Seconds = 0


class RateOfChangeBody(StrictStruct, frozen=True, tag="rate_of_change", tag_field="kind"):
    """Raised when a value differs by more than `change` from another one within the window."""

    sensor: SensorName
    direction: Literal["rising", "falling", "any"]
    change: NotNegative
    window_seconds: PositiveSeconds
    hysteresis: NotNegative = 0


class SilenceBody(StrictStruct, frozen=True, tag="silence", tag_field="kind"):
    """Raised when no reading arrives for so long."""

    seconds: PositiveSeconds


class ScopeBody(StrictStruct, frozen=True):
    """One board, a group, or all boards."""

    hardware_id: fields.HardwareId | None = None
    group: Group | None = None


class NewRuleBody(StrictStruct, frozen=True):
    """A rule.

    A reading raises an alarm only if it is at most `max_age_seconds` old when it arrives.
    """

    name: fields.FriendlyName
    condition: ThresholdBody | RateOfChangeBody | SilenceBody
    scope: ScopeBody = ScopeBody()
    max_age_seconds: PositiveSeconds = DEFAULT_MAX_AGE_SECONDS

    def rule(self) -> AlarmRule:
        return AlarmRule(
            "",
            self.name,
            _condition(self.condition),
            AlarmScope(self.scope.hardware_id, self.scope.group),
            self.max_age_seconds,
        )


class RuleBody(msgspec.Struct, frozen=True):
    """A rule and its description in words."""

    rule_id: str
    version: int
    name: str
    description: str
    condition: ThresholdBody | RateOfChangeBody | SilenceBody
    scope: ScopeBody
    max_age_seconds: int
    updated_at: str


class RulePage(msgspec.Struct, frozen=True):
    items: list[RuleBody]
    next_cursor: str | None


class AlarmsQuery(StrictStruct, frozen=True):
    state: Literal["open", "acknowledged", "cleared"] | None = None
    hardware_id: fields.HardwareId | None = None
    limit: Limit = 50
    cursor: str | None = None


class AlarmEntryBody(msgspec.Struct, frozen=True):
    """A step of an alarm: when Tally recorded it, and the reading that caused it, if any.

    `by` is the operator who acknowledged it, or why it was cleared: recovered, rule_changed or
    device_deleted.
    """

    state: str
    at: str
    by: str | None
    timestamp_ms: int | None
    value: int | float | None


class AlarmBody(msgspec.Struct, frozen=True):
    """An alarm with its history; `rule` is the rule as it was when the alarm was raised."""

    alarm_id: str
    state: Literal["open", "acknowledged", "cleared"]
    hardware_id: str
    sensor: str | None
    unit: str | None
    rule: RuleBody
    history: list[AlarmEntryBody]


class AlarmPage(msgspec.Struct, frozen=True):
    items: list[AlarmBody]
    next_cursor: str | None


class AlarmSnapshot(msgspec.Struct, frozen=True):
    """The first event of a stream: the alarms that are not cleared."""

    active: list[AlarmBody]


def _condition(body: ThresholdBody | RateOfChangeBody | SilenceBody) -> AlarmCondition:
    if isinstance(body, SilenceBody):
        return Silence(body.seconds)
    hysteresis = to_number(body.hysteresis) or 0
    if isinstance(body, RateOfChangeBody):
        change = to_number(body.change) or 0
        return RateOfChange(body.sensor, body.direction, change, body.window_seconds, hysteresis)
    limit = to_number(body.limit) or 0
    return Threshold(body.sensor, body.comparison, limit, hysteresis, body.duration_seconds)


def _condition_body(
    condition: AlarmCondition,
) -> ThresholdBody | RateOfChangeBody | SilenceBody:
    if isinstance(condition, Silence):
        return SilenceBody(condition.seconds)
    hysteresis = json_number(condition.hysteresis)
    if isinstance(condition, RateOfChange):
        return RateOfChangeBody(
            condition.sensor,
            condition.direction,
            json_number(condition.change),
            condition.window_seconds,
            hysteresis,
        )
    return ThresholdBody(
        condition.sensor,
        condition.comparison,
        json_number(condition.limit),
        hysteresis,
        condition.duration_seconds,
    )


def rule_body(rule: AlarmRule) -> RuleBody:
    return RuleBody(
        rule.rule_id,
        rule.version,
        rule.name,
        describe_condition(rule.condition, rule.unit or ""),
        _condition_body(rule.condition),
        ScopeBody(rule.scope.hardware_id, rule.scope.group),
        rule.max_age_seconds,
        rfc3339_seconds(rule.updated_at_ms // 1000),
    )


def alarm_body(alarm: Alarm) -> AlarmBody:
    return AlarmBody(
        alarm.alarm_id,
        alarm.state,
        alarm.hardware_id,
        alarm.rule.sensor,
        alarm.rule.unit,
        rule_body(alarm.rule),
        [_entry_body(entry) for entry in alarm.history],
    )


def _entry_body(entry: AlarmEntry) -> AlarmEntryBody:
    return AlarmEntryBody(
        entry.state,
        rfc3339_seconds(entry.at_ms // 1000),
        entry.by,
        entry.timestamp_ms,
        None if entry.value is None else json_number(entry.value),
    )
