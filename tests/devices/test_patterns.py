"""The declared access patterns match the seed and what the routes do."""

import asyncio

import msgspec
import pytest

from tally.devices.repository.rollups import DEVICE_ROLLUPS, RollupRepository
from tally.devices.service.claims import ADDRESS_BURST
from tally.devices.service.rate_limits import FREE_SHARE
from tally.kit.ids import new_uuid
from tally.store.api import Put
from tally.store.report import PatternRow
from tests.api_response import expect_error
from tests.devices.conftest import StoreTarget
from tests.devices.fleet_calls import call_fleet_routes
from tests.devices.harness import (
    ADMIN,
    DAY_MS,
    FIRST_MS,
    START_MS,
    Board,
    DevicesServer,
    Json,
    finish_deletion,
    open_server,
    wait_until_built,
)
from tests.seed_patterns import (
    SeedAccess,
    check_descriptions,
    check_usage,
    matching_patterns,
    read_patterns,
)

# In the order of the seed: query, idempotency and update patterns of each table.
SEED = {
    "devices: register": SeedAccess(
        "devices", "UpdateItem (conditional)", None, ("hardware_id = ",)
    ),
    "devices: detail": SeedAccess("devices", "GetItem", None, ("hardware_id",)),
    "devices: last seen": SeedAccess(
        "devices", "UpdateItem (conditional)", None, ("hardware_id", "last_seen_at")
    ),
    "devices: listing by activity": SeedAccess(
        "devices", "Query (GSI)", "gsi1", ("gsi1pk = devices", "descending")
    ),
    "devices: friendly name": SeedAccess(
        "devices", "UpdateItem (conditional)", None, ("attribute_exists(hardware_id)",)
    ),
    "readings: latest": SeedAccess(
        "device_readings", "Query", None, ("hardware_id = :", "descending", "Limit 1")
    ),
    "readings: time range": SeedAccess(
        "device_readings", "Query", None, ("hardware_id = :", "ts_batch BETWEEN {from}# AND {to}#")
    ),
    "batches: idempotency": SeedAccess(
        "device_readings",
        "TransactWriteItems with processed_batches",
        None,
        ("attribute_not_exists(batch_id)",),
    ),
    "keys: create": SeedAccess("api_keys", "PutItem (conditional)", None, ("key_id",)),
    "keys: look up by hash": SeedAccess(
        "api_keys", "Query (GSI)", "api_key_hash_index", ("api_key_hash = :hash",)
    ),
    "keys: listing by creation": SeedAccess(
        "api_keys", "Query (GSI)", "gsi1", ("gsi1pk = api_keys", "descending")
    ),
    "keys: last used": SeedAccess("api_keys", "UpdateItem (conditional)", None, ("last_used_at",)),
    "keys: revoke": SeedAccess(
        "api_keys", "UpdateItem (conditional)", None, ("attribute_exists(key_id)",)
    ),
}


@pytest.fixture(scope="module")
def printed() -> list[PatternRow]:
    return read_patterns("devices")


@pytest.mark.parametrize("name", SEED)
def test_every_access_of_the_seed_is_a_declared_pattern(
    printed: list[PatternRow], name: str
) -> None:
    assert matching_patterns(printed, SEED[name]), f"{name}: {SEED[name]}"


def test_patterns_are_described_and_never_scan(printed: list[PatternRow]) -> None:
    assert len(printed) == 79
    check_descriptions("devices", printed)


def plain_requests(board: Board, key_id: str) -> list[tuple[str, str, str, Json | None]]:
    """Return method, route, path and body of requests in their order."""
    device = f"/devices/{board.hardware_id}"
    return [
        ("GET", "/health", "/health", None),
        ("POST", "/register", "/register", board.registration()),
        ("POST", "/data", "/data", board.data(*board.readings(3))),
        ("POST", "/api-keys", "/api-keys", {}),
        ("GET", "/api-keys", "/api-keys", None),
        ("GET", "/devices", "/devices", None),
        ("GET", "/devices/{hardware_id}", device, None),
        ("PATCH", "/devices/{hardware_id}", device, {"friendly_name": "x"}),
        ("GET", "/devices/{hardware_id}/latest", f"{device}/latest", None),
        ("GET", "/devices/{hardware_id}/readings", f"{device}/readings", None),
        (
            "GET",
            "/devices/{hardware_id}/series",
            f"{device}/series?sensor=humidity_pct&from={FIRST_MS}&to={FIRST_MS + 9}",
            None,
        ),
        (
            "GET",
            "/devices/{hardware_id}/series",
            f"{device}/series?sensor=humidity_pct&from={FIRST_MS}&to={START_MS}&points=3",
            None,
        ),
        ("GET", "/devices/{hardware_id}/export", f"{device}/export", None),
        ("DELETE", "/api-keys/{key_id}", f"/api-keys/{key_id}", None),
        ("POST", "/api-keys", "/api-keys", {"group": "greenhouse"}),
        ("GET", "/deletions", "/deletions", None),
    ]


async def call_all_routes(server: DevicesServer) -> set[tuple[str, str]]:
    """Send a request to every route; return the routes that responded."""
    await wait_until_built(server)  # so that the stream delivers every reading
    key = await server.new_key()
    board = Board()
    device = f"/devices/{board.hardware_id}"
    headers = {
        "X-API-Key": key,
        "Authorization": f"Bearer {ADMIN}",
        "Content-Type": "application/json",
    }
    key_id = (await server.get_json("/api-keys"))["items"][0]["key_id"]
    responded = set()
    group_key = ""
    for method, route, path, content in plain_requests(board, key_id):
        response = await server.send(
            method, path, None if content is None else msgspec.json.encode(content), headers
        )
        assert response.status in (200, 201, 204), response
        responded.add((method, route))
        if route == "/api-keys" and content:
            group_key = response.json["api_key"]
    refused = await server.post("/register", board.registration(), key=group_key)
    expect_error(refused, 403, "key_not_for_board")
    stream = await server.send("HEAD", f"{device}/stream", None, headers)
    assert stream.status == 200
    await let_time_pass(server, board)
    responded |= await claim_key(server)
    responded |= await delete_devices(server, board)
    return responded | {("GET", "/devices/{hardware_id}/stream")}


async def let_time_pass(server: DevicesServer, board: Board) -> None:
    """Rebuild roll-ups, and let the intervals of updates and the retention pass."""
    device = f"/devices/{board.hardware_id}"
    rollups = RollupRepository(server.application.store)
    await wait_until_read(server, "calls")
    assert await rollups.request_rebuild()
    await wait_until_built(server)
    # Five minutes later, last_seen_at and last_used_at are updated.
    await server.clock.advance(301)
    await server.store_readings(board, [board.reading(9)])
    await wait_until_read(server, "items")
    # When the readings may have expired, their roll-ups are left.
    await server.clock.advance(2 * DAY_MS / 1000)
    days = f"from={FIRST_MS}&to={FIRST_MS + 10 * DAY_MS}&points=3"
    await server.get_json(f"{device}/series?sensor=humidity_pct&{days}")


async def claim_key(server: DevicesServer) -> set[tuple[str, str]]:
    created = await server.operator_request("/claims", "POST", {})
    claim = {"code": created.json["code"], "hardware_id": Board().hardware_id}
    assert (await server.post("/claim", claim)).status == 201
    for _ in range(ADDRESS_BURST // FREE_SHARE):  # so many need no lease
        expect_error(await server.post("/claim", claim), 403, "invalid_claim")
    return {("POST", "/claims"), ("POST", "/claim")}


async def delete_devices(server: DevicesServer, board: Board) -> set[tuple[str, str]]:
    """Delete a board with a clock that is ahead, and what it sent."""
    now = server.clock.milliseconds()
    await server.store_readings(
        board,
        [board.reading(batch_id=new_uuid(), timestamp_ms=now + days * DAY_MS) for days in (0, 2)],
    )
    await server.clock.advance(2 * DAY_MS / 1000)
    assert (await server.get_json(f"/devices/{board.hardware_id}/latest"))["clock_ahead"] is False
    await add_expired_rollup(server, board)
    path = f"/devices/{board.hardware_id}"
    for deleted in (f"{path}/readings?from={FIRST_MS}&to={FIRST_MS}", path):
        response = await server.operator_request(deleted, "DELETE")
        assert response.status == 202, response
        await finish_deletion(server, response.json["deletion_id"])
    assert len((await server.get_json("/deletions"))["items"]) == 2
    return {
        ("DELETE", "/devices/{hardware_id}"),
        ("DELETE", "/devices/{hardware_id}/readings"),
        ("GET", "/deletions/{deletion_id}"),
    }


async def add_expired_rollup(server: DevicesServer, board: Board) -> None:
    """Store a roll-up whose readings have expired."""
    rollup = {"humidity_pct": [1, "5", 5, 5, FIRST_MS, 5, FIRST_MS, 5]}
    bucket = f"day#{FIRST_MS - 400 * DAY_MS:013}"
    item = {"hardware_id": board.hardware_id, "bucket": bucket, "sensors": rollup}
    await server.application.engine.put(Put(DEVICE_ROLLUPS, item))


async def wait_until_read(server: DevicesServer, figure: str) -> None:
    """Wait until the stream has delivered readings to the roll-ups."""
    async with asyncio.timeout(60):
        while not (await server.patterns())["Get roll-ups by key"][figure]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_every_declared_pattern_is_used(store_target: StoreTarget) -> None:
    """All routes together use every operation of every pattern, and no other."""
    settings = await store_target.new_settings(devices_retention_days=31)
    async with open_server(settings) as server:
        responded = await call_all_routes(server)
        responded |= await call_fleet_routes(server, Board(), await server.new_key())
        [api] = [api for api in server.application.apis if api.name == "devices"]
        assert responded == {(operation.method, operation.path) for operation in api.endpoints}
        check_usage(await server.patterns())
