"""Keeps roll-ups current: applies every change of readings once, on one instance at a time.

The position in the change log moves in the transaction that changes the roll-ups, on the condition
that nobody else has moved it. A crash or a second consumer can therefore never count a change
twice. The lock only prevents useless work.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from tally.devices.model.rollup_changes import (
    DeltaTotals,
    RollupDelta,
    UpdatedRollup,
    aggregate_readings,
    collect_values,
    update_rollup,
)
from tally.devices.model.rollups import DAY_MS, HOUR_MS, Rollup, SensorRollup, merge_maps
from tally.devices.repository.measurements import (
    ChangesLost,
    MeasurementChange,
    MeasurementRepository,
)
from tally.devices.repository.rollup_items import StateChanged, TransactionTooLarge
from tally.devices.repository.rollups import (
    ALL_BUILT,
    MAX_WRITES,
    ConsumerState,
    RollupKey,
    RollupRepository,
    StoredRollup,
)
from tally.devices.service.change_backlog import ChangeBacklog, ExclusiveConsumer
from tally.devices.service.rollup_builder import RollupBuilder
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.locks import Locks
from tally.kit.tasks import cancel_all

CONSUMER: Final = "device-rollups"
IDLE_SECONDS: Final = 1.0  # between looks for a requested rebuild
# Aggregating so many changes takes a few milliseconds, in which the event loop is busy.
MAX_BATCH_CHANGES: Final = 500

_log = logs.logger()


class RollupConsumer:
    """Applies changes while this instance holds the lock, and builds roll-ups of older readings.

    `clock` is for the lock and for pauses; the builder has the clock of the readings.
    """

    def __init__(
        self,
        rollups: RollupRepository,
        measurements: MeasurementRepository,
        builder: RollupBuilder,
        locks: Locks,
        clock: Clock,
    ) -> None:
        self._rollups = rollups
        self._measurements = measurements
        self._builder = builder
        self._exclusive = ExclusiveConsumer(CONSUMER, "Roll-up consumer", "rollups", locks, clock)
        self._backlog = ChangeBacklog[MeasurementChange](MAX_BATCH_CHANGES)

    @property
    def oldest_change_at(self) -> float | None:
        """The time of the oldest change that is waiting on this instance, in epoch seconds."""
        return self._backlog.changes[0].at if self._backlog.changes else None

    async def run(self) -> None:
        """Apply changes until cancelled; wait while another instance does."""
        await self._exclusive.run(self._consume)

    def hurry(self) -> None:
        """Apply the next changes at once, because a chart waits for them."""
        self._backlog.hurry()

    async def _consume(self) -> None:
        while True:
            state = await self._rollups.state()
            try:
                if state is None:
                    await self._rollups.start(None, await self._measurements.position())
                else:
                    await self._follow(state)
            except StateChanged:
                pass
            except ChangesLost as error:
                _log.error("Roll-ups missed changes", action="rollups_gap", error=error)
                await self._rollups.start(state, await self._measurements.position())

    async def _follow(self, state: ConsumerState) -> None:
        backlog = self._backlog = ChangeBacklog[MeasurementChange](MAX_BATCH_CHANGES)
        filling = asyncio.create_task(backlog.fill(self._measurements.changes(state.position)))
        try:
            while True:
                if state.built_until != ALL_BUILT:
                    state = await self._builder.build_next(state)
                elif await self._is_outdated(state, backlog, filling):
                    return
                if filling.done():
                    filling.result()
                if backlog.changes:
                    state = await self._apply_some(state, backlog)
                self._exclusive.is_failing = False
        finally:
            await cancel_all({filling})
            self._backlog = ChangeBacklog[MeasurementChange](MAX_BATCH_CHANGES)

    async def _is_outdated(
        self,
        state: ConsumerState,
        backlog: ChangeBacklog[MeasurementChange],
        filling: "asyncio.Task[None]",
    ) -> bool:
        """Wait until changes are due; return whether a rebuild was requested meanwhile."""
        await backlog.wait(filling, IDLE_SECONDS)
        if backlog.changes:
            await backlog.gather(filling)
            return False
        return await self._rollups.state() != state

    async def _apply_some(
        self, state: ConsumerState, backlog: ChangeBacklog[MeasurementChange]
    ) -> ConsumerState:
        """Apply as many changes as fit into one transaction."""
        changes = backlog.next_batch()
        while True:
            taken, deltas = _deltas(changes, state)
            try:
                following = state._replace(position=changes[taken - 1].position)
                await self._rollups.apply(state, following, await self._updated(deltas))
            except TransactionTooLarge:
                if taken == 1:
                    raise
                changes = changes[: taken // 2]
            else:
                backlog.take(taken)
                return following

    async def _updated(self, deltas: dict[RollupKey, RollupDelta]) -> dict[RollupKey, StoredRollup]:
        """Compute the roll-ups that the deltas change."""
        totals = _totals(deltas)
        stored = await self._rollups.load(totals)
        updated = dict[RollupKey, UpdatedRollup]()
        for key, delta in totals.items():
            known = stored.get(key, StoredRollup({}))
            updated[key] = update_rollup(known.sensors, delta, has_omitted=known.has_omitted)
        results = dict[RollupKey, StoredRollup]()
        for key, rollup in sorted(updated.items(), key=lambda entry: entry[0][1] == "day"):
            sensors: Rollup = rollup.sensors
            if rollup.stale:
                sensors = _with_extremes(rollup, await self._extremes(key, results))
            results[key] = StoredRollup(sensors, rollup.has_omitted)
        return results

    async def _extremes(self, key: RollupKey, changed: dict[RollupKey, StoredRollup]) -> Rollup:
        """Aggregate what remains in an interval after deletions: readings, or the hours of a day.

        Readings that were stored or deleted since are in the log, and correct the extremes again.
        """
        hardware_id, resolution, start = key
        if resolution == "hour":
            if self._builder.may_have_expired(start):
                return {}
            readings = self._measurements.between(hardware_id, (start, start + HOUR_MS - 1))
            return aggregate_readings([measurement async for _, measurement in readings])
        hours = await self._rollups.between(hardware_id, "hour", (start, start + DAY_MS - 1))
        for (changed_id, changed_resolution, hour), stored in changed.items():
            is_inside = start <= hour < start + DAY_MS
            if (changed_id, changed_resolution) == (hardware_id, "hour") and is_inside:
                hours[hour] = stored
        merged: Rollup = {}
        for stored in hours.values():
            merged = merge_maps(merged, stored.sensors)
        return merged


def _deltas(
    changes: Sequence[MeasurementChange], state: ConsumerState
) -> tuple[int, dict[RollupKey, RollupDelta]]:
    """Group changes by hour; return how many fit into one transaction with the days."""
    hours: dict[RollupKey, RollupDelta] = {}
    days: set[tuple[str, int]] = set()
    for number, (_, _, hardware_id, _, old, new) in enumerate(changes):
        if old is None and new is None:
            continue
        time = (new or old or (0, {}))[0]
        key: RollupKey = hardware_id, "hour", time - time % HOUR_MS
        delta = hours.get(key)
        if delta is None:
            day = time - time % DAY_MS
            if not state.is_built(hardware_id, day):
                continue
            if len(hours) + len(days) + 2 > MAX_WRITES:
                return number, hours
            days.add((hardware_id, day))
            delta = hours[key] = RollupDelta()
        if old is not None:
            collect_values(delta.removed, *old)
        if new is not None:
            collect_values(delta.added, *new)
    return len(changes), hours


def _totals(deltas: dict[RollupKey, RollupDelta]) -> dict[RollupKey, DeltaTotals]:
    """Aggregate the deltas of hours, and merge them into those of days."""
    totals: dict[RollupKey, DeltaTotals] = {}
    for key, delta in deltas.items():
        hardware_id, _, hour = key
        day: RollupKey = hardware_id, "day", hour - hour % DAY_MS
        totals[key] = found = delta.totals()
        known = totals.get(day)
        totals[day] = found if known is None else known.merge(found)
    return totals


def _with_extremes(rollup: UpdatedRollup, remaining: Rollup) -> dict[str, SensorRollup]:
    """Take the extremes of stale sensors from what remains of them."""
    return {
        sensor: replace(
            known,
            minimum=remaining[sensor].minimum,
            maximum=remaining[sensor].maximum,
            first=remaining[sensor].first,
            last=remaining[sensor].last,
        )
        if sensor in rollup.stale and sensor in remaining
        else known
        for sensor, known in rollup.sensors.items()
    }
