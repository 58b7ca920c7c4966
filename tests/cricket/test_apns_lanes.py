"""Lanes: as many pushes under way as Apple bears, less after trouble, more when it is over, and everyone in turn."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pyreqwest.client import ClientBuilder

from tally.cricket.apns.connection_pool import FIRST, LEAST, MOST, Lane, Lanes
from tally.kit.clock import ManualClock

REST, LONGEST = 1.0, 8.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def lanes(clock: ManualClock) -> AsyncIterator[Lanes]:
    made = Lanes(lambda: ClientBuilder().build(), 2, clock, rest=REST, longest_rest=LONGEST)
    yield made
    await made.close()


def taken(lanes: Lanes, count: int) -> list[Lane]:
    found = [lanes.enter() for _ in range(count)]
    assert None not in found
    return [lane for lane in found if lane is not None]


async def test_the_emptiest_lane_is_taken_until_all_are_full(lanes: Lanes) -> None:
    assert [lane.under_way for lane in lanes.lanes if taken(lanes, FIRST)] == [FIRST // 2, FIRST]
    taken(lanes, 2 * FIRST - lanes.under_way)
    assert lanes.enter() is None


async def test_good_answers_bring_more_up_to_a_limit(lanes: Lanes) -> None:
    lane = lanes.lanes[0]
    for _ in range(3 * MOST):
        lanes.went_well(lane)
    assert (lane.limit, lanes.lanes[1].limit, lanes.most) == (MOST, FIRST, 2 * MOST)


async def test_a_burst_of_trouble_counts_once(lanes: Lanes) -> None:
    """A hundred pushes that fail together are one reason to slow down, not a hundred."""
    lane = lanes.lanes[0]
    lane.begun = 100
    for number in range(1, 101):
        lanes.slow_down(lane, number, 0, is_answered=True)
    assert (lane.limit, lane.troubles) == (FIRST / 2, 1)


async def test_trouble_again_and_again_leaves_a_little(lanes: Lanes) -> None:
    lane = lanes.lanes[0]
    for number in range(1, 20):
        lane.begun = number
        lanes.slow_down(lane, number, 0, is_answered=True)
    assert lane.limit == LEAST
    lanes.went_well(lane)
    assert LEAST < lane.limit < LEAST + 1


async def test_a_lane_rests_after_trouble_and_the_other_goes_on(
    lanes: Lanes, clock: ManualClock
) -> None:
    tired, fresh = lanes.lanes
    tired.begun = 1
    lanes.slow_down(tired, 1, 5.0, is_answered=True)
    assert set(taken(lanes, FIRST)) == {fresh}
    assert lanes.enter() is None
    waiting = asyncio.create_task(lanes.enter_later())
    await clock.until_sleeping()
    await clock.advance(4.9)
    assert not waiting.done()
    await clock.advance(0.1)
    assert await waiting is tired


async def test_a_wish_for_a_long_rest_is_heard_up_to_a_limit(
    lanes: Lanes, clock: ManualClock
) -> None:
    lane = lanes.lanes[0]
    lane.begun = 1
    lanes.slow_down(lane, 1, 3600.0, is_answered=True)
    await clock.until_sleeping()
    await clock.advance(LONGEST)
    assert lane.rests == 0


async def test_those_who_wait_come_in_the_order_they_came(lanes: Lanes) -> None:
    held = taken(lanes, 2 * FIRST)
    came: list[int] = []

    async def wait(number: int) -> None:
        await lanes.enter_later()
        came.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(5)]
    await asyncio.sleep(0)
    for lane in held[:5]:
        lanes.leave(lane)
    await asyncio.gather(*waiting)
    assert came == [0, 1, 2, 3, 4]


async def test_a_place_for_one_who_has_given_up_goes_to_the_next(lanes: Lanes) -> None:
    """No place is ever lost to somebody who is no longer there."""
    held = taken(lanes, 2 * FIRST)
    first, second = (asyncio.create_task(lanes.enter_later()) for _ in range(2))
    await asyncio.sleep(0)
    lanes.leave(held[0])
    first.cancel()
    lane = await asyncio.wait_for(second, 5)
    assert lane is held[0]
    assert first.cancelled()
    assert lanes.under_way == 2 * FIRST


async def test_three_requests_in_a_row_without_an_answer_bring_a_new_connection(
    lanes: Lanes,
) -> None:
    lane = lanes.lanes[0]
    before = lane.client
    lanes.slow_down(lane, 1, 0, is_answered=False)
    lanes.slow_down(lane, 2, 0, is_answered=False)
    lanes.went_well(lane)
    lanes.slow_down(lane, 3, 0, is_answered=False)
    lanes.slow_down(lane, 4, 0, is_answered=False)
    assert lane.client is before
    lanes.slow_down(lane, 5, 0, is_answered=False)
    assert lane.client is not before
