"""The cost of a stream: bulk ingest of readings into a table with a stream and into one without."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bench.readings import Boards
from bench.rounds import Line
from tally.devices.repository.readings import DEVICE_READINGS, PROCESSED_BATCHES
from tally.store.schema import Table
from tally.store.sqlite import SqliteEngine, open_sqlite

_BOARDS, _READINGS, _CLIENTS, _REQUESTS = 500, 100, 16, 128


class Ingest:
    """Posts readings of many boards with concurrent clients, as the devices backend does."""

    def __init__(self, engine: SqliteEngine, now: int) -> None:
        self._engine = engine
        self._now = now
        self._boards = Boards(_BOARDS, now * 1000)

    async def cost(self) -> float:
        """Write a round of requests; return the µs per reading, without preparing them."""
        requests = iter(self._boards.transactions(_REQUESTS, _READINGS, self._now))

        async def client() -> None:
            for request in requests:
                outcomes = await self._engine.transact_each(request)
                if any(isinstance(outcome, Exception) for outcome in outcomes):
                    raise AssertionError("a reading was rejected")

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(_CLIENTS)))
        return (time.perf_counter() - started) / (_REQUESTS * _READINGS) * 1e6


@asynccontextmanager
async def ingest_engine(table: Table, rate: int | None) -> AsyncIterator[SqliteEngine]:
    """Open an engine with the tables of readings."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with open_sqlite(Path(directory), writer_process_rate=rate) as engine:
            await engine.create_table(table)
            await engine.create_table(PROCESSED_BATCHES)
            yield engine


async def measure_streams(rounds: int) -> AsyncIterator[Line]:
    """Compare both in alternating rounds, on the writer thread and in the writer process."""
    streamed = replace(DEVICE_READINGS, stream="NEW_IMAGE")
    for where, rate in (("writer thread", None), ("writer process", 1)):
        async with (
            ingest_engine(streamed, rate) as with_stream,
            ingest_engine(DEVICE_READINGS, rate) as without,
        ):
            mine, theirs, ratio = await _alternate(with_stream, without, rounds)
        yield Line(
            "cost of a stream",
            f"ingest of {_READINGS} readings per request, {where}",
            mine,
            "without a stream",
            theirs,
            ratio,
            "at most 1.11 times",
            ratio <= 1 / 0.9,
        )


async def _alternate(
    ours: SqliteEngine, peer: SqliteEngine, rounds: int
) -> tuple[float, float, float]:
    """Return the median costs of both, and the median of their ratios."""
    now = int(time.time())
    pair = Ingest(ours, now), Ingest(peer, now)
    for ingest in pair * 2:  # learns the shapes, and starts the writer process
        await ingest.cost()
    costs = []
    for number in range(rounds):
        order = pair if number % 2 else pair[::-1]  # neither always follows the other's checkpoint
        found = {ingest: await ingest.cost() for ingest in order}
        costs.append((found[pair[0]], found[pair[1]]))
    mine, theirs = (statistics.median(column) for column in zip(*costs, strict=True))
    return mine, theirs, statistics.median(one / other for one, other in costs)
