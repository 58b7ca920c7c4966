"""Starts, describes, verifies and finishes moves.

One process moves at a time: it holds a lock of the data directory, which ends with the process.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tally.instance.repository.write_fences import WRITE_FENCES
from tally.kit.clock import Clock
from tally.kit.directory_lock import exclusive_lock, is_locked
from tally.move.comparison import Comparer, TableComparison
from tally.move.errors import MoveFailed
from tally.move.sides import EmbeddedSide, Sides, StoreSide
from tally.move.state import (
    DYNAMODB,
    EMBEDDED,
    MoveState,
    SideName,
    TableState,
    forget_move,
    load_state,
    other_side,
    save_state,
)
from tally.store.api import Engine, Scan
from tally.store.errors import TableNotFound
from tally.store.schema import Table

LOCK_NAME: Final = "move.lock"
# A change reaches the passive store within this time, unless the moving process is overloaded.
_LAG_SECONDS: Final = 2.0


@contextmanager
def moving_process(data_dir: Path) -> Iterator[None]:
    """Hold the lock of the moving process; raise MoveFailed if another process does."""
    with exclusive_lock(data_dir, LOCK_NAME) as is_held:
        if not is_held:
            raise MoveFailed("Another `tally move` process is moving the data")
        yield


def is_moving(data_dir: Path) -> bool:
    """Whether a process moves the data of this directory."""
    return is_locked(data_dir, LOCK_NAME)


def moved_tables(declared: Sequence[Table]) -> list[Table]:
    """Return the tables that a move copies: all but the one that holds its fence."""
    return [table for table in declared if table.name != WRITE_FENCES.name]


async def start_move(
    sides: Sides, tables: Sequence[Table], to: SideName, clock: Clock, *, overwrite: bool
) -> MoveState:
    """Prepare both stores and save the state of a new move, or return that of the current one."""
    store = sides.embedded.engine
    state = await load_state(store)
    if state is not None:
        if other_side(state.origin) != to:
            raise MoveFailed(
                f"A move to {other_side(state.origin)} is in progress; finish it first"
            )
        return state
    active, passive = sides.side(other_side(to)), sides.side(to)
    await _check_source(active, tables)
    await sides.dynamodb.engine.ensure_table(WRITE_FENCES)
    await passive.stop_recording(tables)  # also creates the tables
    if not overwrite:
        await _check_empty(passive, tables)
    # Before the first item is read, so that no later change is missed.
    await active.record(tables)
    state = MoveState(
        origin=active.name,
        active=active.name,
        started_at=clock.milliseconds(),
        tables={table.name: await _initial_state(active, table) for table in tables},
        saved_at=clock.milliseconds(),
    )
    await save_state(store, state)
    return state


async def verify_move(
    sides: Sides, state: MoveState, tables: Sequence[Table], clock: Clock
) -> AsyncIterator[TableComparison]:
    """Compare the tables of both stores, one after another."""
    comparer = Comparer(
        sides.side(state.active).engine,
        sides.side(state.passive).engine,
        clock,
        partial(clock.sleep, _LAG_SECONDS),
    )
    for table in tables:
        yield await comparer.compare(table)


async def finish_move(sides: Sides, state: MoveState, tables: Sequence[Table]) -> None:
    """Stop recording, and forget the move. The passive store keeps its data and its fence."""
    active, passive = sides.side(state.active), sides.side(state.passive)
    await passive.reject_writes()
    await active.use_declared(tables)
    await active.accept_writes()
    await forget_move(sides.embedded.engine)


async def abandon_dynamodb(embedded: EmbeddedSide, tables: Sequence[Table]) -> None:
    """Let servers use the embedded store as it is, without contacting DynamoDB."""
    await embedded.use_declared(tables)
    await embedded.accept_writes()
    await forget_move(embedded.engine)


async def _check_source(source: StoreSide, tables: Sequence[Table]) -> None:
    if source.name == EMBEDDED:
        for table in tables:
            await source.engine.ensure_table(table)
        return
    missing = sorted({table.name for table in tables} - {*await source.engine.list_tables()})
    if missing:
        raise MoveFailed(f"DynamoDB has no tables {', '.join(missing)}; run `tally schema create`")


async def _check_empty(target: StoreSide, tables: Sequence[Table]) -> None:
    occupied = [table.name for table in tables if await _has_items(target.engine, table)]
    if occupied:
        where = "DynamoDB" if target.name == DYNAMODB else "the embedded store"
        raise MoveFailed(
            f"These tables of {where} have items: {', '.join(occupied)}. To replace them with those"
            " of the other store, use --overwrite"
        )


async def _has_items(engine: Engine, table: Table) -> bool:
    try:
        return bool((await engine.scan(Scan(table, limit=1))).scanned)
    except TableNotFound:
        return False


async def _initial_state(active: StoreSide, table: Table) -> TableState:
    position = await active.engine.stream_position(table)
    return TableState(position=position, expected=await active.count(table))
