"""Webhooks deliver the events of the change log: signed, in order per key, retried and parked."""

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from tally.instance.repository import webhook_records
from tally.instance.repository.consumers import STREAM_CONSUMERS
from tally.instance.repository.webhooks import MAX_WEBHOOKS, WebhookRepository
from tally.instance.webhooks import delivery, runner
from tally.settings import Secret
from tally.store.api import Scan
from tally.store.store import Store
from tests.devices.harness import Board
from tests.instance.conftest import StoreTarget
from tests.instance.webhook_harness import (
    TOKEN,
    WAIT_SECONDS,
    Receiver,
    WebhookServer,
    serving_receiver,
    serving_webhooks,
    webhook_settings,
)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry soon; the back-off itself is the kit's."""
    monkeypatch.setattr(delivery, "INITIAL_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(delivery, "MAX_BACKOFF_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "MAX_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(runner, "RETRY_SECONDS", 0.05)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with serving_receiver() as opened:
        yield opened


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    async with serving_webhooks(webhook_settings(tmp_path)) as opened:
        yield opened


async def test_the_events_of_a_key_arrive_in_order_and_signed(
    store_target: StoreTarget, tmp_path: Path, receiver: Receiver
) -> None:
    """The library of the specification verifies each; only events after the registration count."""
    settings = await store_target.new_settings(
        data_dir=tmp_path,
        backends=("devices",),
        operator_token=Secret(TOKEN),
        webhooks_private_addresses=True,
    )
    one, two = Board(), Board()
    async with serving_webhooks(settings) as server:
        await server.send_readings(one, 0)
        registered = await server.register(receiver.url)
        sent = {
            one.hardware_id: await server.send_readings(one, *range(1, 6)),
            two.hardware_id: await server.send_readings(two, *range(1, 6)),
        }
        accepted = await receiver.until_accepted(10)
    found: dict[str, list[str]] = {board: [] for board in sent}
    for request in accepted:
        request.verify(registered["secret"])
        assert request.content["type"] == "device.reading"
        found[request.content["data"]["hardware_id"]].append(request.batch_id)
    assert found == sent
    assert len({request.headers["webhook-id"] for request in accepted}) == 10


async def test_a_failed_event_blocks_its_key_only_and_keeps_its_id(
    server: WebhookServer, receiver: Receiver
) -> None:
    registered = await server.register(receiver.url)
    failing, healthy = Board(), Board()
    receiver.statuses[failing.hardware_id] = [500, 302, 429]
    sent = await server.send_readings(failing, 1, 2)
    await server.send_readings(healthy, 1)
    await receiver.until_accepted(3)
    requests = [one for one in receiver.requests if failing.hardware_id in one.body.decode()]
    assert [one.batch_id for one in requests] == [sent[0]] * 4 + [sent[1]]
    assert len({one.headers["webhook-id"] for one in requests[:4]}) == 1
    for request in requests:
        request.verify(registered["secret"])
    await server.until_deliveries(registered["webhook"]["webhook_id"], "pending", 0)


async def test_a_delivery_that_fails_for_a_day_is_parked_and_replayed(
    server: WebhookServer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later events of the key continue; an operator sees the error and replays."""
    webhook_id = (await server.register(receiver.url))["webhook"]["webhook_id"]
    board, receiver.status = Board(), 503
    (sent,) = await server.send_readings(board, 1)
    await receiver.until_requests(2)
    (pending,) = await server.until_deliveries(webhook_id, "pending", 1)
    assert (pending["error"], pending["key"]) == ("HTTP status 503", board.hardware_id)
    monkeypatch.setattr(delivery, "PARK_AFTER_MS", 0)
    (parked,) = await server.until_deliveries(webhook_id, "parked", 1)
    assert (parked["error"], parked["next_attempt_at"]) == ("HTTP status 503", None)
    assert parked["message_id"] == pending["message_id"]
    receiver.status = 200
    (later,) = await server.send_readings(board, 2)
    assert [one.batch_id for one in await receiver.until_accepted(1)] == [later]
    path = f"/admin/webhooks/{webhook_id}/replay"
    unknown = await server.request("POST", path, {"ids": [parked["id"], "none"]})
    assert (unknown.status, unknown.json["code"]) == (404, "delivery_not_found")
    response = await server.request("POST", path, {"ids": [parked["id"]]})
    assert response.json == {"replayed": 1}
    assert [one.batch_id for one in await receiver.until_accepted(2)] == [later, sent]
    await server.until_deliveries(webhook_id, "parked", 0)
    assert (await server.request("POST", path, {})).json == {"replayed": 0}


async def test_both_secrets_sign_until_the_old_one_expires(
    server: WebhookServer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()
    registered = await server.register(receiver.url, secret=old)
    assert registered["secret"] == old
    path = f"/admin/webhooks/{registered['webhook']['webhook_id']}/secret"
    new = (await server.request("POST", path, {})).json["secret"]
    await server.send_readings(Board(), 1)
    (request,) = await receiver.until_accepted(1)
    request.verify(old)
    request.verify(new)
    monkeypatch.setattr(webhook_records, "OLD_SECRET_MS", -1)
    newest = (await server.request("POST", path, {"secret": old})).json["secret"]
    await server.send_readings(Board(), 1)
    request = (await receiver.until_accepted(2))[1]
    request.verify(newest)
    with pytest.raises(WebhookVerificationError):
        request.verify(new)


async def test_a_receiver_that_is_gone_disables_its_webhook(
    server: WebhookServer, receiver: Receiver
) -> None:
    """After an operator has enabled it again, the event arrives."""
    webhook_id = (await server.register(receiver.url))["webhook"]["webhook_id"]
    receiver.status = 410
    (sent,) = await server.send_readings(Board(), 1)
    await receiver.until_requests(1)
    path = f"/admin/webhooks/{webhook_id}"
    async with asyncio.timeout(60):
        while (found := (await server.request("GET", path)).json)["is_enabled"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert found["disabled_reason"] == "The receiver answered 410 Gone"
    receiver.status = 200
    enabled = (await server.request("PATCH", path, {"is_enabled": True})).json
    assert (enabled["is_enabled"], enabled["disabled_reason"]) == (True, None)
    assert [one.batch_id for one in await receiver.until_accepted(1)] == [sent]


async def test_a_restart_continues_with_what_was_pending(
    tmp_path: Path, receiver: Receiver
) -> None:
    """Also with what was stored while no instance ran the webhook; secrets are encrypted."""
    settings, receiver.status, board = webhook_settings(tmp_path), 500, Board()
    async with serving_webhooks(settings) as server:
        registered = await server.register(receiver.url)
        sent = await server.send_readings(board, 1, 2)
        await receiver.until_requests(1)
    receiver.status = 200
    async with serving_webhooks(settings) as server:
        sent += await server.send_readings(board, 3)
        accepted = await receiver.until_accepted(3)
    assert [one.batch_id for one in accepted] == sent
    accepted[2].verify(registered["secret"])
    assert registered["secret"].removeprefix("whsec_").encode() not in _all_files(tmp_path)


def _all_files(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


async def test_an_operator_changes_and_deletes_a_webhook(
    server: WebhookServer, receiver: Receiver
) -> None:
    webhook_id = (await server.register(receiver.url))["webhook"]["webhook_id"]
    path = f"/admin/webhooks/{webhook_id}"
    receiver.status = 500
    await server.send_readings(Board(), 1)
    await server.until_deliveries(webhook_id, "pending", 1)
    change = {"is_enabled": False, "description": "paused"}
    changed = (await server.request("PATCH", path, change)).json
    assert (changed["is_enabled"], changed["description"]) == (False, "paused")
    assert (await server.request("GET", "/admin/webhooks")).json["items"] == [changed]
    assert (await server.request("DELETE", path)).status == 204
    for method in ("GET", "DELETE"):
        response = await server.request(method, path)
        assert (response.status, response.json["code"]) == (404, "webhook_not_found")
    records, _ = await server.application.operators.changes(None, 10)
    assert f"DELETE {path}" in [f"{record.action[:6]} {record.target}" for record in records]


async def test_invalid_registrations_are_rejected(
    server: WebhookServer, receiver: Receiver
) -> None:
    for changes, code, text in (
        ({"kinds": ["match.event"]}, "invalid_field", "device.reading"),
        ({"kinds": []}, "invalid_field", "kinds"),
        ({"url": "ftp://example.com"}, "invalid_field", "https"),
        ({"url": "https://user:secret@example.com"}, "invalid_field", "credentials"),
        ({"url": "https://example.com:99999"}, "invalid_field", "url"),
        ({"url": "https://0x7f.1/"}, "invalid_field", "host name"),
        ({"secret": "whsec_c2hvcnQ="}, "invalid_field", "24 to 64 bytes"),
        ({"secret": "not a secret"}, "invalid_field", "whsec_"),
        ({"colour": "red"}, "unknown_field", "colour"),
    ):
        body = {"url": receiver.url, "kinds": ["device.reading"], **changes}
        response = await server.request("POST", "/admin/webhooks", body)
        assert (response.status, response.json["code"]) == (400, code), response
        assert text in response.json["detail"]
        assert "not a secret" not in response.json["detail"]
    for _ in range(MAX_WEBHOOKS):
        await server.register(receiver.url)
    body = {"url": receiver.url, "kinds": ["device.reading"]}
    response = await server.request("POST", "/admin/webhooks", body)
    assert (response.status, response.json["code"]) == (409, "too_many_webhooks")


@pytest.mark.parametrize("length", [27, 1_025, 8_000])
async def test_an_id_that_no_webhook_can_have_is_not_found(
    server: WebhookServer, length: int
) -> None:
    path = f"/admin/webhooks/{'0' * length}"
    for method, target in (
        ("GET", path),
        ("PATCH", path),
        ("DELETE", path),
        ("POST", f"{path}/secret"),
        ("GET", f"{path}/deliveries"),
        ("POST", f"{path}/replay"),
    ):
        response = await server.request(method, target, {} if method in ("PATCH", "POST") else None)
        assert (response.status, response.json["code"]) == (404, "webhook_not_found"), target


async def test_alarms_are_events(server: WebhookServer, receiver: Receiver) -> None:
    """The receiver gets each state of an alarm, in order."""
    await server.register(receiver.url, kinds=["alarm.opened", "alarm.cleared"])
    board = Board()
    rule = {
        "name": "too warm",
        "condition": {
            "kind": "threshold",
            "sensor": "bme280_temp_c",
            "comparison": "above",
            "limit": -40,
        },
        "scope": {"hardware_id": board.hardware_id},
    }
    created = await server.request("POST", "/devices/alarm-rules", rule)
    assert created.status == 201, created
    # The first rule takes effect within a second. Readings of now, because late ones do not count.
    number = 1_000
    async with asyncio.timeout(WAIT_SECONDS):
        while not receiver.accepted:
            await server.send_readings(board, number)
            number += 1
            await asyncio.sleep(0.2)
    (opened,) = receiver.accepted
    assert opened.content["type"] == "alarm.opened"
    assert opened.content["data"]["hardware_id"] == board.hardware_id
    await server.request("DELETE", f"/devices/alarm-rules/{created.json['rule_id']}")
    _, cleared = await receiver.until_accepted(2)
    assert cleared.content["type"] == "alarm.cleared"


async def test_a_header_that_is_not_ascii_is_a_failure_as_any_other(
    server: WebhookServer, receiver: Receiver
) -> None:
    """The attempt is recorded, so that the delivery backs off and is parked after a day."""
    webhook_id = (await server.register(receiver.url))["webhook"]["webhook_id"]
    receiver.status, receiver.headers = 503, {"retry-after": "\u00b2"}
    await server.send_readings(Board(), 1)
    await receiver.until_requests(3)
    (pending,) = await server.until_deliveries(webhook_id, "pending", 1)
    assert pending["error"] == "HTTP status 503"
    assert pending["attempts"] >= 2
    receiver.status = 200
    await receiver.until_accepted(1)
    await server.until_deliveries(webhook_id, "pending", 0)


async def test_a_key_with_many_events_gives_way_to_others(
    server: WebhookServer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MAX_GROUP_SECONDS", 0)
    webhook_id = (await server.register(receiver.url))["webhook"]["webhook_id"]
    busy, other, receiver.status = Board(), Board(), 503
    sent = await server.send_readings(busy, *range(6))
    await server.until_deliveries(webhook_id, "pending", 6)
    receiver.gate.clear()
    receiver.status = 200
    await receiver.until_accepted(1)
    (late,) = await server.send_readings(other, 1)
    await server.until_deliveries(webhook_id, "pending", 7)
    receiver.gate.set()
    accepted = [request.batch_id for request in await receiver.until_accepted(7)]
    assert [batch_id for batch_id in accepted if batch_id != late] == sent
    assert accepted.index(late) < 6, "it does not wait for all events of the busy key"


async def test_a_disabled_webhook_has_no_age_of_its_oldest_event(
    server: WebhookServer, receiver: Receiver
) -> None:
    """Otherwise the last age stays for ever, and so does its alert."""
    webhook_id = (await server.register(receiver.url))["webhook"]["webhook_id"]
    sample, receiver.status = f'oldest_pending_seconds{{webhook="{webhook_id}"}}', 503
    await server.send_readings(Board(), 1)
    async with asyncio.timeout(WAIT_SECONDS):
        while sample not in _metrics(server):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await server.request("PATCH", f"/admin/webhooks/{webhook_id}", {"is_enabled": False})
    async with asyncio.timeout(WAIT_SECONDS):
        while sample in _metrics(server):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_deleted_webhook_leaves_no_consumer(
    server: WebhookServer, receiver: Receiver
) -> None:
    """Neither its position and its lock, nor its lag among the metrics."""
    webhook_id = (await server.register(receiver.url))["webhook"]["webhook_id"]
    lag = f'consumer_lag_seconds{{consumer="webhook-{webhook_id}'
    await server.send_readings(Board(), 1)
    await receiver.until_accepted(1)
    assert lag in _metrics(server)
    await server.request("DELETE", f"/admin/webhooks/{webhook_id}")
    engine = server.application.engine
    assert webhook_id not in f"{(await engine.scan(Scan(STREAM_CONSUMERS))).items}"
    async with asyncio.timeout(WAIT_SECONDS):
        while lag in _metrics(server):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _metrics(server: WebhookServer) -> str:
    return server.application.metrics.render().decode()


async def test_a_receiver_that_is_gone_does_not_disable_a_changed_webhook(
    server: WebhookServer, receiver: Receiver
) -> None:
    """Another instance may still have the old URL, whose receiver answers 410."""
    webhook_id = (await server.register(receiver.url))["webhook"]["webhook_id"]
    webhooks = WebhookRepository(Store(server.application.engine))
    old = await webhooks.get(webhook_id)
    assert old is not None
    path = f"/admin/webhooks/{webhook_id}"
    changed = await server.request("PATCH", path, {"url": f"{receiver.url}?new=1"})
    await webhooks.disable(old, "The receiver answered 410 Gone")
    assert (await server.request("GET", path)).json == changed.json
    assert changed.json["is_enabled"]
