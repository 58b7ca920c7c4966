"""How a group of jobs is run inside the writer's transaction: in order, each with its own answer.

A job's work is a single prepared write, many transactions that look alike, or a function of the
connection for everything else. Plain puts that follow each other are written together, and so are
transactions that are alike, whoever asked for them: that is what a busy table mostly gets, and it
saves most of Python's share of the cost.
"""

from itertools import islice

import apsw

from tally.store.errors import StoreError
from tally.store.schema import Table
from tally.store.sqlite.bulk import PreparedBatch, merge_batches, run_batch
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import Layout
from tally.store.sqlite.table_registry import TableRegistry
from tally.store.sqlite.writer_thread import WriteJob
from tally.store.sqlite.writes import (
    PreparedWrite,
    is_unconditional_put,
    put_many,
    refresh,
    write_one,
)


class BatchingExecutor:
    """Runs groups with the catalogue as it stands in the database, which other processes may change."""

    def __init__(self, catalogue: TableRegistry) -> None:
        self._catalogue = catalogue
        self._version = 0  # of the database, as this connection left it

    def run(self, connection: apsw.Connection, group: list[WriteJob]) -> None:
        """Run all jobs, and leave each its result or its refusal."""
        if connection.data_version("main") != self._version:
            self._catalogue.refresh(connection)
        run = _Run(self._catalogue, connection)
        for job in group:
            try:
                run.take(job)
            except StoreError as refusal:
                job.failure = refusal
        run.write_waiting()

    def committed(self, connection: apsw.Connection) -> None:
        """Until the version is another one, the catalogue is as this group left it."""
        self._version = connection.data_version("main")

    def rolled_back(self) -> None:
        """What was read or made in it is not to be relied on."""
        self._catalogue.forget()
        self._version = 0


class _Run:
    """A group under way: what can be written together waits until something comes that cannot."""

    def __init__(self, catalogue: TableRegistry, connection: apsw.Connection) -> None:
        self._catalogue = catalogue
        self._connection = connection
        self._puts: dict[RowKey, WriteJob] = {}
        self._layout: Layout | None = None
        self._transactions: list[WriteJob] = []
        self._keys: list[set[RowKey]] = []

    def take(self, job: WriteJob) -> None:
        """Run the job, or let it wait for its like."""
        if type(job.work) is PreparedWrite:
            self._take_write(job)
        elif type(job.work) is PreparedBatch and job.work.is_current(self._layout_of):
            self._take_transactions(job)
        else:
            self.write_waiting()
            if type(job.work) is PreparedBatch:
                result = run_batch(self._connection, job.work, self._layout_of)
            else:
                result = job.work(self._connection)
            job.result, job.failure = result, None

    def _take_write(self, job: WriteJob) -> None:
        layout = self._catalogue.layout(job.work.write.table.name)
        job.work = refresh(layout, job.work)
        if not is_unconditional_put(layout, job.work):
            self.write_waiting()
            job.result, job.failure = write_one(self._connection, layout, job.work), None
            return
        if self._transactions or layout is not self._layout or job.work.key in self._puts:
            self.write_waiting()
        self._layout = layout
        self._puts[job.work.key] = job

    def _take_transactions(self, job: WriteJob) -> None:
        columns = job.work.columns
        is_one_more = self._transactions and job.work.is_like(self._transactions[0].work)
        if not is_one_more or any(
            not keys.isdisjoint(column.keys)
            for keys, column in zip(self._keys, columns, strict=True)
        ):
            self.write_waiting()
            self._keys = [set() for _ in columns]
        self._transactions.append(job)
        for keys, column in zip(self._keys, columns, strict=True):
            keys.update(column.keys)

    def write_waiting(self) -> None:
        """Write what waits, and answer."""
        jobs, self._puts = self._puts, {}
        if self._layout is not None and jobs:
            answers = put_many(self._connection, self._layout, [job.work for job in jobs.values()])
            for job, answer in zip(jobs.values(), answers, strict=True):
                job.result, job.failure = answer, None
        alike, self._transactions = self._transactions, []
        if alike:
            outcomes = iter(
                run_batch(
                    self._connection, merge_batches([job.work for job in alike]), self._layout_of
                )
            )
            for job in alike:
                job.result, job.failure = [*islice(outcomes, len(job.work))], None

    def _layout_of(self, table: Table) -> Layout:
        return self._catalogue.layout(table.name)
