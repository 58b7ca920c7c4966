"""Runs a move: copies and follows all tables, and switches when a command requests it.

    async with moving_process(settings.data_dir), open_sides(settings, clock) as sides:
        mover = Mover(sides, await start_move(...), tables, Pace(clock, rate))
        await mover.run()

A switch keeps this order, so that a process killed at any point can repeat it:

1. Turn on the streams of the passive store, and compare the stores while both are followed.
2. Pause writes. From here on the active store does not change.
3. Apply the last changes; compare again if the active store's stream cannot tell that it is read.
4. Save that the other store is active, with positions of its streams. This decides the switch.
5. Accept writes there, turn off the streams of the other one, and follow in the other direction.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from tally.kit.tasks import cancel_all
from tally.move.comparison import Comparer
from tally.move.errors import MoveFailed
from tally.move.pace import Pace
from tally.move.sides import Sides, StoreSide
from tally.move.state import (
    MoveState,
    SideName,
    request_switch,
    requested_side,
    save_state,
)
from tally.move.table_mover import TableMover
from tally.store.batching import run_bounded
from tally.store.errors import PositionExpired, PositionUnknown, StoreError
from tally.store.schema import Table

SAVE_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.05
# Changes of the last seconds before a switch are in both stores' streams: consumers that are this
# far behind miss none.
OVERLAP_SECONDS: Final = 5.0
# Every second behind is a second of the pause.
MAX_LAG_SECONDS: Final = 1.0
MAX_CATCH_UP_SECONDS: Final = 300.0
# A stream without changes for this long is read to its end; the comparison finds later ones.
QUIET_SECONDS: Final = 3.0
MAX_COMPARED_TABLES: Final = 4  # at the same time
MAX_REPAIRED_ITEMS: Final = 100_000  # per table and attempt
_REPAIR_ATTEMPTS: Final = 3


class Mover:
    """A move in progress; `state` and `activity` are what a progress bar shows."""

    def __init__(self, sides: Sides, state: MoveState, tables: Sequence[Table], pace: Pace) -> None:
        self.state = state
        self.activity = ""
        self.pause_seconds: float | None = None  # of the last switch
        self._sides = sides
        self._tables = tables
        self._pace = pace
        self._clock = pace.clock
        self._movers: dict[str, TableMover] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._store = sides.embedded.engine
        self._saved_at = self._clock.monotonic()
        self._paused_at: float | None = None
        self._requested: SideName | None = None
        self._stop = asyncio.Event()

    @property
    def lag_seconds(self) -> float:
        """Return how far the passive store is behind."""
        return max((mover.lag_seconds for mover in self._movers.values()), default=0.0)

    @property
    def _active(self) -> StoreSide:
        return self._sides.side(self.state.active)

    @property
    def _passive(self) -> StoreSide:
        return self._sides.side(self.state.passive)

    async def run(self, stop: asyncio.Event) -> None:
        """Move until `stop` is set."""
        while not stop.is_set():
            await self._take_roles()
            positions = None
            async with self._moving(stop):
                self.activity = "copying"
                await self._until(lambda: self.state.is_copied)
                self.activity = "following changes"
                await self._until(lambda: self._requested is not None and self.state.is_copied)
                if not stop.is_set():
                    positions = await self._try_switch()
            if positions is not None:
                self._exchange_roles(positions)
            await self._save()
            if self._requested is not None and not stop.is_set():
                await request_switch(self._store, None)
                self._requested = None
        if self._paused_at is not None:
            await self._take_roles()

    async def _take_roles(self) -> None:
        """Let the active store accept and record writes, and the passive one do neither."""
        self.activity = "preparing tables"
        await self._active.accept_writes()
        await self._passive.reject_writes()
        if self._paused_at is not None:
            self.pause_seconds = self._clock.monotonic() - self._paused_at
            self._paused_at = None
        await self._active.record(self._tables)
        await self._passive.stop_recording(self._tables)

    @asynccontextmanager
    async def _moving(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Copy and follow all tables inside the context."""
        self._stop = stop
        active, passive = self._active.engine, self._passive.engine
        self._movers = {
            table.name: TableMover(
                table, self.state.tables[table.name], active, passive, self._pace
            )
            for table in self._tables
        }
        self._tasks = [asyncio.create_task(mover.run()) for mover in self._movers.values()]
        try:
            yield
        finally:
            await cancel_all(self._tasks)

    async def _until(self, is_reached: Callable[[], bool]) -> None:
        """Wait for a condition or the end; save the state and read requests meanwhile."""
        while not (is_reached() or self._stop.is_set()):
            await self._tick()

    async def _tick(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()
        if self._clock.monotonic() - self._saved_at > SAVE_SECONDS:
            await self._save()
            requested = await requested_side(self._store)
            self._requested = requested if requested != self.state.active else None
        await self._clock.sleep(POLL_SECONDS)

    async def _save(self) -> None:
        self._saved_at = self._clock.monotonic()
        self.state.saved_at = self._clock.milliseconds()
        await save_state(self._store, self.state)

    async def _try_switch(self) -> dict[str, str] | None:
        """Return the positions in the new active store's streams; None if it stays passive."""
        state = self.state
        state.is_switching, state.failure = True, ""
        await self._save()
        try:
            return await self._prepare_switch()
        except (MoveFailed, StoreError) as error:
            state.failure = str(error)
            return None
        finally:
            state.is_switching = False

    async def _prepare_switch(self) -> dict[str, str] | None:
        self.activity = "preparing the switch"
        await self._passive.record(self._tables)
        # Taken before the pause to keep it short: what follows is applied again, without effect.
        engine = self._passive.engine
        positions = {table.name: await engine.stream_position(table) for table in self._tables}
        recorded_at = self._clock.monotonic()
        failed_writes = self._failed_writes
        self.activity = "comparing"
        await self._compare_and_repair()
        await self._until(lambda: self._clock.monotonic() - recorded_at > OVERLAP_SECONDS)
        await self._wait_for_small_lag()
        if self._stop.is_set():
            return None
        self.activity = "writes are paused"
        self._paused_at = self._clock.monotonic()
        await self._active.reject_writes()
        await self._active.wait_until_rejected()
        await self._apply_last_changes()
        if not self._active.is_exact or self._failed_writes > failed_writes:
            await self._compare_and_repair()
        return None if self._stop.is_set() else positions

    async def _wait_for_small_lag(self) -> None:
        """Wait until few changes remain for the pause; raise MoveFailed if they stay many."""
        self.activity = f"waiting until less than {MAX_LAG_SECONDS:.0f} s behind"
        end = self._clock.monotonic() + MAX_CATCH_UP_SECONDS
        await self._until(
            lambda: self.lag_seconds < MAX_LAG_SECONDS or self._clock.monotonic() > end
        )
        if self.lag_seconds >= MAX_LAG_SECONDS:
            raise MoveFailed(
                f"The {self.state.passive} store is {self.lag_seconds:.0f} s behind:"
                " switch when servers write less"
            )

    def _exchange_roles(self, positions: Mapping[str, str]) -> None:
        state = self.state
        state.active = state.passive
        for name, position in positions.items():
            state.tables[name].position = position
            state.tables[name].applied = 0

    @property
    def _failed_writes(self) -> int:
        return sum(mover.failed_writes for mover in self._movers.values())

    async def _apply_last_changes(self) -> None:
        """Wait until the changes before the pause are applied, as far as the store can tell."""
        if self._active.is_exact:
            for table in self._tables:
                await self._until_applied(table)
        else:
            await self._wait_a_moment()
            await self._until(lambda: all(map(self._is_quiet, self._movers.values())))

    async def _until_applied(self, table: Table) -> None:
        """Wait until the changes of a table so far are applied, as far as the store can tell."""
        if not self._active.is_exact:
            await self._wait_a_moment()
            return
        end = await self._active.engine.stream_position(table)
        while not (self._stop.is_set() or await self._is_applied(table, end)):
            await self._tick()

    async def _is_applied(self, table: Table, end: str) -> bool:
        mover = self._movers[table.name]
        try:
            reached = mover.state.position
            return not await self._active.engine.has_changes(table, reached, end)
        except (PositionExpired, PositionUnknown):
            return False  # the table is copied again

    async def _wait_a_moment(self) -> None:
        end = self._clock.monotonic() + QUIET_SECONDS
        await self._until(lambda: self._clock.monotonic() > end)

    def _is_quiet(self, mover: TableMover) -> bool:
        return mover.is_idle and self._clock.monotonic() - mover.active_at > QUIET_SECONDS

    async def _compare_and_repair(self) -> None:
        """Compare all tables; raise MoveFailed if differences remain after repairs."""
        await run_bounded(
            [partial(self._compare_table, table) for table in self._tables], MAX_COMPARED_TABLES
        )

    async def _compare_table(self, table: Table) -> None:
        async def wait() -> None:
            await self._until_applied(table)

        comparer = Comparer(
            self._active.engine, self._passive.engine, self._clock, wait, MAX_REPAIRED_ITEMS
        )
        mover = self._movers[table.name]
        for _ in range(_REPAIR_ATTEMPTS):
            comparison = await comparer.compare(table)
            if not comparison.differences or self._stop.is_set():
                return
            await mover.repair([difference.key for difference in comparison.differences])
            await self._until(lambda: mover.is_idle)
        raise MoveFailed(
            f"Table {table.name} still differs after {_REPAIR_ATTEMPTS} repairs;"
            " run `tally move verify` for a report"
        )
