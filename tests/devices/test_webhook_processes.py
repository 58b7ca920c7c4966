"""Webhooks of two processes on one data directory: a kill loses no event and keeps the order."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from pyreqwest.client import Client, ClientBuilder

from tests.devices.harness import ADMIN
from tests.devices.processes import RetryingBoard, ServerProcess, serve, stored_batch_ids
from tests.instance.webhook_harness import Receiver, serving_receiver

DEADLINE_SECONDS = 200.0
SETTINGS = {"TALLY_WEBHOOKS_PRIVATE_ADDRESSES": "yes"}


async def _post(client: Client, url: str, body: object) -> dict[str, object]:
    request = client.post(url).bearer_auth(ADMIN).body_json(body)
    response = await request.build().send()
    content = await response.bytes()
    assert response.status == 201, bytes(content)
    found: dict[str, object] = msgspec.json.decode(bytes(content))
    return found


@pytest.mark.judge  # two starts and the time-out of a lock; test_webhooks has a restart
async def test_a_killed_process_loses_no_event_of_a_webhook(tmp_path: Path) -> None:
    """The first arrivals of a device are in the order of its batches, whichever process sends."""
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        serving_receiver() as receiver,
        serve(tmp_path, settings=SETTINGS) as one,
        ClientBuilder().no_proxy().build() as client,
    ):
        key = str((await _post(client, f"{one.url}/devices/api-keys", {}))["api_key"])
        webhook = {"url": receiver.url, "kinds": ["device.reading"]}
        await _post(client, f"{one.url}/admin/webhooks", webhook)
        boards = [RetryingBoard(client, key, batches=2) for _ in range(2)]
        async with serve(tmp_path, settings=SETTINGS) as two:
            sending = [asyncio.create_task(_send([one, two], board)) for board in boards]
            await receiver.until_accepted(3)
            one.kill()
            await asyncio.gather(*sending)
            expected = {
                board.board.hardware_id: set(await stored_batch_ids(client, two, board.board))
                for board in boards
            }
            await _until_received(receiver, set().union(*expected.values()))
    for board in boards:
        arrived = _first_arrivals(receiver, board.board.hardware_id)
        assert set(arrived) == expected[board.board.hardware_id]
        assert arrived == sorted(arrived, key=_end_of_window)


async def _send(servers: list[ServerProcess], board: RetryingBoard) -> None:
    await board.run(servers, asyncio.Queue())


async def _until_received(receiver: Receiver, batch_ids: set[str]) -> None:
    while not batch_ids <= {one.batch_id for one in receiver.accepted}:
        await receiver.until_accepted(len(receiver.accepted) + 1)


def _first_arrivals(receiver: Receiver, hardware_id: str) -> list[str]:
    found = [one.batch_id for one in receiver.accepted]
    return [each for each in dict.fromkeys(found) if each.startswith(hardware_id)]


def _end_of_window(batch_id: str) -> int:
    return int(batch_id.rpartition("_")[2])
