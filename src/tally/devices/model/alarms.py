"""Alarms: rules, what they remember of a board, and their evaluation. Pure, without a clock.

A board's readings are evaluated in the order of their timestamps: a reading that is not newer than
the newest one so far is late and changes nothing. After the correction of a clock that was ahead,
the order begins again. A reading that is older than the rule, or older than the rule's maximum age
when it arrives, may clear an alarm but not raise one.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final, Literal, TypeAlias

import msgspec

from tally.devices.model.records import Number, Reading

AlarmState: TypeAlias = Literal["open", "acknowledged", "cleared"]
ClearReason: TypeAlias = Literal["recovered", "rule_changed", "device_deleted"]
# All alarms are in one partition, so that their change log has them in order.
ALARM_PARTITION: Final = "alarms"
MAX_ALARM_RULES: Final = 90  # one reading may change so many alarms, in one transaction
MAX_SAMPLES: Final = 60  # values of a window that a rate of change compares
DEFAULT_MAX_AGE_SECONDS: Final = 3_600
# Clocks that are ahead by less are right; a correction delays alarms by no more than this.
CLOCK_TOLERANCE_MS: Final = 60_000


class Threshold(msgspec.Struct, frozen=True, tag="threshold", tag_field="kind"):
    """Raised above (or below) `limit` for `duration_seconds`.

    Cleared at the limit, `hysteresis` further towards normal.
    """

    sensor: str
    comparison: Literal["above", "below"]
    limit: Number
    hysteresis: Number = 0
    duration_seconds: int = 0


class RateOfChange(msgspec.Struct, frozen=True, tag="rate_of_change", tag_field="kind"):
    """Raised if a value differs by more than `change` from another one within the window."""

    sensor: str
    direction: Literal["rising", "falling", "any"]
    change: Number
    window_seconds: int
    hysteresis: Number = 0


class Silence(msgspec.Struct, frozen=True, tag="silence", tag_field="kind"):
    """Raised if no reading arrives for so long."""

    seconds: int


AlarmCondition: TypeAlias = Threshold | RateOfChange | Silence


class AlarmScope(msgspec.Struct, frozen=True):
    """The boards of a rule: one board, a group, or all."""

    hardware_id: str | None = None
    group: str | None = None

    def includes(self, hardware_id: str, group: str | None) -> bool:
        if self.hardware_id is not None:
            return hardware_id == self.hardware_id
        return self.group is None or group == self.group


class AlarmRule(msgspec.Struct, frozen=True):
    """A rule. A change of it increments `version` and clears its alarms."""

    rule_id: str
    name: str
    condition: AlarmCondition
    scope: AlarmScope = AlarmScope()
    max_age_seconds: int = DEFAULT_MAX_AGE_SECONDS
    version: int = 1
    updated_at_ms: int = 0
    # The unit of the sensor when the rule was stored.
    unit: str | None = None

    @property
    def sensor(self) -> str | None:
        return None if isinstance(self.condition, Silence) else self.condition.sensor


class RuleMemory(msgspec.Struct, frozen=True):
    """What a rule remembers of one board."""

    version: int
    # Since when the condition has held without an alarm, by the board's clock.
    since_ms: int | None = None
    # The alarm that is open or acknowledged.
    alarm_id: str | None = None
    samples: tuple[tuple[int, Number], ...] = ()


class BoardMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all rules remember of one board.

    `newest` is the sort key of the newest reading, and `arrived_ms` when the last reading arrived.
    """

    hardware_id: str
    newest: str = ""
    arrived_ms: int = 0
    rules: Mapping[str, RuleMemory] = msgspec.field(default_factory=dict)


class Reachability(msgspec.Struct, frozen=True):
    """Since when a board can be heard: from its registration on, and while Tally runs.

    After an interruption, boards have `grace_ms` from `resumed_ms` on to send again.
    """

    registered_ms: int = 0
    resumed_ms: int = 0
    grace_ms: int = 0


class Transition(msgspec.Struct, frozen=True):
    """An alarm to raise, or to clear if `alarm_id` is set."""

    rule: AlarmRule
    hardware_id: str
    timestamp_ms: int
    value: Number | None
    alarm_id: str | None = None


ALWAYS_REACHABLE: Final = Reachability()


class AlarmEntry(msgspec.Struct, frozen=True):
    """One step in the history of an alarm. `by` is the operator, or the reason of a clearance."""

    state: AlarmState
    at_ms: int
    by: str | None = None
    timestamp_ms: int | None = None
    value: Number | None = None


class Alarm(msgspec.Struct, frozen=True):
    """An alarm of a board, with a copy of its rule as it was raised."""

    alarm_id: str
    rule: AlarmRule
    hardware_id: str
    state: AlarmState
    history: tuple[AlarmEntry, ...]

    @property
    def is_active(self) -> bool:
        return self.state != "cleared"


def measure(
    condition: Threshold | RateOfChange, samples: Iterable[tuple[int, Number]]
) -> tuple[Number, Number]:
    """Return how far the last sample is from normal, and the limit above which it is an alarm."""
    values = [value for _, value in samples]
    last = values[-1]
    if isinstance(condition, Threshold):
        is_above = condition.comparison == "above"
        if is_above:
            return last, condition.limit
        # The other operators would round to the precision of the context.
        return Decimal(last).copy_negate(), Decimal(condition.limit).copy_negate()
    rise, fall = last - min(values), max(values) - last
    by_direction = {"rising": rise, "falling": fall, "any": max(rise, fall)}
    return by_direction[condition.direction], condition.change


def observe(
    rule: AlarmRule, memory: RuleMemory, timestamp_ms: int, value: Number, now_ms: int
) -> tuple[RuleMemory, Literal["raise", "clear"] | None]:
    """Evaluate the next value of a sensor."""
    condition = rule.condition
    if isinstance(condition, Silence):
        return memory, None
    samples: tuple[tuple[int, Number], ...] = ((timestamp_ms, value),)
    kept: tuple[tuple[int, Number], ...] = ()
    if isinstance(condition, RateOfChange):
        first = timestamp_ms - condition.window_seconds * 1000
        samples = (*(entry for entry in memory.samples if entry[0] >= first), *samples)
        kept = samples = samples[-MAX_SAMPLES:]
    size, limit = measure(condition, samples)
    changed = msgspec.structs.replace(memory, samples=kept)
    if memory.alarm_id is not None:
        return changed, "clear" if size <= limit - condition.hysteresis else None
    if size <= limit:
        return msgspec.structs.replace(changed, since_ms=None), None
    since = timestamp_ms if memory.since_ms is None else memory.since_ms
    changed = msgspec.structs.replace(changed, since_ms=since)
    duration = condition.duration_seconds if isinstance(condition, Threshold) else 0
    oldest = max(rule.updated_at_ms, now_ms - rule.max_age_seconds * 1000)
    is_raised = timestamp_ms - since >= duration * 1000 and timestamp_ms >= oldest
    return changed, "raise" if is_raised else None


def reading_key(reading: Reading) -> str:
    """Return the sort key of a reading: readings of a board in the order of their timestamps."""
    return f"{reading.timestamp_ms:013}#{reading.batch_id}"


def remember_reading(
    memory: BoardMemory, rules: Iterable[AlarmRule], reading: Reading, now_ms: int
) -> tuple[BoardMemory, list[Transition]]:
    """Evaluate a reading by the rules of its board; return the memory without alarm ids."""
    if _is_clock_corrected(memory, reading, now_ms):
        memory = _forget_times(memory)
    remembered, transitions = dict(memory.rules), list[Transition]()
    is_late = reading.clock_ahead or reading_key(reading) <= memory.newest
    for rule in rules:
        known = remembered.get(rule.rule_id, RuleMemory(rule.version))
        outcome: Literal["raise", "clear"] | None = None
        value = None
        if isinstance(rule.condition, Silence):
            outcome = "clear" if known.alarm_id is not None else None
        elif not is_late and (value := reading.sensors.get(rule.condition.sensor)) is not None:
            known, outcome = observe(rule, known, reading.timestamp_ms, value, now_ms)
            remembered[rule.rule_id] = known
        if outcome is not None:
            cleared = known.alarm_id if outcome == "clear" else None
            transitions.append(
                Transition(rule, memory.hardware_id, reading.timestamp_ms, value, cleared)
            )
    newest = memory.newest if is_late else reading_key(reading)
    return BoardMemory(memory.hardware_id, newest, now_ms, remembered), transitions


def _is_clock_corrected(memory: BoardMemory, reading: Reading, now_ms: int) -> bool:
    """Whether the newest reading is of a clock that was ahead, and this one is not any more."""
    newest_ms = int(memory.newest.partition("#")[0] or 0)
    is_right = reading.timestamp_ms <= now_ms and not reading.clock_ahead
    return is_right and newest_ms > now_ms + CLOCK_TOLERANCE_MS


def _forget_times(memory: BoardMemory) -> BoardMemory:
    """Forget the times of a wrong clock, which later readings cannot be compared with."""
    rules = {
        rule_id: msgspec.structs.replace(known, since_ms=None, samples=())
        for rule_id, known in memory.rules.items()
    }
    return msgspec.structs.replace(memory, newest="", rules=rules)


def find_silent(
    memory: BoardMemory,
    rules: Iterable[AlarmRule],
    now_ms: int,
    reachability: Reachability = ALWAYS_REACHABLE,
) -> list[Transition]:
    """Return the alarms of silence that are due, without those that are raised already."""
    return [
        Transition(rule, memory.hardware_id, now_ms, None)
        for rule, deadline in _silence_deadlines(memory, rules, reachability)
        if deadline <= now_ms
    ]


def next_silence(
    memory: BoardMemory,
    rules: Iterable[AlarmRule],
    reachability: Reachability = ALWAYS_REACHABLE,
) -> int | None:
    """Return when the next alarm of silence is due if no reading arrives."""
    deadlines = _silence_deadlines(memory, rules, reachability)
    return min((deadline for _, deadline in deadlines), default=None)


def _silence_deadlines(
    memory: BoardMemory, rules: Iterable[AlarmRule], reachability: Reachability
) -> Iterator[tuple[AlarmRule, int]]:
    for rule in rules:
        known = memory.rules.get(rule.rule_id)
        if isinstance(rule.condition, Silence) and (known is None or known.alarm_id is None):
            wait = rule.condition.seconds * 1000
            started = max(memory.arrived_ms, rule.updated_at_ms, reachability.registered_ms)
            resumed = reachability.resumed_ms + min(wait, reachability.grace_ms)
            yield rule, max(started + wait, resumed)


def with_alarm(memory: BoardMemory, rule: AlarmRule, alarm_id: str | None) -> BoardMemory:
    """Remember the active alarm of a rule, or that there is none any more."""
    known = memory.rules.get(rule.rule_id, RuleMemory(rule.version))
    changed = msgspec.structs.replace(known, alarm_id=alarm_id, since_ms=None)
    return msgspec.structs.replace(memory, rules={**memory.rules, rule.rule_id: changed})


def find_outdated(memory: BoardMemory, rules: Iterable[AlarmRule]) -> dict[str, RuleMemory]:
    """Return what is remembered of rules that no longer apply to the board."""
    versions = {rule.rule_id: rule.version for rule in rules}
    return {
        rule_id: known
        for rule_id, known in memory.rules.items()
        if versions.get(rule_id) != known.version
    }


def describe_condition(condition: AlarmCondition, unit: str = "") -> str:
    """Return the condition as a person reads it."""
    suffix = f" {unit}" if unit else ""
    if isinstance(condition, Silence):
        return f"no reading for {condition.seconds} s"
    if isinstance(condition, RateOfChange):
        verb = {"rising": "rises", "falling": "falls", "any": "changes"}[condition.direction]
        return (
            f"{condition.sensor} {verb} by more than {Decimal(condition.change)}{suffix}"
            f" within {condition.window_seconds} s"
        )
    duration = f" for {condition.duration_seconds} s" if condition.duration_seconds else ""
    return (
        f"{condition.sensor} is {condition.comparison} {Decimal(condition.limit)}{suffix}{duration}"
    )
