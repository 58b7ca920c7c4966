"""Streams of pushes: read as fast as answers come, held in memory no further than that, and ended cleanly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from tally.cricket.apns.push_stream import PushStream
from tally.cricket.model.push import Push, PushOutcome, PushResult
from tests.cricket.apns_harness import update

DELIVERED = PushResult(PushOutcome.DELIVERED, 200)


class Source:
    """Pushes without end or up to a count, and how many were asked for."""

    def __init__(self, count: int, trouble: Exception | None = None) -> None:
        self.count = count
        self.trouble = trouble
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[Push]:
        while self.read < self.count:
            self.read += 1
            yield update("ab" * 32, self.read)
        if self.trouble is not None:
            raise self.trouble


async def at_once(_: Push) -> PushResult:
    await asyncio.sleep(0)
    return DELIVERED


async def settle() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_each_push_comes_out_once_with_its_verdict(count: int, limit: int) -> None:
    async with aclosing(PushStream(at_once, limit).run(Source(count))) as verdicts:
        found = [(push.payload, verdict) async for push, verdict in verdicts]
    assert sorted(payload for payload, _ in found) == sorted(
        update("", number).payload for number in range(1, count + 1)
    )
    assert {verdict.outcome for _, verdict in found} <= {PushOutcome.DELIVERED}


async def test_the_source_is_read_no_further_than_answers_are_taken() -> None:
    """With 100,000 followers no more than a few times the concurrency is in memory, however slow the reader."""
    source = Source(100_000)
    under_way = most = 0

    async def counted(push: Push) -> PushResult:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        verdict = await at_once(push)
        under_way -= 1
        return verdict

    async with aclosing(PushStream(counted, 20).run(source)) as verdicts:
        read = 0
        async for _ in verdicts:
            read += 1
            await settle()
            assert source.read - read <= 4 * 20
            if read == 30:
                break
    assert most == 20


async def test_a_push_that_takes_long_does_not_hold_up_the_others() -> None:
    release = asyncio.Event()

    async def first_waits(push: Push) -> PushResult:
        if push == update("ab" * 32, 1):
            await release.wait()
        return DELIVERED

    async with aclosing(PushStream(first_waits, 5).run(Source(100))) as verdicts:
        for _ in range(99):
            push, _ = await anext(verdicts)
            assert push != update("ab" * 32, 1)
        release.set()
        assert (await anext(verdicts))[0] == update("ab" * 32, 1)


async def test_trouble_of_the_source_comes_after_the_verdicts_of_what_it_gave() -> None:
    """What was sent was sent, and has its verdict."""
    found = []

    async def read() -> None:
        async for _, verdict in PushStream(at_once, 5).run(
            Source(12, RuntimeError("the store is away"))
        ):
            found.append(verdict)

    with pytest.raises(RuntimeError, match="the store is away"):
        await read()
    assert found == [DELIVERED] * 12


async def test_a_mistake_of_ours_is_raised_and_not_waited_for() -> None:
    async def broken(_: Push) -> PushResult:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with aclosing(PushStream(broken, 3).run(Source(100_000))) as verdicts:
            await anext(verdicts)


async def test_a_reader_who_goes_leaves_nothing_running() -> None:
    async def for_ever(_: Push) -> PushResult:
        await asyncio.Event().wait()
        return DELIVERED

    before = asyncio.all_tasks()
    verdicts = PushStream(for_ever, 10).run(Source(100))
    waiting = asyncio.ensure_future(anext(verdicts))
    await settle()
    assert len(asyncio.all_tasks() - before) == 12
    waiting.cancel()
    await asyncio.wait({waiting})
    await verdicts.aclose()
    assert asyncio.all_tasks() - before == set()


async def test_few_pushes_need_few_workers() -> None:
    """A match with three followers does not start hundreds of tasks."""
    before, most = asyncio.all_tasks(), 0

    async def counted(push: Push) -> PushResult:
        nonlocal most
        most = max(most, len(asyncio.all_tasks() - before))
        return await at_once(push)

    async with aclosing(PushStream(counted, 400).run(Source(3))) as verdicts:
        assert len([verdict async for verdict in verdicts]) == 3
    assert most <= 4
