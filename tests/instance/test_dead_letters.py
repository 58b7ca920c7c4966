"""Operators list, retry and discard the changes that a consumer could not handle."""

from pathlib import Path
from typing import Any

import pytest

from tally.instance import consumers
from tally.instance.repository.webhook_deliveries import DeliveryRepository
from tally.instance.repository.webhook_records import QueuedDelivery
from tally.kit.retry import RetryPolicy
from tests.devices.harness import Board
from tests.embedded.harness import wait_until
from tests.instance.webhook_harness import serving_receiver, serving_webhooks, webhook_settings


async def test_dead_letters_are_listed_retried_and_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retried change is delivered, and the other one is never."""
    enqueue, rejected, is_broken = DeliveryRepository.enqueue, list[str](), True

    async def reject(self: DeliveryRepository, delivery: QueuedDelivery) -> None:
        if is_broken:
            rejected.append(delivery.key)
            raise ValueError("the queue is broken")
        await enqueue(self, delivery)

    monkeypatch.setattr(DeliveryRepository, "enqueue", reject)
    monkeypatch.setattr(consumers.HandlerRetries, "policy", _one_attempt)
    async with (
        serving_receiver() as receiver,
        serving_webhooks(webhook_settings(tmp_path)) as server,
    ):
        webhook_id = (await server.register(receiver.url))["webhook"]["webhook_id"]
        board = Board()
        await server.send_readings(board, 1)
        retried = (await server.send_readings(board, 2))[0]
        await wait_until(lambda: len(rejected) == 2)
        consumer = f"webhook-{webhook_id}-devices"
        assert (await server.request("GET", "/admin/consumers")).json == {"items": [consumer]}
        path = f"/admin/consumers/{consumer}/dead-letters"
        letters = list[Any]()
        while len(letters) < 2:
            letters = (await server.request("GET", path)).json["items"]
        assert [letter["error"] for letter in letters] == ["ValueError: the queue is broken"] * 2
        assert letters[0]["key"]["hardware_id"] == board.hardware_id
        first, second = (letter["id"] for letter in letters)
        failed = (await server.request("POST", f"{path}/retry", {"ids": [second]})).json
        assert failed["handled"] == []
        assert failed["failed"] == [{"id": second, "error": "ValueError: the queue is broken"}]
        is_broken = False
        handled = await server.request("POST", f"{path}/retry", {"ids": [second]})
        assert handled.json == {"handled": [second], "failed": []}
        discarded = await server.request("POST", f"{path}/discard", {"ids": [first]})
        assert discarded.json == {"discarded": 1}
        assert (await server.request("GET", path)).json == {"items": []}
        gone = await server.request("POST", f"{path}/retry", {"ids": [first]})
        assert (gone.status, gone.json["code"]) == (404, "dead_letter_not_found")
        missing = await server.request("GET", "/admin/consumers/none/dead-letters")
        assert (missing.status, missing.json["code"]) == (404, "consumer_not_found")
        assert [one.batch_id for one in await receiver.until_accepted(1)] == [retried]


def _one_attempt(self: consumers.HandlerRetries) -> object:
    return RetryPolicy(attempts=1)
