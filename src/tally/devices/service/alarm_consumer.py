"""Evaluates alarm rules: each reading once, on one instance at a time, also after a crash.

The position in the change log moves in the transaction that stores what the rules remember of the
boards and that raises and clears alarms, on the condition that neither the rules nor the position
have changed. The lock only prevents useless work.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Final

from tally.devices.model.alarms import ALWAYS_REACHABLE, AlarmRule
from tally.devices.repository.alarm_rules import (
    AlarmRuleRepository,
    RulesChanged,
)
from tally.devices.repository.alarm_watch import AlarmWatchRepository
from tally.devices.repository.alarms import (
    AlarmRepository,
    EvaluatedReading,
    EvaluationState,
    EvaluationTooLarge,
    ReadingsLost,
)
from tally.devices.repository.groups import GroupRepository
from tally.devices.repository.measurements import ChangesLost, MeasurementRepository
from tally.devices.service.alarm_batches import AlarmBatch, FleetMemory
from tally.devices.service.change_backlog import ChangeBacklog, ExclusiveConsumer
from tally.devices.service.silence_watch import SilenceWatch
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import SortableIds
from tally.kit.locks import Locks
from tally.kit.tasks import cancel_all
from tally.kit.time_slices import TimeSlices

ALARM_CONSUMER: Final = "device-alarms"
ALARM_IDLE_SECONDS: Final = 0.5  # between looks for changed rules and silent boards
MAX_BATCH_READINGS: Final = 500
TURN_READINGS: Final = 50  # evaluated in about a millisecond
_LOADED_BOARDS: Final = 100

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmStores:
    """What the consumer reads and writes."""

    rules: AlarmRuleRepository
    alarms: AlarmRepository
    groups: GroupRepository
    measurements: MeasurementRepository
    watch: AlarmWatchRepository


class AlarmEvaluator:
    """Evaluates rules while this instance holds the lock.

    `clock` is the time of alarms; `lock_clock` is for the lock, shared with other instances, and
    for pauses.
    """

    def __init__(self, stores: AlarmStores, clock: Clock, locks: Locks, lock_clock: Clock) -> None:
        self._stores = stores
        self._clock = clock
        self._lock_clock = lock_clock
        self._exclusive = ExclusiveConsumer(
            ALARM_CONSUMER, "Alarm evaluation", "alarms", locks, lock_clock
        )
        self._ids = SortableIds(clock)
        self._slices = TimeSlices()
        self._watch = SilenceWatch(stores.watch, stores.measurements, clock, lock_clock)
        self._resumed = ALWAYS_REACHABLE

    async def run(self) -> None:
        """Evaluate readings until cancelled; wait while another instance does."""
        await self._exclusive.run(self._consume)

    async def _consume(self) -> None:
        stores = self._stores
        self._resumed = await self._watch.resume()
        while True:
            state = EvaluationState(await stores.rules.revision(), await stores.alarms.position())
            rules = await stores.rules.all()
            try:
                if state.position is not None:
                    await self._evaluate(state, [stored.rule for stored in rules])
                elif rules:
                    first = min(rules, key=lambda stored: stored.rule.updated_at_ms)
                    await stores.alarms.restart(state, first.position)
                else:
                    self._exclusive.is_failing = False
                    await self._lock_clock.sleep(ALARM_IDLE_SECONDS)
            except RulesChanged:
                pass
            except (ReadingsLost, ChangesLost) as error:
                _log.error("Alarm evaluation missed readings", action="alarms_gap", error=error)
                await stores.alarms.restart(state, await stores.measurements.position())

    async def _evaluate(self, state: EvaluationState, rules: Sequence[AlarmRule]) -> None:
        """Evaluate readings until rules or groups change."""
        memory = await self._load(rules)
        state = await self._clear_outdated(state, memory)
        if not rules:
            await self._stores.alarms.restart(state, None)
            return
        backlog = ChangeBacklog[EvaluatedReading](MAX_BATCH_READINGS)
        readings = self._stores.alarms.readings(state.position or "")
        filling = asyncio.create_task(backlog.fill(readings))
        try:
            while True:
                await backlog.wait(filling, ALARM_IDLE_SECONDS)
                if await self._stores.rules.revision() != state.revision:
                    return
                await self._add_each(memory, await self._watch.find_new_boards(memory))
                is_idle = not backlog.changes
                if not is_idle:
                    state = await self._evaluate_some(state, memory, backlog)
                if memory.may_be_silent(self._clock.milliseconds()):
                    state = await self._raise_silence(state, memory, is_idle=is_idle)
                self._exclusive.is_failing = False
        finally:
            await cancel_all({filling})

    async def _load(self, rules: Sequence[AlarmRule]) -> FleetMemory:
        """Read the groups of all boards, and what the rules remember of them."""
        fleet = FleetMemory(rules, self._resumed)
        await self._add_each(fleet, [found async for found in self._stores.groups.all()])
        return fleet

    async def _add_each(self, fleet: FleetMemory, hardware_ids: Sequence[str]) -> None:
        """Add boards, some at a time."""
        for start in range(0, len(hardware_ids), _LOADED_BOARDS):
            async with self._slices:
                await self._add(fleet, hardware_ids[start : start + _LOADED_BOARDS])

    async def _clear_outdated(self, state: EvaluationState, fleet: FleetMemory) -> EvaluationState:
        """Clear the alarms of rules that no longer apply to their board."""
        for hardware_id in fleet.outdated():
            batch = self._batch(fleet)
            batch.forget_outdated(hardware_id)
            state = await self._apply(state, fleet, batch, state.position or "")
        return state

    async def _evaluate_some(
        self, state: EvaluationState, fleet: FleetMemory, backlog: ChangeBacklog[EvaluatedReading]
    ) -> EvaluationState:
        """Evaluate as many readings as fit into one transaction."""
        changes = backlog.next_batch()
        while True:
            batch = self._batch(fleet)
            taken = await self._evaluate_each(changes, fleet, batch)
            try:
                state = await self._apply(state, fleet, batch, changes[taken - 1].position)
            except EvaluationTooLarge:
                if taken == 1:
                    raise
                changes = changes[: taken // 2]
            else:
                backlog.take(taken)
                self._watch.evaluated_at = changes[taken - 1].at
                return state

    async def _evaluate_each(
        self, changes: Sequence[EvaluatedReading], fleet: FleetMemory, batch: AlarmBatch
    ) -> int:
        """Evaluate readings in turns; return how many fit into the batch."""
        for number, (_, _, reading) in enumerate(changes):
            if number % TURN_READINGS == 0:
                await self._slices.wait()
            if reading is not None:
                if reading.hardware_id not in fleet.groups:  # new, or deleted
                    await self._add(fleet, [reading.hardware_id])
                if not batch.evaluate(reading):
                    return number
        return len(changes)

    async def _add(self, fleet: FleetMemory, hardware_ids: Sequence[str]) -> None:
        """Add those boards that exist, and what the rules remember of them."""
        devices = await self._stores.groups.get_many(hardware_ids)
        for hardware_id, device in devices.items():
            registered = datetime.fromisoformat(device.first_registered_at)
            fleet.add(hardware_id, device.group, round(registered.timestamp() * 1000))
        for memory in await self._stores.alarms.memories(devices):
            fleet.put(memory)

    async def _raise_silence(
        self, state: EvaluationState, fleet: FleetMemory, *, is_idle: bool
    ) -> EvaluationState:
        """Raise the alarms of boards that were silent when all readings were last evaluated."""
        now_ms = await self._watch.heard_until(state.position or "", is_idle=is_idle)
        if now_ms is None:
            return state
        while silent := fleet.take_silent(now_ms):
            while silent:
                state, raised = await self._raise_some(state, fleet, silent, now_ms)
                silent = silent[raised:]
        return state

    async def _raise_some(
        self, state: EvaluationState, fleet: FleetMemory, silent: Sequence[str], now_ms: int
    ) -> tuple[EvaluationState, int]:
        """Raise the alarms of as many silent boards as fit into one transaction; count them."""
        while True:
            batch = AlarmBatch(fleet, now_ms, self._ids.next)
            taken = [*takewhile(batch.raise_silence, silent)]
            try:
                return await self._apply(state, fleet, batch, state.position or ""), len(taken)
            except EvaluationTooLarge:
                if len(taken) == 1:
                    raise
                silent = taken[: len(taken) // 2]

    def _batch(self, fleet: FleetMemory) -> AlarmBatch:
        return AlarmBatch(fleet, self._clock.milliseconds(), self._ids.next)

    async def _apply(
        self, state: EvaluationState, fleet: FleetMemory, batch: AlarmBatch, position: str
    ) -> EvaluationState:
        evaluation = batch.evaluation(position)
        if evaluation.boards or position != state.position:
            await self._stores.alarms.apply(state, evaluation, self._clock.seconds())
        for memory in evaluation.boards.values():
            fleet.put(memory)
        return state._replace(position=position)
