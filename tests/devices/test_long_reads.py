"""Charts and exports are limited in number, fairly among operators, and end with their client."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from urllib.parse import urlsplit

import pytest

from tally.devices.api.schemas.exports import FORMATS, export
from tally.devices.service import charts
from tally.devices.service.charts import MAX_CONCURRENT_CHARTS, ChartService
from tally.devices.service.history import MAX_CONCURRENT_EXPORTS, ReadingHistory
from tally.devices.wiring import Devices
from tally.kit.fair_limiter import FairLimiter
from tally.kit.time_slices import TimeSlices
from tests.devices.harness import ADMIN, FIRST_MS, MINUTE_MS, Board, DevicesServer

TIMEOUT_SECONDS = 30


@pytest.fixture(scope="session")
async def board(server: DevicesServer) -> Board:
    board = Board()
    await server.store_readings(board, board.readings(250))
    return board


def history_of(server: DevicesServer) -> ReadingHistory:
    devices = server.application.backends["devices"]
    assert isinstance(devices, Devices)
    return devices.services.history


def charts_of(server: DevicesServer) -> ChartService:
    devices = server.application.backends["devices"]
    assert isinstance(devices, Devices)
    return devices.services.charts


def chart_path(board: Board) -> str:
    return f"/devices/{board.hardware_id}/series?sensor=bme280_temp_c&from=0&to=4000000000000"


@asynccontextmanager
async def all_slots(limiter: FairLimiter, count: int) -> AsyncIterator[None]:
    """Hold all slots, as long reads of another operator do."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(limiter.slot("somebody-else"))
        yield


async def wait_until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not is_met():  # noqa: ASYNC110  (the queue has no event to await)
            await asyncio.sleep(0.001)


async def test_one_chart_more_than_the_limit_waits(server: DevicesServer, board: Board) -> None:
    limiter = charts_of(server).limiter
    async with all_slots(limiter, MAX_CONCURRENT_CHARTS):
        chart = asyncio.create_task(server.get_json(chart_path(board)))
        await wait_until(lambda: limiter.waiting == 1)
        assert not chart.done()
    assert sum(bucket["count"] for bucket in (await chart)["buckets"]) == 250


async def test_readings_are_stored_while_charts_wait(server: DevicesServer, board: Board) -> None:
    limiter = charts_of(server).limiter
    async with all_slots(limiter, MAX_CONCURRENT_CHARTS):
        chart = asyncio.create_task(server.get_json(chart_path(board)))
        await wait_until(lambda: limiter.waiting == 1)
        other = Board()
        await server.store_readings(other, other.readings(3))
        assert len(await server.readings(other)) == 3
        assert not chart.done()
    await chart


async def test_the_event_loop_runs_between_the_reads_of_a_chart(
    server: DevicesServer, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chart waits for its turn after every few readings."""
    monkeypatch.setattr(charts, "SLICE_READINGS", 1)
    time_range = FIRST_MS, FIRST_MS + 250 * MINUTE_MS - 1
    iterations = 0

    async def count_iterations() -> None:
        nonlocal iterations
        while True:
            await asyncio.sleep(0)
            iterations += 1

    counter = asyncio.create_task(count_iterations())
    series = await charts_of(server).series(
        board.hardware_id, "bme280_temp_c", time_range, 200, owner="operator"
    )
    counter.cancel()
    assert sum(bucket.count for bucket in series.buckets) == 250
    assert iterations > 200


async def test_a_chart_whose_client_left_leaves_the_queue(
    server: DevicesServer, board: Board
) -> None:
    limiter, address = charts_of(server).limiter, urlsplit(server.url)
    async with all_slots(limiter, MAX_CONCURRENT_CHARTS):
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        head = (
            f"GET /devices{chart_path(board)} HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Authorization: Bearer {ADMIN}\r\n\r\n"
        )
        writer.write(head.encode())
        await wait_until(lambda: limiter.waiting == 1)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        await wait_until(lambda: limiter.waiting == 0)


@pytest.mark.parametrize("file_format", ["csv", "ndjson", "parquet"])
async def test_an_export_waits_for_a_slot_and_is_complete(
    server: DevicesServer, board: Board, file_format: str
) -> None:
    limiter, path = history_of(server).export_limiter, f"/devices/{board.hardware_id}/export"
    at_once = await server.operator_request(f"{path}?format={file_format}")
    async with all_slots(limiter, MAX_CONCURRENT_EXPORTS):
        export = asyncio.create_task(server.operator_request(f"{path}?format={file_format}"))
        await wait_until(lambda: limiter.waiting == 1)
        assert not export.done()
    assert (await export).body == at_once.body


async def test_an_export_holds_no_slot_while_its_client_does_not_read(
    server: DevicesServer, board: Board
) -> None:
    """Slow clients do not keep the others from exporting."""
    readings = await history_of(server).export(board.hardware_id, (0, 4_000_000_000_000))
    limiter = FairLimiter(1)
    slot = partial(limiter.slot, "slow")
    chunks = export(readings, FORMATS["csv"].writer(), TimeSlices(), slot)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        first = await anext(chunks)
        async with limiter.slot("fast"):
            pass
        rest = b"".join([chunk async for chunk in chunks])
    assert (first + rest).count(b"\n") == 1 + 250
