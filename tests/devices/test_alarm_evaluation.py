"""Alarm rules compared with a plain model that looks at a board's whole history."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tally.devices.model.alarms import (
    CLOCK_TOLERANCE_MS,
    AlarmCondition,
    AlarmRule,
    BoardMemory,
    RateOfChange,
    RuleMemory,
    Silence,
    Threshold,
    find_silent,
    measure,
    next_silence,
    remember_reading,
    with_alarm,
)
from tally.devices.model.records import Reading

SECOND = 1_000
START = 1_700_000_000_000
MAX_AGE = 600

values = st.integers(-6, 6).map(lambda number: Decimal(number) / 2)
thresholds = st.builds(
    Threshold,
    st.just("t"),
    st.sampled_from(["above", "below"]),
    values,
    st.sampled_from([Decimal(0), Decimal(1), Decimal("1.5")]),
    st.sampled_from([0, 10, 30]),
)
rates = st.builds(
    RateOfChange,
    st.just("t"),
    st.sampled_from(["rising", "falling", "any"]),
    st.sampled_from([Decimal(1), Decimal(2)]),
    st.sampled_from([10, 30, 60]),
    st.sampled_from([Decimal(0), Decimal(1)]),
)
silences = st.builds(Silence, st.sampled_from([15, 60]))
conditions = st.one_of(thresholds, rates, silences)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A reading that arrives `wait` seconds after the one before, `age` seconds old."""

    wait: int
    age: int
    value: Decimal | None
    clock_ahead: bool


arrivals = st.lists(
    st.builds(
        Arrival,
        st.integers(0, 20) | st.just(70),
        st.sampled_from([0, 0, 0, 5, 40, 900, -40, -7_200]),
        st.none() | values,
        st.sampled_from([False, False, False, True]),
    ),
    max_size=30,
)


@dataclass(slots=True)
class PlainModel:
    """Decides from all readings so far, in order, whether an alarm is active."""

    condition: AlarmCondition
    seen: list[tuple[int, Decimal | None]] = field(default_factory=list)
    # The first reading that may begin a new excess: those before belong to an earlier alarm.
    begin: int = 0
    is_active: bool = False

    def arrive(self, time: int, value: Decimal | None, now: int) -> None:
        if isinstance(self.condition, Silence):
            self.is_active = False
            return
        if self.seen and self.seen[-1][0] > now + CLOCK_TOLERANCE_MS and time <= now:
            self.seen, self.begin = [], 0  # the clock was ahead and was corrected
        if self.seen and time < self.seen[-1][0]:
            return
        self.seen.append((time, value))
        if value is None:
            return
        if self.is_active:
            if self._excess(len(self.seen) - 1) <= -Decimal(self.condition.hysteresis):
                self.is_active, self.begin = False, len(self.seen)
            return
        since = self._exceeding_since()
        duration = self.condition.duration_seconds if isinstance(self.condition, Threshold) else 0
        is_long = since is not None and time - since >= duration * SECOND
        if is_long and time >= max(START, now - MAX_AGE * SECOND):
            self.is_active = True

    def _exceeding_since(self) -> int | None:
        """The time of the first of the newest readings that all exceed the limit."""
        since = None
        for index in range(len(self.seen) - 1, self.begin - 1, -1):
            time, value = self.seen[index]
            if value is None:
                continue
            if self._excess(index) <= 0:
                break
            since = time
        return since

    def _excess(self, index: int) -> Decimal:
        """How far a reading is beyond the limit."""
        time, value = self.seen[index]
        assert value is not None
        condition = self.condition
        if isinstance(condition, Threshold):
            sign = 1 if condition.comparison == "above" else -1
            return sign * (value - Decimal(condition.limit))
        assert isinstance(condition, RateOfChange)
        first = time - condition.window_seconds * SECOND
        window = [v for t, v in self.seen[: index + 1] if t >= first and v is not None]
        rise, fall = value - min(window), max(window) - value
        size = {"rising": rise, "falling": fall, "any": max(rise, fall)}[condition.direction]
        return size - Decimal(condition.change)


def reading(number: int, time: int, arrival: Arrival) -> Reading:
    sensors: dict[str, Any] = {} if arrival.value is None else {"t": arrival.value}
    return Reading(
        "AA:BB:CC:DD:EE:FF",
        f"{number:03}",
        time,
        "boot",
        "1",
        sensors,
        {},
        clock_ahead=arrival.clock_ahead,
    )


@given(condition=conditions, history=arrivals)
def test_rules_agree_with_the_plain_model(
    condition: AlarmCondition, history: list[Arrival]
) -> None:
    """For any readings, late ones, old ones, missing values and wrong clocks."""
    rule = AlarmRule("r", "rule", condition, max_age_seconds=MAX_AGE, updated_at_ms=START)
    model, memory = PlainModel(condition), BoardMemory("AA:BB:CC:DD:EE:FF")
    now = last = START
    for number, arrival in enumerate(history):
        now += arrival.wait * SECOND
        if isinstance(condition, Silence) and now >= last + condition.seconds * SECOND:
            model.is_active = True
        for _ in find_silent(memory, [rule], now):
            memory = with_alarm(memory, rule, "a")
        assert (memory.rules.get("r", RuleMemory(1)).alarm_id is not None) == model.is_active
        last = now
        time = now - arrival.age * SECOND
        if not arrival.clock_ahead or isinstance(condition, Silence):
            model.arrive(time, arrival.value, now)
        memory, transitions = remember_reading(memory, [rule], reading(number, time, arrival), now)
        for transition in transitions:
            memory = with_alarm(memory, rule, "a" if transition.alarm_id is None else None)
        assert (memory.rules.get("r", RuleMemory(1)).alarm_id is not None) == model.is_active


def test_limits_are_compared_exactly() -> None:
    """Also values with more digits than the decimal context has."""
    limit = Decimal("-1.00000000000000000000000000000000000001")
    condition = Threshold("t", "below", limit)
    assert measure(condition, [(0, limit)])[0] == measure(condition, [(0, limit)])[1]
    size, bound = measure(condition, [(0, Decimal("-1.00000000000000000000000000000000000002"))])
    assert size > bound


def test_silence_is_due_after_the_last_arrival_and_after_the_rule() -> None:
    rule = AlarmRule("r", "rule", Silence(60), updated_at_ms=START)
    unknown = BoardMemory("AA:BB:CC:DD:EE:FF")
    assert next_silence(unknown, [rule]) == START + 60 * SECOND
    heard = BoardMemory("AA:BB:CC:DD:EE:FF", "", START + 5 * SECOND)
    assert next_silence(heard, [rule]) == START + 65 * SECOND
    assert next_silence(with_alarm(heard, rule, "a"), [rule]) is None
