"""Webhook latency while athletes import their histories: 100 of them, 1,000 activities each.

Goal: p99 under 50 ms at 200 webhook events per second until the last import is complete.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from bench.collect import RATE, CollectBench, open_bench
from bench.collect_dataset import BenchUser, CollectDataset
from bench.load import Load, at_rate, merge_loads
from bench.rounds import Line
from tally.collect.repository.main import CollectRepository
from tally.store.store import Store

_USERS = 300
_WORKOUTS_EACH = 100
_IMPORTERS = 100
_HISTORY = 1_000
_WARM_UP_EVENTS = 300
_CHUNK_SECONDS = 4
_MAX_SECONDS = 400
_MAX_P99_SECONDS = 0.05
_SECTION = f"collect over HTTP while {_IMPORTERS} athletes import {_HISTORY:,} activities each"


async def imports() -> AsyncIterator[Line]:
    """Measure webhook events at the target rate until all imports are complete."""
    # The importers have no workouts yet: a sync would delete those that Strava does not have.
    counts = [0] * _IMPORTERS + [_WORKOUTS_EACH] * (_USERS - _IMPORTERS)
    dataset = CollectDataset(counts, _WARM_UP_EVENTS + RATE * _MAX_SECONDS, _IMPORTERS, _HISTORY)
    async with open_bench(dataset) as bench:
        await at_rate(bench.deliver, dataset.events(_WARM_UP_EVENTS), RATE)
        await bench.wait_until_applied()
        cpu, wait = bench.server.cpu_seconds(), bench.server.core_wait_seconds()
        started = time.monotonic()
        await asyncio.gather(*(_request_sync(bench, user) for user in dataset.importers))
        alone = await at_rate(bench.deliver, dataset.events(RATE), RATE)
        loads = [alone]
        while not await _are_complete(bench, dataset.importers):
            if time.monotonic() - started > _MAX_SECONDS - _CHUNK_SECONDS:
                raise AssertionError(f"the imports took more than {_MAX_SECONDS} s")
            loads.append(await at_rate(bench.deliver, dataset.events(RATE * _CHUNK_SECONDS), RATE))
        seconds = time.monotonic() - started
        cpu = bench.server.cpu_seconds() - cpu
        wait = bench.server.core_wait_seconds() - wait
        imported = await _count_imported(bench, dataset.importers)
        shares = f"server CPU {cpu / seconds:.0%}, waiting for a core {wait / seconds:.0%}"
        yield _line(merge_loads(loads), seconds, shares, imported)


async def _request_sync(bench: CollectBench, user: BenchUser) -> None:
    headers = {"Cookie": f"cc_session={user.session_id}", "X-Requested-With": "bench"}
    url = f"{bench.server.url}/collect/strava/sync"
    response = await bench.client.post(url).headers(headers).build().send()
    if response.status != 202:
        raise AssertionError(f"the request for a sync got status {response.status}")


async def _are_complete(bench: CollectBench, users: Sequence[BenchUser]) -> bool:
    """Whether the syncs of all these users are complete, read without loading the server."""
    repository = CollectRepository(Store(bench.store))
    syncs = [await repository.sync(user.user_id) for user in users]
    return all(sync is not None and sync.synced_at is not None for sync in syncs)


async def _count_imported(bench: CollectBench, users: Sequence[BenchUser]) -> int:
    repository = CollectRepository(Store(bench.store))
    return sum([await repository.count_workouts(user.user_id) for user in users])


def _line(load: Load, seconds: float, shares: str, imported: int) -> Line:
    expected = _IMPORTERS * _HISTORY
    note = (
        f"{load.describe()}; {imported:,} of {expected:,} activities imported in {seconds:.0f} s:"
        f" {imported / seconds:,.0f} activities/s; {shares}"
    )
    microseconds = load.quantile(0.5) * 1e6
    return Line(
        _SECTION,
        f"{RATE} webhook events/s",
        microseconds,
        "time per imported activity",
        seconds / imported * 1e6,
        microseconds / (seconds / imported * 1e6),
        f"{RATE}/s, p99 < 50 ms",
        load.meets(RATE, _MAX_P99_SECONDS) and imported == expected,
        note,
    )
