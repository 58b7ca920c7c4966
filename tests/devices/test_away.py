"""While the store is away: every route that reads says so in the one shape, and an export that breaks off does not look whole."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from tally.devices.api.exports import FORMATS
from tally.store import dynamodb
from tally.store.dynamodb import DynamoDBRetryPolicy, open_dynamodb
from tests.devices.harness import (
    ADMIN,
    Board,
    DevicesServer,
    assert_error,
    make_settings,
    open_server,
)
from tests.store.misbehaving import Service, answer, closed, misbehaving

PAGE = 500  # readings that an export asks for at a time
NOTHING_MORE: dict[str, Any] = {"Items": [], "Count": 0, "ScannedCount": 0}


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Service]:
    """A service with DynamoDB's protocol, and a store that soon gives it up."""
    retry_policy = DynamoDBRetryPolicy(attempts=2, initial_backoff=0.001)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "tally")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "tally-secret")
        patch.setattr(dynamodb, "open_dynamodb", partial(open_dynamodb, retry_policy=retry_policy))
        async with misbehaving() as service:
            yield service


@pytest.fixture(scope="module")
async def server(
    shared: Service, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DevicesServer]:
    folder = tmp_path_factory.mktemp("away")
    async with open_server(
        make_settings(data_dir=folder, store_engine="dynamodb", dynamodb_endpoint=shared.url)
    ) as server:
        yield server


@pytest.fixture
def service(shared: Service) -> Service:
    """The service as if nobody had asked it anything."""
    shared.forget()
    return shared


@pytest.mark.parametrize(
    "path",
    [
        "/api-keys",
        "/devices",
        "/devices/{device}",
        "/devices/{device}/latest",
        "/devices/{device}/readings",
        "/devices/{device}/series?sensor=wind&from=0&to=1000",
        "/devices/{device}/stream",
        *(f"/devices/{{device}}/export?format={name}" for name in FORMATS),
    ],
)
async def test_what_reads_is_refused_while_the_service_is_away(
    server: DevicesServer, service: Service, path: str
) -> None:
    service.replies += [closed] * 10
    refused = await server.operator_request(path.format(device=Board().hardware_id))
    assert_error(refused, 503, "UNAVAILABLE", "store")
    assert refused.headers["retry-after"] == "1"
    assert len(service.sent) == 2, "a read is harmless, so it was tried again"


@pytest.mark.parametrize("name", FORMATS)
async def test_an_export_that_breaks_off_does_not_look_whole(
    server: DevicesServer, service: Service, name: str
) -> None:
    """The connection ends without the mark of the end that a whole answer has, also for a client that counts no bytes."""
    board = Board()
    service.replies += [
        answer({"Item": as_stored(device_of(board))}),
        page_of(board),
        closed,
        closed,
    ]
    received = await all_bytes(server, f"/devices/devices/{board.hardware_id}/export?format={name}")
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"transfer-encoding: chunked" in head.lower()
    assert not body.endswith(b"0\r\n\r\n")
    assert [sent.operation for sent in service.sent] == ["GetItem", "Query", "Query", "Query"]
    if name != "parquet":  # whose first rows wait for many more
        assert body.count(board.hardware_id.encode()) >= PAGE


@pytest.mark.parametrize("name", FORMATS)
async def test_an_export_that_is_whole_says_so(
    server: DevicesServer, service: Service, name: str
) -> None:
    board = Board()
    service.replies += [
        answer({"Item": as_stored(device_of(board))}),
        page_of(board),
        answer(NOTHING_MORE),
    ]
    received = await all_bytes(server, f"/devices/devices/{board.hardware_id}/export?format={name}")
    assert received.endswith(b"\r\n0\r\n\r\n")


async def all_bytes(server: DevicesServer, path: str) -> bytes:
    """All that the server sends on a connection of its own, up to the end of it."""
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    asked = f"GET {path} HTTP/1.1\r\nHost: tally\r\nAuthorization: Bearer {ADMIN}\r\nConnection: close\r\n\r\n"
    writer.write(asked.encode())
    received = await reader.read(-1)
    writer.close()
    return received


def device_of(board: Board) -> dict[str, Any]:
    seen = "2026-01-01T00:00:00Z"
    return {
        "hardware_id": board.hardware_id,
        "boot_id": board.boot_id,
        "firmware_version": "1.0.16",
        "confirmation_id": "c",
        "first_registered_at": seen,
        "last_seen_at": seen,
        "last_boot_id": board.boot_id,
        "gsi1pk": "devices",
        "gsi1sk": seen,
        "capabilities": {"sensors": {}, "features": {}},
    }


def page_of(board: Board) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """A page of readings, with more to come."""
    found = [reading_of(board, number) for number in range(PAGE)]
    last = {name: found[-1][name] for name in ("hardware_id", "ts_batch")}
    return answer(
        {
            "Items": [as_stored(item) for item in found],
            "Count": PAGE,
            "ScannedCount": PAGE,
            "LastEvaluatedKey": as_stored(last),
        }
    )


def reading_of(board: Board, number: int) -> dict[str, Any]:
    reading = board.reading(number)
    return {
        "hardware_id": board.hardware_id,
        "boot_id": board.boot_id,
        "firmware_version": "1.0.16",
        "ts_batch": f"{reading['timestamp_ms']:013}#{reading['batch_id']}",
        "timestamp_ms": reading["timestamp_ms"],
        "batch_id": reading["batch_id"],
        "sensors": {"wind": number},
        "sensor_status": {"wind": "ok"},
    }


def as_stored(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item in DynamoDB's words."""
    return {name: _value(value) for name, value in item.items()}


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": value}
    return {"N": str(value)} if isinstance(value, int) else {"M": as_stored(value)}
