"""The cost of a stream for bulk ingest, and the delay from a commit to the consumers."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bench.load import Load, at_rate
from bench.readings import Boards
from bench.rounds import Line
from tally.devices.repository.readings import DEVICE_READINGS, PROCESSED_BATCHES
from tally.store.api import Put, TransactionBatch
from tally.store.changes import START, Change
from tally.store.schema import S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite

_BOARDS, _READINGS, _CLIENTS, _REQUESTS = 500, 100, 16, 128
_PER_SECOND, _LOAD_SECONDS = 200, 2
_COUNTERS = Table("bench-counters", S("id"), stream="NEW_IMAGE")


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

    async def load(self) -> Load:
        """Send requests at a constant rate."""
        count = _PER_SECOND * _LOAD_SECONDS
        requests = self._boards.transactions(count, _READINGS, self._now)

        async def send(request: TransactionBatch) -> None:
            outcomes = await self._engine.transact_each(request)
            if any(isinstance(outcome, Exception) for outcome in outcomes):
                raise AssertionError("a reading was rejected")

        return await at_rate(send, [*requests], _PER_SECOND)


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
    unstreamed = replace(DEVICE_READINGS, stream=None)
    for where, rate in (("writer thread", None), ("writer process", 1)):
        async with (
            ingest_engine(DEVICE_READINGS, rate) as with_stream,
            ingest_engine(unstreamed, rate) as without,
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


async def measure_latencies(rounds: int) -> AsyncIterator[Line]:
    """Compare the p99 of ingest at 20,000 readings/s in alternating rounds of two seconds."""
    unstreamed = replace(DEVICE_READINGS, stream=None)
    async with (
        ingest_engine(DEVICE_READINGS, 1) as with_stream,
        ingest_engine(unstreamed, 1) as without,
    ):
        ingests = [Ingest(engine, int(time.time())) for engine in (with_stream, without)]
        for ingest in ingests * 2:
            await ingest.cost()
        loads: dict[Ingest, list[Load]] = {ingest: [] for ingest in ingests}
        for number in range(rounds):
            for ingest in ingests if number % 2 else ingests[::-1]:
                loads[ingest].append(await ingest.load())
    # The median of the rounds: a round that another program disturbs decides nothing.
    mine, theirs = (
        statistics.median(one.quantile(0.99) for one in loads[each]) for each in ingests
    )
    rates = " and ".join(
        f"{statistics.median(one.rate for one in loads[each]) * _READINGS:,.0f}/s"
        for each in ingests
    )
    yield Line(
        "cost of a stream",
        f"p99 at {_PER_SECOND * _READINGS:,} readings/s, writer process",
        mine * 1e6,
        "without a stream",
        theirs * 1e6,
        mine / theirs,
        "at most 1.2 times",
        mine <= 1.2 * theirs,
        rates,
    )


async def measure_delays(rounds: int) -> AsyncIterator[Line]:
    """Measure when a change arrives, beside the durable put that makes it."""
    for where, goal in (("in the process", 5_000.0), ("by the file alone", 100_000.0)):
        with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
            async with open_sqlite(directory) as writer, open_sqlite(directory) as other:
                await writer.create_table(_COUNTERS)
                reader = writer if where == "in the process" else other
                puts, delays = await _delays(writer, reader, 10 * rounds)
        median = statistics.median(delays)
        yield Line(
            "delay of a change",
            f"from the commit to a consumer, {where}",
            median,
            "durable put",
            statistics.median(puts),
            median / statistics.median(puts),
            f"at most {goal / 1000:g} ms",
            median <= goal,
        )


async def _delays(
    writer: SqliteEngine, reader: SqliteEngine, count: int
) -> tuple[list[float], list[float]]:
    """Return the µs of each put, and from its end until its change arrived."""
    puts, delays = [], []
    async with aclosing(reader.changes(_COUNTERS, START)) as changes:
        for number in range(count):
            arrival = asyncio.ensure_future(_next_arrival(changes))
            started = time.perf_counter()
            await writer.put(Put(_COUNTERS, {"id": "one", "number": number}))
            ended = time.perf_counter()
            puts.append((ended - started) * 1e6)
            delays.append(max(0.0, await arrival - ended) * 1e6)
    return puts, delays


async def _next_arrival(changes: AsyncGenerator[Change, None]) -> float:
    await anext(changes)
    return time.perf_counter()


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
