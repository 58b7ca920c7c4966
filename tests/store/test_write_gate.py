"""The gate in front of DynamoDB acknowledges no write that a fence may have excluded."""

import asyncio

import pytest

from tally.errors import Unavailable
from tally.kit.clock import ManualClock
from tally.store.dynamodb.write_gate import LEASE_SECONDS, WriteGate
from tally.store.errors import OutcomeUnknown, StoreUnavailable, WritesPaused


class Fence:
    """A fence, and how often it was read."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.reads = 0
        self.is_available = True

    async def read(self) -> str | None:
        self.reads += 1
        if not self.is_available:
            raise Unavailable("The store is unavailable")
        return self.reason


async def write() -> str:
    return "written"


async def test_writes_share_one_read_per_second() -> None:
    fence, clock = Fence(), ManualClock()
    gate = WriteGate(fence.read, clock)
    assert await asyncio.gather(*(gate.run(write) for _ in range(50))) == ["written"] * 50
    assert fence.reads == 1
    await clock.advance(0.9)
    await gate.run(write)
    assert fence.reads == 1
    await clock.advance(0.2)
    await gate.run(write)
    await gate.close()
    assert fence.reads == 2


async def test_a_write_after_the_lease_waits_for_a_read() -> None:
    fence, clock = Fence(), ManualClock()
    gate = WriteGate(fence.read, clock)
    await gate.run(write)
    fence.reason = "moving"
    await clock.advance(LEASE_SECONDS)
    with pytest.raises(WritesPaused, match="moving"):
        await gate.run(write)


async def test_a_write_whose_response_comes_after_the_lease_is_not_acknowledged() -> None:
    fence, clock = Fence(), ManualClock()
    gate = WriteGate(fence.read, clock)

    async def slow_write() -> str:
        fence.reason = "moving"
        await clock.advance(LEASE_SECONDS)
        return "written"

    with pytest.raises(OutcomeUnknown):
        await gate.run(slow_write)


async def test_a_slow_write_is_acknowledged_if_there_is_no_fence() -> None:
    clock = ManualClock()
    gate = WriteGate(Fence().read, clock)

    async def slow_write() -> str:
        await clock.advance(LEASE_SECONDS)
        return "written"

    assert await gate.run(slow_write) == "written"


async def test_writes_pass_again_after_the_fence_is_removed() -> None:
    fence, clock = Fence(), ManualClock()
    gate = WriteGate(fence.read, clock)
    fence.reason = "moving"
    with pytest.raises(WritesPaused):
        await gate.run(write)
    fence.reason = None
    await clock.advance(LEASE_SECONDS)
    assert await gate.run(write) == "written"


async def test_a_fence_that_cannot_be_read_rejects_writes_only_after_the_lease() -> None:
    fence, clock = Fence(), ManualClock()
    gate = WriteGate(fence.read, clock)
    await gate.run(write)
    fence.is_available = False
    await clock.advance(LEASE_SECONDS - 1)
    assert await gate.run(write) == "written"
    await clock.advance(1)
    with pytest.raises(StoreUnavailable):
        await gate.run(write)
    await gate.close()
