"""Deletions of devices and readings: in the background, exactly, audited, and after a crash."""

import asyncio
from pathlib import Path

import pytest

from tally.devices.jobs import DELETION_SCHEDULE
from tally.devices.repository import readings as readings_table
from tally.devices.repository.alarms import AlarmRepository
from tally.devices.repository.deletions import DeviceDeletionRepository
from tally.devices.repository.devices import DEVICES
from tally.devices.repository.rollups import RollupRepository
from tally.kit.tasks import cancel_all
from tally.store.api import Delete
from tally.store.store import Store
from tests.api_response import expect_error
from tests.devices.conftest import StoreTarget
from tests.devices.harness import (
    ADMIN,
    DAY_MS,
    FIRST_MS,
    MINUTE_MS,
    Board,
    DevicesServer,
    Json,
    finish_deletion,
    make_settings,
    open_server,
    wait_until_built,
)
from tests.devices.test_alarms import HOT, new_rule, new_sender

HOUR = 60  # readings


async def request_deletion(server: DevicesServer, path: str) -> Json:
    response = await server.operator_request(path, "DELETE")
    assert response.status == 202, response
    deletion: Json = response.json
    assert (deletion["status"], deletion["deleted_readings"]) == ("pending", 0)
    return deletion


async def delete(server: DevicesServer, path: str) -> Json:
    deletion = await request_deletion(server, path)
    return await finish_deletion(server, deletion["deletion_id"])


async def charted(server: DevicesServer, board: Board) -> list[tuple[int, float, float]]:
    """Return count, minimum and maximum per hour, of which all but the first come from roll-ups."""
    found = await server.get_json(
        f"/devices/{board.hardware_id}/series?sensor=rounds"
        f"&from={FIRST_MS}&to={FIRST_MS + 10 * DAY_MS}&points=240"
    )
    return [(bucket["count"], bucket["min"], bucket["max"]) for bucket in found["buckets"]]


async def send_numbered(server: DevicesServer, board: Board, count: int) -> list[Json]:
    sent = [board.reading(number, sensors={"rounds": number}) for number in range(count)]
    await server.store_readings(board, sent)
    return sent


async def test_deleted_readings_disappear_from_lists_and_charts(
    store_target: StoreTarget,
) -> None:
    """The range is inclusive; a retry of a deleted reading is a duplicate and does not return."""
    async with open_server(await store_target.new_settings()) as server:
        await wait_until_built(server)
        board, other = Board(), Board()
        sent = await send_numbered(server, board, 3 * HOUR)
        await send_numbered(server, other, HOUR)
        path = f"/devices/{board.hardware_id}"
        first, last = FIRST_MS + 30 * MINUTE_MS, FIRST_MS + 149 * MINUTE_MS
        deletion = await delete(server, f"{path}/readings?from={first}&to={last}")
        assert (deletion["deleted_readings"], deletion["kind"]) == (120, "readings")
        assert (deletion["from_ms"], deletion["to_ms"]) == (first, last)
        left = [entry["batch_id"] for entry in sent[:30] + sent[150:]]
        assert [found["batch_id"] for found in await server.readings(board)] == left
        assert await charted(server, board) == [(30, 0, 29), (30, 150, 179)]
        assert sum(count for count, _, _ in await charted(server, other)) == HOUR
        again = await server.post("/data", board.data(sent[40]), key=await server.new_key())
        assert again.json["duplicate_batch_ids"] == [sent[40]["batch_id"]]
        assert len(await server.readings(board)) == 60


async def test_a_deleted_device_leaves_nothing(store_target: StoreTarget) -> None:
    """A board that sends again is a new device."""
    async with open_server(await store_target.new_settings()) as server:
        await wait_until_built(server)
        board, key = Board(), await server.new_key()
        path = f"/devices/{board.hardware_id}"
        confirmation = (await server.post("/register", board.registration(), key=key)).json
        await send_numbered(server, board, 2 * HOUR)
        deletion = await delete(server, path)
        assert (deletion["deleted_readings"], deletion["kind"]) == (120, "device")
        expect_error(await server.operator_request(path), 404, "device_not_found")
        assert (await server.get_json("/devices"))["items"] == []
        again = (await server.post("/register", board.registration(), key=key)).json
        assert again["status"] == "registered"
        assert again["confirmation_id"] != confirmation["confirmation_id"]
        assert await charted(server, board) == []
        assert await server.readings(board) == []


async def test_a_deleted_device_has_no_desired_state_and_no_alarms(
    store_target: StoreTarget,
) -> None:
    """Its open alarms are cleared, silence raises no others, and nothing of it remains."""
    async with open_server(await store_target.new_settings()) as server:
        await wait_until_built(server)
        key = await server.new_key()
        gone, other = await new_sender(server, key), await new_sender(server, key)
        path = f"/devices/{gone.board.hardware_id}"
        await server.operator_request(f"{path}/desired-state", "PUT", {"state": {"led": True}})
        await new_rule(server, HOT, gone, scope={})
        await new_rule(server, {"kind": "silence", "seconds": 60}, gone, scope={})
        await gone.send(31)
        await gone.expect("open")
        await delete(server, path)
        await gone.expect("cleared")
        [alarm] = await gone.alarms()
        assert alarm["history"][-1]["by"] == "device_deleted"
        await server.clock.advance(120)
        await other.expect("open")  # silence: so it was looked for
        await gone.expect("cleared")
        memories = AlarmRepository(server.application.store).memories
        assert await memories([gone.board.hardware_id]) == []
        await server.post("/register", gone.board.registration(), key=key)
        expect_error(
            await server.operator_request(f"{path}/desired-state"), 404, "desired_state_not_found"
        )


async def test_readings_of_a_deleted_device_raise_no_alarm(fresh_server: DevicesServer) -> None:
    """An instance that did not delete it accepts them for some minutes, without a device."""
    server, key = fresh_server, await fresh_server.new_key()
    gone, other = await new_sender(server, key), await new_sender(server, key)
    await gone.send(20)
    deleted = Delete(DEVICES, {"hardware_id": gone.board.hardware_id})
    await server.application.engine.delete(deleted)
    await new_rule(server, HOT, gone, scope={})
    await gone.send(31)
    await other.send(31)
    await other.expect("open")
    assert await gone.states() == []


async def test_charts_stay_exact_if_readings_arrive_while_a_device_is_deleted(
    store_target: StoreTarget,
) -> None:
    """They arrive after the pass over its readings, and before its roll-ups are deleted."""
    async with open_server(await store_target.new_settings()) as server:
        await wait_until_built(server)
        board, key = Board(), await server.new_key()
        await send_numbered(server, board, HOUR - 10)
        deletion_id = (await request_deletion(server, f"/devices/{board.hardware_id}"))[
            "deletion_id"
        ]
        deletions = DeviceDeletionRepository(Store(server.application.engine))
        await deletions.record_readings_deleted(deletion_id, server.clock.seconds())
        await finish_deletion(server, deletion_id)
        late = board.reading(HOUR - 1, sensors={"rounds": 1})
        await server.store_readings(board, [late], key)
        left = await server.readings(board)
        assert [entry["batch_id"] for entry in left] == [late["batch_id"]]
        assert sum(count for count, _, _ in await charted(server, board)) == len(left)


async def test_charts_include_readings_that_arrive_while_roll_ups_are_deleted(
    store_target: StoreTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roll-ups count such a reading, and then they are deleted with those of the others.

    On DynamoDB, the consumer may move meanwhile; the deletion then starts over with this reading.
    """
    async with open_server(await store_target.new_settings()) as server:
        await wait_until_built(server)
        board, key = Board(), await server.new_key()
        await send_numbered(server, board, HOUR - 10)
        late = [board.reading(HOUR - 1, sensors={"rounds": 1})]
        delete_page = RollupRepository.delete_page

        async def delete_after_reading(rollups: RollupRepository, hardware_id: str) -> int:
            if late:
                await server.store_readings(board, [late.pop()], key)
                assert sum(count for count, _, _ in await charted(server, board)) == 1
            return await delete_page(rollups, hardware_id)

        monkeypatch.setattr(RollupRepository, "delete_page", delete_after_reading)
        await delete(server, f"/devices/{board.hardware_id}")
        await server.post("/register", board.registration(), key=key)
        left = len(await server.readings(board))
        assert left in ({1} if store_target.engine == "sqlite" else {0, 1})
        assert [count for count, _, _ in await charted(server, board)] == [1] * left


async def test_a_board_that_sends_data_after_its_deletion_is_a_device_at_once(
    fresh_server: DevicesServer,
) -> None:
    board, key = Board(), await fresh_server.new_key()
    await fresh_server.store_readings(board, board.readings(2), key)
    await delete(fresh_server, f"/devices/{board.hardware_id}")
    await fresh_server.store_readings(board, [board.reading(7)], key)
    assert len(await fresh_server.readings(board)) == 1


async def test_a_deletion_continues_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job stops at any point, and the next instance finishes it."""
    monkeypatch.setattr(readings_table, "MAX_DELETED", 10)
    settings, board = make_settings(data_dir=tmp_path), Board()
    async with open_server(settings) as server:
        await send_numbered(server, board, 5 * HOUR)
        path = f"/devices/{board.hardware_id}/readings?from={FIRST_MS}&to={FIRST_MS + DAY_MS}"
        deletion = await request_deletion(server, path)
        [job] = [job for job in server.application.jobs if job.name == DELETION_SCHEDULE.name]
        running = asyncio.ensure_future(job.run())
        async with asyncio.timeout(60):
            while len(await server.readings(board)) > 4 * HOUR:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await cancel_all({running})
        progress = await server.get_json(f"/deletions/{deletion['deletion_id']}")
        assert progress["status"] == "running"
        assert 0 < progress["deleted_readings"] < 5 * HOUR
    async with open_server(settings) as server:
        finished = await finish_deletion(server, deletion["deletion_id"])
        assert finished["finished_at"] is not None
        assert await server.readings(board) == []
        assert await charted(server, board) == []
        assert (await server.get_json("/deletions"))["items"] == [finished]


async def test_a_deletion_is_audited_when_requested_and_when_done(
    fresh_server: DevicesServer,
) -> None:
    server, board = fresh_server, Board()
    await server.store_readings(board, board.readings(3))
    path = f"/devices/{board.hardware_id}/readings?from=0&to={FIRST_MS + MINUTE_MS}"
    deletion = await delete(server, path)
    records, _ = await server.application.operators.changes(None, 10)
    done, requested = records[:2]
    assert requested.action == "DELETE /devices/devices/{hardware_id}/readings"
    assert done.action == "devices deletion"
    assert done.operator == requested.operator == deletion["requested_by"]
    assert done.outcome == requested.outcome == "succeeded"
    assert done.target == f"readings of {board.hardware_id}"
    assert done.details == {"deletion_id": deletion["deletion_id"], "deleted_readings": 2}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "missing_field"),
        ("?from=5", "missing_field"),
        ("?from=5&to=4", "invalid_field"),
        ("?from=a&to=4", "invalid_field"),
        ("?from=-1&to=4", "invalid_field"),
    ],
)
async def test_an_invalid_range_deletes_nothing(
    server: DevicesServer, key: str, query: str, code: str
) -> None:
    board = Board()
    await server.store_readings(board, board.readings(1), key)
    path = f"/devices/{board.hardware_id}/readings{query}"
    expect_error(await server.operator_request(path, "DELETE"), 400, code)


async def test_only_operators_delete_known_devices(server: DevicesServer, key: str) -> None:
    path = f"/devices/{Board().hardware_id}"
    expect_error(await server.operator_request(path, "DELETE"), 404, "device_not_found")
    expect_error(await server.operator_request(path, "DELETE", token=None), 401, "missing_token")
    headers = {"X-API-Key": key, "Authorization": f"Bearer {ADMIN}x"}
    expect_error(await server.send("DELETE", path, None, headers), 401, "invalid_token")
    unknown = "0b9d1a4e-5f0c-4c8e-9a53-d2f5ed0c7b1e"
    expect_error(await server.operator_request(f"/deletions/{unknown}"), 404, "deletion_not_found")
