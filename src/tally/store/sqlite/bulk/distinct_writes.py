"""Runs single writes and transactions of distinct items together.

Their order does not matter, so their items are read with one statement per table and written table
by table. A write whose condition fails, or a transaction that is cancelled, changes nothing and
does not affect the others.
"""

from collections.abc import Sequence

import apsw

from tally.store.errors import StoreError
from tally.store.sqlite import capacity
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import ItemChange
from tally.store.sqlite.transactions import apply_all, plan_transaction, read_stored
from tally.store.sqlite.writer_thread import WriteJob
from tally.store.sqlite.writes import PreparedWrite, plan_change, to_result


class DistinctWrites:
    """Jobs whose items are distinct, with the items that each writes or checks."""

    def __init__(self) -> None:
        self._jobs: list[tuple[WriteJob, Sequence[PreparedWrite]]] = []
        self._keys: set[tuple[str, RowKey]] = set()

    def add(self, job: WriteJob, steps: Sequence[PreparedWrite]) -> bool:
        """Add a job, unless another one refers to one of its items; return whether it was added."""
        keys = [(step.layout.rows, step.key) for step in steps]
        if not self._keys.isdisjoint(keys):
            return False
        self._keys.update(keys)
        self._jobs.append((job, steps))
        return True

    def run(self, connection: apsw.Connection, now: float) -> None:
        """Run the jobs, and store a result or an error in each."""
        stored = read_stored(connection, [step for _, steps in self._jobs for step in steps])
        planned: list[tuple[WriteJob, list[ItemChange | None]]] = []
        for job, steps in self._jobs:
            try:
                if type(job.work) is PreparedWrite:
                    row = stored[job.work.layout.rows].get(job.work.key)
                    planned.append((job, [plan_change(job.work, row)]))
                else:
                    planned.append((job, plan_transaction(steps, stored)))
            except StoreError as error:
                job.failure = error
        apply_all(connection, [change for _, changes in planned for change in changes], now)
        for job, changes in planned:
            job.failure = None
            if type(job.work) is PreparedWrite:
                job.result = to_result(connection, job.work, changes[0])
            else:
                job.result = capacity.transaction_result(changes)
