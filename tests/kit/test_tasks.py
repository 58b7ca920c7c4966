"""Tasks end, also those that swallow a cancellation."""

import asyncio

from tally.kit.tasks import cancel_all


async def test_a_task_that_swallows_cancellations_ends_all_the_same() -> None:
    heard = 0

    async def deaf() -> None:
        nonlocal heard
        while heard < 3:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                heard += 1

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    await cancel_all([task])
    assert task.done()
    assert heard == 3


async def test_what_has_ended_already_is_left_as_it_is() -> None:
    done = asyncio.create_task(asyncio.sleep(0, "result"))
    assert await done == "result"
    await cancel_all([done])
    assert done.result() == "result"
