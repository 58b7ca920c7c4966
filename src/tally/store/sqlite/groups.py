"""How a group of jobs is run inside the writer's transaction: in order, each with its own answer.

A job's work is a single prepared write, or a function of the connection for everything else. Plain puts that follow each other
are written together: that is what a busy table mostly gets, and it saves most of Python's share of the cost.
"""

import apsw

from tally.store.errors import StoreError
from tally.store.sqlite.catalogue import Catalogue
from tally.store.sqlite.keys import RowKey
from tally.store.sqlite.layout import Layout
from tally.store.sqlite.writer import Job
from tally.store.sqlite.writes import Prepared, is_plain, put_all, renew, write_one


def run_group(catalogue: Catalogue, connection: apsw.Connection, group: list[Job]) -> None:
    """Run all jobs, and leave each its result or its refusal."""
    catalogue.refresh(connection)
    together: dict[RowKey, Job] = {}
    layout: Layout | None = None
    for job in group:
        try:
            own = catalogue.layout(job.work.write.table.name) if type(job.work) is Prepared else None
            if own is not None:
                job.work = renew(own, job.work)
            if own is not None and is_plain(own, job.work):
                if own is not layout or job.work.key in together:
                    _put_together(connection, layout, together)
                    layout, together = own, {}
                together[job.work.key] = job
                continue
            _put_together(connection, layout, together)
            together = {}
            job.result = job.work(connection) if own is None else write_one(connection, own, job.work)
            job.failure = None
        except StoreError as refusal:
            job.failure = refusal
    _put_together(connection, layout, together)


def _put_together(connection: apsw.Connection, layout: Layout | None, jobs: dict[RowKey, Job]) -> None:
    if layout is None or not jobs:
        return
    answers = put_all(connection, layout, [job.work for job in jobs.values()])
    for job, answer in zip(jobs.values(), answers, strict=True):
        job.result, job.failure = answer, None
