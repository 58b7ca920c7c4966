"""Checks that a recorded history of transactions is strictly serializable.

It needs no search, so it also handles long histories.

Every item carries a version that each write raises by one, so a transaction's record says exactly
what it read and wrote. That gives the order of transactions: the writer of a version comes before
its readers, its readers before the writer of the next version, and a transaction that ended before
those that started later. The history is strictly serializable if this order has no cycle.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from msgspec import Struct


class Transaction(Struct, frozen=True):
    """A transaction's start and end, and the versions that it read and wrote."""

    invoked: float
    returned: float
    read_versions: dict[str, int]
    written_versions: dict[str, int] = {}


def contradiction(transactions: Iterable[Transaction]) -> str | None:
    """Return why the history is impossible, or None if it is serializable.

    Items start at version 0.
    """
    history = list(transactions)
    try:
        writers = _writers(history)
        _check_sources(history, writers)
    except ValueError as impossible:
        return str(impossible)
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for before, after in (*_by_versions(history, writers), *_by_time(history)):
        sorter.add(after, before)
    try:
        sorter.prepare()
    except CycleError as cycle:
        names = [name for name in cycle.args[1] if not name.startswith("time")]
        return "each came before the next: " + ", ".join(names)
    return None


_Writers = dict[tuple[str, int], int]


def _name(number: int, history: list[Transaction]) -> str:
    transaction = history[number]
    return f"#{number} read {transaction.read_versions} wrote {transaction.written_versions}"


def _writers(history: list[Transaction]) -> _Writers:
    """Map each version to its writer; two writers of one version are a lost update."""
    writers: _Writers = {}
    for number, transaction in enumerate(history):
        for version in transaction.written_versions.items():
            if version in writers:
                raise ValueError(
                    f"two transactions wrote {version}:"
                    f" {_name(writers[version], history)}, {_name(number, history)}"
                )
            writers[version] = number
    return writers


def _check_sources(history: list[Transaction], writers: _Writers) -> None:
    """Check that every version that was read or replaced has a writer."""
    for number, transaction in enumerate(history):
        before = {key: version - 1 for key, version in transaction.written_versions.items()}
        for seen in (*transaction.read_versions.items(), *before.items()):
            if seen[1] != 0 and seen not in writers:
                raise ValueError(f"no transaction wrote {seen}: {_name(number, history)}")


def _by_versions(history: list[Transaction], writers: _Writers) -> Iterator[tuple[str, str]]:
    for number, transaction in enumerate(history):
        for key, version in transaction.written_versions.items():
            if version > 1:
                yield _name(writers[key, version - 1], history), _name(number, history)
        for key, version in transaction.read_versions.items():
            source, successor = writers.get((key, version)), writers.get((key, version + 1))
            if source is not None and source != number:
                yield _name(source, history), _name(number, history)
            if successor is not None and successor != number:
                yield _name(number, history), _name(successor, history)


def _by_time(history: list[Transaction]) -> Iterator[tuple[str, str]]:
    """Order transactions by real time, with a chain of instants instead of an edge per pair."""
    returns: dict[float, list[int]] = defaultdict(list)
    for number, transaction in enumerate(history):
        returns[transaction.returned].append(number)
    moments = sorted(returns)
    for position, moment in enumerate(moments):
        if position:
            yield f"time {position - 1}", f"time {position}"
        for number in returns[moment]:
            yield _name(number, history), f"time {position}"
    for number, transaction in enumerate(history):
        passed = bisect_left(moments, transaction.invoked) - 1
        if passed >= 0:
            yield f"time {passed}", _name(number, history)
