"""A stream of pushes applies back-pressure and ends cleanly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from tally.cricket.apns.push_stream import PushStream
from tally.cricket.model.push import Push, PushOutcome, PushResult
from tests.cricket.apns_harness import update_push

DELIVERED = PushResult(PushOutcome.DELIVERED, 200)


class PushSource:
    """Yields `count` pushes, then raises `error` if there is one; counts those it yielded."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.count = count
        self.error = error
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[Push]:
        while self.read < self.count:
            self.read += 1
            yield update_push("ab" * 32, self.read)
        if self.error is not None:
            raise self.error


async def deliver(_: Push) -> PushResult:
    await asyncio.sleep(0)
    return DELIVERED


async def settle() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_each_push_is_yielded_once_with_its_result(count: int, limit: int) -> None:
    async with aclosing(PushStream(deliver, limit).run(PushSource(count))) as results:
        found = [(push.payload, result) async for push, result in results]
    assert sorted(payload for payload, _ in found) == sorted(
        update_push("", number).payload for number in range(1, count + 1)
    )
    assert {result.outcome for _, result in found} <= {PushOutcome.DELIVERED}


async def test_the_source_is_read_only_as_fast_as_results_are() -> None:
    """At peak a few times the concurrency is in memory, however slow the reader is."""
    source = PushSource(100_000)
    in_flight = peak = 0

    async def counted(push: Push) -> PushResult:
        nonlocal in_flight, peak
        in_flight += 1
        peak = max(peak, in_flight)
        result = await deliver(push)
        in_flight -= 1
        return result

    async with aclosing(PushStream(counted, 20).run(source)) as results:
        read = 0
        async for _ in results:
            read += 1
            await settle()
            assert source.read - read <= 4 * 20
            if read == 30:
                break
    assert peak == 20


async def test_a_slow_push_does_not_block_the_others() -> None:
    release = asyncio.Event()

    async def first_waits(push: Push) -> PushResult:
        if push == update_push("ab" * 32, 1):
            await release.wait()
        return DELIVERED

    async with aclosing(PushStream(first_waits, 5).run(PushSource(100))) as results:
        for _ in range(99):
            push, _ = await anext(results)
            assert push != update_push("ab" * 32, 1)
        release.set()
        assert (await anext(results))[0] == update_push("ab" * 32, 1)


async def test_an_error_of_the_source_is_raised_after_the_results_in_flight() -> None:
    found = []

    async def read() -> None:
        async for _, result in PushStream(deliver, 5).run(
            PushSource(12, RuntimeError("the store is unavailable"))
        ):
            found.append(result)

    with pytest.raises(RuntimeError, match="the store is unavailable"):
        await read()
    assert found == [DELIVERED] * 12


async def test_an_error_of_a_worker_is_raised_immediately() -> None:
    async def broken(_: Push) -> PushResult:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with aclosing(PushStream(broken, 3).run(PushSource(100_000))) as results:
            await anext(results)


async def test_closing_the_stream_cancels_its_tasks() -> None:
    async def for_ever(_: Push) -> PushResult:
        await asyncio.Event().wait()
        return DELIVERED

    before = asyncio.all_tasks()
    results = PushStream(for_ever, 10).run(PushSource(100))
    waiting = asyncio.ensure_future(anext(results))
    await settle()
    assert len(asyncio.all_tasks() - before) == 12
    waiting.cancel()
    await asyncio.wait({waiting})
    await results.aclose()
    assert asyncio.all_tasks() - before == set()


async def test_few_pushes_need_few_workers() -> None:
    """A match with three followers does not start hundreds of tasks."""
    before, peak = asyncio.all_tasks(), 0

    async def counted(push: Push) -> PushResult:
        nonlocal peak
        peak = max(peak, len(asyncio.all_tasks() - before))
        return await deliver(push)

    async with aclosing(PushStream(counted, 400).run(PushSource(3))) as results:
        assert len([result async for result in results]) == 3
    assert peak <= 4
