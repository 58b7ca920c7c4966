"""While the store is unavailable, reads fail with 503 and exports end visibly incomplete."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from tally.devices.api.schemas.exports import FORMATS
from tally.store import dynamodb
from tally.store.dynamodb import DynamoDBRetryPolicy, open_dynamodb
from tests.api_response import expect_error
from tests.devices.harness import ADMIN, Board, DevicesServer, make_settings, open_server
from tests.store.fake_dynamodb import Service, closed, fake_dynamodb, response

PAGE = 500  # the page size of an export
SENSORS = "device_sensors"
LAST_PAGE: dict[str, Any] = {"Items": [], "Count": 0, "ScannedCount": 0}


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Service]:
    """A fake DynamoDB service, and a store with a short retry policy."""
    retry_policy = DynamoDBRetryPolicy(attempts=2, initial_backoff=0.001)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "tally")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "tally-secret")
        patch.setattr(dynamodb, "open_dynamodb", partial(open_dynamodb, retry_policy=retry_policy))
        async with fake_dynamodb() as service:
            service.serves_instance = True
            service.table_replies[SENSORS] = response(LAST_PAGE)
            yield service


@pytest.fixture(scope="module")
async def server(
    shared: Service, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DevicesServer]:
    folder = tmp_path_factory.mktemp("unavailable")
    async with open_server(
        make_settings(data_dir=folder, store_engine="dynamodb", dynamodb_endpoint=shared.url)
    ) as server:
        yield server


@pytest.fixture
def service(shared: Service) -> Service:
    """The service without recorded requests."""
    shared.reset_state()
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
async def test_reads_fail_with_503_while_the_service_is_unavailable(
    server: DevicesServer, service: Service, path: str
) -> None:
    service.replies += [closed] * 10
    response = await server.operator_request(path.format(device=Board().hardware_id))
    expect_error(response, 503, "unavailable", "store")
    assert response.headers["retry-after"] == "1"
    assert len(service.sent) == 2, "reads are retried"


async def test_a_change_that_cannot_be_audited_is_not_made(
    server: DevicesServer, service: Service
) -> None:
    service.replies += [closed] * 10
    refused = await server.operator_request("/api-keys", "POST", {})
    expect_error(refused, 503, "unavailable")
    assert {sent.body["TableName"] for sent in service.sent} == {"tally-operator-audit"}


async def test_a_change_whose_outcome_cannot_be_recorded_is_made_and_logged(
    server: DevicesServer, service: Service, log: io.StringIO
) -> None:
    """Its record keeps the outcome `started`."""
    service.replies += [response({}), response({}), closed]
    assert (await server.operator_request("/api-keys", "POST", {})).status == 201
    assert [sent.body["TableName"] for sent in service.sent] == [
        "tally-operator-audit",
        "api_keys",
        "tally-operator-audit",
    ]
    assert "operator_audit_failed" in log.getvalue()


@pytest.mark.parametrize("name", FORMATS)
async def test_an_interrupted_export_is_visibly_incomplete(
    server: DevicesServer, service: Service, name: str
) -> None:
    """The connection closes without the final chunk."""
    board = Board()
    service.replies += [
        response({"Item": encode_item(device_item(board))}),
        readings_page(board),
        closed,
        closed,
    ]
    received = await all_bytes(server, f"/devices/devices/{board.hardware_id}/export?format={name}")
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"transfer-encoding: chunked" in head.lower()
    assert not body.endswith(b"0\r\n\r\n")
    operations = [sent.operation for sent in service.sent if sent.body["TableName"] != SENSORS]
    assert operations == ["GetItem", "Query", "Query", "Query"]
    if name != "parquet":  # its first row group is not complete yet
        assert body.count(board.hardware_id.encode()) >= PAGE


@pytest.mark.parametrize("name", FORMATS)
async def test_a_complete_export_ends_with_the_final_chunk(
    server: DevicesServer, service: Service, name: str
) -> None:
    board = Board()
    service.replies += [
        response({"Item": encode_item(device_item(board))}),
        readings_page(board),
        response(LAST_PAGE),
    ]
    received = await all_bytes(server, f"/devices/devices/{board.hardware_id}/export?format={name}")
    assert received.endswith(b"\r\n0\r\n\r\n")


async def all_bytes(server: DevicesServer, path: str) -> bytes:
    """Return everything that the server sends on a new connection."""
    address = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    request = (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(request.encode())
    received = await reader.read(-1)
    writer.close()
    return received


def device_item(board: Board) -> dict[str, Any]:
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


def readings_page(board: Board) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """Build a page of readings with a next page."""
    found = [reading_item(board, number) for number in range(PAGE)]
    last = {name: found[-1][name] for name in ("hardware_id", "ts_batch")}
    return response(
        {
            "Items": [encode_item(item) for item in found],
            "Count": PAGE,
            "ScannedCount": PAGE,
            "LastEvaluatedKey": encode_item(last),
        }
    )


def reading_item(board: Board, number: int) -> dict[str, Any]:
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


def encode_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Encode an item in DynamoDB's JSON."""
    return {name: _encode_value(value) for name, value in item.items()}


def _encode_value(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": value}
    return {"N": str(value)} if isinstance(value, int) else {"M": encode_item(value)}
