"""Keys that are bound to boards or a group, and claims, with which boards obtain their keys."""

import pytest

from tally.devices.repository.devices import DEVICES
from tally.devices.service.claims import ADDRESS_BURST
from tally.store.api import Update
from tally.store.expressions import F
from tests.api_response import ApiResponse, expect_error
from tests.devices.conftest import StoreTarget
from tests.devices.harness import Board, DevicesServer, Json, gather, open_server


async def new_code(server: DevicesServer, **body: object) -> str:
    response = await server.operator_request("/claims", "POST", body)
    assert response.status == 201, response
    assert response.headers["cache-control"] == "no-store"
    return str(response.json["code"])


async def claim(server: DevicesServer, code: str, board: Board) -> ApiResponse:
    return await server.post("/claim", {"code": code, "hardware_id": board.hardware_id})


async def new_bound_key(server: DevicesServer, **body: object) -> str:
    response = await server.operator_request("/api-keys", "POST", body)
    assert response.status == 201, response
    assert {name: response.json[name] for name in body} == body
    return str(response.json["api_key"])


async def check_access(server: DevicesServer, key: str, board: Board, *, is_allowed: bool) -> None:
    for path, content in (
        ("/register", board.registration()),
        ("/data", board.data(board.reading())),
    ):
        response = await server.post(path, content, key=key)
        if is_allowed:
            assert response.status == 200, response
        else:
            expect_error(response, 403, "key_not_for_board", board.hardware_id)


async def test_a_key_of_some_boards_is_refused_for_others(server: DevicesServer) -> None:
    """Nothing of the request is stored."""
    boards, other = [Board(), Board()], Board()
    key = await new_bound_key(server, hardware_ids=[board.hardware_id for board in boards])
    for board in boards:
        await check_access(server, key, board, is_allowed=True)
    await check_access(server, key, other, is_allowed=False)
    expect_error(
        await server.operator_request(f"/devices/{other.hardware_id}"), 404, "device_not_found"
    )
    listed = (await server.get_json("/api-keys?limit=1000"))["items"]
    assert [board.hardware_id for board in boards] in [found["hardware_ids"] for found in listed]


async def test_a_key_of_a_group_is_for_the_boards_in_it(server: DevicesServer, key: str) -> None:
    board, other = Board(), Board()
    group_key = await new_bound_key(server, group="greenhouse")
    for each in (board, other):
        await server.post("/register", each.registration(), key=key)
    await check_access(server, group_key, board, is_allowed=False)
    for each, group in ((board, "greenhouse"), (other, "cellar")):
        await server.application.engine.update(
            Update(DEVICES, {"hardware_id": each.hardware_id}, (F("group").set(group),))
        )
    await check_access(server, group_key, board, is_allowed=True)
    await check_access(server, group_key, other, is_allowed=False)
    await check_access(server, group_key, Board(), is_allowed=False)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"hardware_ids": []}, "hardware_ids"),
        ({"hardware_ids": ["aa:bb"]}, "hardware_id"),
        ({"hardware_ids": [Board().hardware_id for _ in range(101)]}, "hardware_ids"),
        ({"group": ""}, "group"),
        ({"group": "a b"}, "group"),  # no board can be in it
        ({"group": "a", "hardware_ids": [Board().hardware_id]}, "group"),
    ],
)
async def test_an_invalid_scope_is_rejected(server: DevicesServer, body: Json, field: str) -> None:
    response = await server.operator_request("/api-keys", "POST", body)
    expect_error(response, 400, "invalid_field")
    assert response.json["field"].startswith(field)


async def test_a_board_exchanges_a_code_once_for_its_own_key(fresh_server: DevicesServer) -> None:
    """In any notation; the key is listed, and of no use to other boards."""
    server, board, other = fresh_server, Board(), Board()
    code = await new_code(server, description="roof")
    response = await claim(server, f" {code.lower().replace('-', '')} ", board)
    assert response.status == 201, response
    assert response.json["hardware_ids"] == [board.hardware_id]
    assert response.headers["cache-control"] == "no-store"
    key = response.json["api_key"]
    await check_access(server, key, board, is_allowed=True)
    await check_access(server, key, other, is_allowed=False)
    for again in (board, other):
        expect_error(await claim(server, code, again), 403, "invalid_claim")
    [listed] = (await server.get_json("/api-keys"))["items"]
    assert listed["key_id"] == response.json["key_id"]
    assert (await server.operator_request(f"/api-keys/{listed['key_id']}", "DELETE")).status == 204
    await server.clock.advance(5)
    expect_error(await server.post("/register", board.registration(), key=key), 401, "key_revoked")


async def test_of_concurrent_claims_one_succeeds(fresh_server: DevicesServer) -> None:
    code = await new_code(fresh_server)
    responses = await gather(*(claim(fresh_server, code, Board()) for _ in range(5)))
    assert sorted(response.status for response in responses) == [201, 403, 403, 403, 403]
    assert len((await fresh_server.get_json("/api-keys"))["items"]) == 1


async def test_a_code_expires_and_may_be_for_one_board(fresh_server: DevicesServer) -> None:
    board = Board()
    expired = await new_code(fresh_server, expires_in_seconds=60)
    bound = await new_code(fresh_server, hardware_id=board.hardware_id)
    await fresh_server.clock.advance(61)
    expect_error(await claim(fresh_server, expired, board), 403, "invalid_claim")
    expect_error(await claim(fresh_server, bound, Board()), 403, "invalid_claim")
    assert (await claim(fresh_server, bound, board)).status == 201


async def test_only_operators_create_codes(server: DevicesServer, key: str) -> None:
    expect_error(await server.operator_request("/claims", "POST", {}, None), 401, "missing_token")
    expect_error(await server.post("/claims", {}, key=key), 401, "missing_token")


async def test_guesses_are_throttled_on_all_instances_together(
    store_target: StoreTarget,
) -> None:
    settings = await store_target.new_settings()
    async with open_server(settings) as first, open_server(settings) as second:
        board = Board()
        statuses = [
            (await claim((first, second)[number % 2], "AAAAA-AAAAA", board)).status
            for number in range(2 * ADDRESS_BURST)
        ]
        assert set(statuses) == {403, 429}
        # Each instance may grant a tenth by itself.
        assert ADDRESS_BURST <= statuses.count(403) <= ADDRESS_BURST + 2 * (ADDRESS_BURST // 10)
        throttled = await claim(first, "AAAAA-AAAAA", board)
        expect_error(throttled, 429, "rate_limit_exceeded")
        assert int(throttled.headers["retry-after"]) > 0
        for server in (first, second):
            await server.clock.advance(60)
        assert (await claim(first, await new_code(first), board)).status == 201


async def test_a_claimed_key_has_the_description_of_its_code(server: DevicesServer) -> None:
    board, other = Board(), Board()
    described = await claim(server, await new_code(server, description="roof"), board)
    assert described.json["description"] == "roof"
    plain = await claim(server, await new_code(server), other)
    assert plain.json["description"] == f"claimed by {other.hardware_id}"
