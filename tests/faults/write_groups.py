"""Puts writer jobs into one group, so that a test knows what shares a commit."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from tally.store.sqlite import SqliteEngine


@contextmanager
def one_group(engine: SqliteEngine) -> Iterator[None]:
    """Block the writer, so that all jobs submitted meanwhile form one group."""
    busy, go_on = threading.Event(), threading.Event()

    def wait(_connection: apsw.Connection) -> None:
        busy.set()
        go_on.wait()

    waiting = engine._writer.submit(wait)
    engine._writer._hand_over()  # the event loop, which would do it, is blocked here
    busy.wait()
    try:
        yield
    finally:
        go_on.set()
        assert not waiting.cancelled()
