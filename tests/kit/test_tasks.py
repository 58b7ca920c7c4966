"""Tasks end, even those that swallow a cancellation."""

import asyncio

from tally.kit.tasks import cancel_all


async def test_a_task_that_swallows_cancellations_ends() -> None:
    cancellations = 0

    async def swallow_cancellations() -> None:
        nonlocal cancellations
        while cancellations < 3:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancellations += 1

    task = asyncio.create_task(swallow_cancellations())
    await asyncio.sleep(0)
    await cancel_all([task])
    assert task.done()
    assert cancellations == 3


async def test_a_finished_task_keeps_its_result() -> None:
    done = asyncio.create_task(asyncio.sleep(0, "result"))
    assert await done == "result"
    await cancel_all([done])
    assert done.result() == "result"
