"""Runs the jobs of a group in order inside the writer's transaction.

A job is a prepared write, a prepared transaction or batch of transactions, or a function of the
connection. Consecutive unconditional puts are written together, and so are other writes and
transactions of distinct items, and batches of the same shape, also of different callers. This
avoids most of the cost in Python.
"""

from collections.abc import Callable, Sequence
from itertools import islice

import apsw

from tally.store.errors import StoreError
from tally.store.schema import Table
from tally.store.sqlite.bulk.batches import PreparedBatch, merge_batches, run_batch
from tally.store.sqlite.bulk.distinct_writes import DistinctWrites
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import Layout
from tally.store.sqlite.shapes import Shapes
from tally.store.sqlite.table_registry import TableRegistry
from tally.store.sqlite.transactions import PreparedTransaction
from tally.store.sqlite.writer_thread import WriteJob
from tally.store.sqlite.writes import (
    PreparedWrite,
    is_unconditional_put,
    prepare,
    put_many,
)


class GroupFailed(Exception):
    """Jobs that were written together failed: the group is rolled back and run one by one."""


class BatchingExecutor:
    """Runs groups with the tables as the database declares them.

    Other processes may change them. `clock` returns the time of changes in epoch seconds.
    """

    def __init__(self, registry: TableRegistry, shapes: Shapes, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._shapes = shapes
        self._clock = clock
        self._has_new_shapes = False
        self._data_version = 0  # SQLite's counter of changes by other connections

    def run(self, connection: apsw.Connection, group: list[WriteJob]) -> None:
        """Run all jobs and store a result or an error in each."""
        if connection.data_version("main") != self._data_version:
            self._registry.refresh(connection)
        self._has_new_shapes = self._shapes.store_pending(connection)
        run = _GroupRun(self._registry, connection, self._clock())
        for job in group:
            try:
                run.add(job)
            except StoreError as error:
                job.failure = error
        run.flush()

    def on_commit(self, connection: apsw.Connection) -> None:
        """Use new shapes, and remember the data version.

        Until it changes, the registry is current.
        """
        if self._has_new_shapes:
            self._shapes.load(connection)
        self._data_version = connection.data_version("main")

    def on_rollback(self) -> None:
        """Discard what was read or created in the transaction."""
        self._registry.invalidate()
        self._data_version = 0


class _GroupRun:
    """The state of a running group.

    Collects jobs to write together until an incompatible one arrives.
    """

    def __init__(self, registry: TableRegistry, connection: apsw.Connection, now: float) -> None:
        self._registry = registry
        self._connection = connection
        self._now = now
        self._puts: dict[RowKey, WriteJob] = {}
        self._layout: Layout | None = None
        self._transactions: list[WriteJob] = []
        self._keys: list[set[RowKey]] = []
        self._distinct: DistinctWrites | None = None

    def add(self, job: WriteJob) -> None:
        """Run the job, or collect it."""
        if type(job.work) is PreparedWrite:
            self._add_write(job)
        elif type(job.work) is PreparedTransaction:
            job.work = job.work.with_current(self._layout_of)
            self._add_distinct(job, job.work.steps)
        elif type(job.work) is PreparedBatch and job.work.is_current(self._layout_of):
            self._add_batch(job)
        else:
            self._flush_before()
            if type(job.work) is PreparedBatch:
                result = run_batch(self._connection, job.work, self._layout_of, self._now)
            else:
                with self._connection:  # a savepoint: a failed job leaves nothing behind
                    result = job.work(self._connection)
            job.result, job.failure = result, None

    def _add_write(self, job: WriteJob) -> None:
        work = job.work
        layout = self._registry.writable(work.write.table.name)
        if layout is not work.layout:
            work = job.work = prepare(layout, work.write)
        if not is_unconditional_put(work):
            self._add_distinct(job, (work,))
            return
        if (
            self._distinct
            or self._transactions
            or layout is not self._layout
            or work.key in self._puts
        ):
            self._flush_before()
        self._layout = layout
        self._puts[work.key] = job

    def _add_distinct(self, job: WriteJob, steps: Sequence[PreparedWrite]) -> None:
        if self._distinct is None or not self._distinct.add(job, steps):
            self._flush_before()
            self._distinct = DistinctWrites()
            self._distinct.add(job, steps)

    def _add_batch(self, job: WriteJob) -> None:
        puts_by_table = job.work.puts_by_table
        is_compatible = self._transactions and job.work.has_same_shape(self._transactions[0].work)
        if not is_compatible or any(
            not keys.isdisjoint(puts.keys)
            for keys, puts in zip(self._keys, puts_by_table, strict=True)
        ):
            self._flush_before()
            self._keys = [set() for _ in puts_by_table]
        self._transactions.append(job)
        for keys, puts in zip(self._keys, puts_by_table, strict=True):
            keys.update(puts.keys)

    def _flush_before(self) -> None:
        """Write the collected jobs before another one runs, which did not cause their errors."""
        try:
            self.flush()
        except StoreError as error:
            raise GroupFailed from error

    def flush(self) -> None:
        """Write the collected jobs and set their results."""
        put_jobs, self._puts = self._puts, {}
        if self._layout is not None and put_jobs:
            puts = [job.work for job in put_jobs.values()]
            results = put_many(self._connection, self._layout, puts, self._now)
            for job, result in zip(put_jobs.values(), results, strict=True):
                job.result, job.failure = result, None
        distinct, self._distinct = self._distinct, None
        if distinct is not None:
            distinct.run(self._connection, self._now)
        batches, self._transactions = self._transactions, []
        if batches:
            merged = merge_batches([job.work for job in batches])
            outcomes = iter(run_batch(self._connection, merged, self._layout_of, self._now))
            for job in batches:
                job.result, job.failure = [*islice(outcomes, len(job.work))], None

    def _layout_of(self, table: Table) -> Layout:
        return self._registry.writable(table.name)
