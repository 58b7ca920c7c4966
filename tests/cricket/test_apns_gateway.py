"""The APNs gateway: the requests it sends, and the outcome of each response."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tally.cricket.apns.gateway import ApnsGateway, open_apns
from tally.cricket.apns.requests import classify
from tally.cricket.model.payloads import Alert, notification_payload
from tally.cricket.model.push import (
    NOT_CONFIGURED,
    BroadcastChannel,
    Push,
    PushOutcome,
    PushResult,
)
from tally.cricket.service.ports import PushGateway
from tally.errors import Conflict, Unavailable
from tally.kit.clock import ManualClock, SystemClock
from tally.kit.metrics import Metrics
from tally.settings import Secret, Settings, SettingsError
from tally.sim.apns.devices import TokenKind
from tally.sim.apns.faults import PushFault
from tests.cricket.apns_harness import (
    FAST_RETRIES,
    ApnsHarness,
    send_all,
    update_push,
)

PAYLOAD = b'{"aps":{"timestamp":1,"event":"update","content-state":{}}}'
APNS_ID = "123e4567-e89b-42d3-a456-426614174000"


async def test_a_live_activity_push_has_the_required_headers(apns: ApnsHarness) -> None:
    """Path, topic, type, priority, expiration, id and body."""
    token = apns.token()
    result = await apns.gateway.send(
        Push(token=token, payload=PAYLOAD, priority=5, expiration=1_900_000_000, apns_id=APNS_ID)
    )
    assert result == PushResult(PushOutcome.DELIVERED, 200, "", APNS_ID)
    entry = apns.simulator.log.for_target(token)[0]
    assert (entry.method, entry.path) == ("POST", f"/3/device/{token}")
    assert entry.topic == f"{apns.simulator.bundle_id}.push-type.liveactivity"
    assert (entry.push_type, entry.priority, entry.expiration, entry.apns_id) == (
        "liveactivity",
        "5",
        "1900000000",
        APNS_ID,
    )
    assert entry.payload == PAYLOAD


async def test_an_alert_uses_the_topic_of_the_app(apns: ApnsHarness) -> None:
    token = apns.token(TokenKind.DEVICE)
    push = Push(
        token=token,
        payload=notification_payload(Alert("Toss", "India bat")),
        push_type="alert",
        collapse_id="toss-7",
    )
    assert (await apns.gateway.send(push)).is_delivered
    entry = apns.simulator.log.for_target(token)[0]
    assert (entry.topic, entry.push_type, entry.collapse_id) == (
        apns.simulator.bundle_id,
        "alert",
        "toss-7",
    )


RESPONSES = [
    (400, "BadDeviceToken", PushOutcome.TOKEN_INVALID),
    (400, "DeviceTokenNotForTopic", PushOutcome.TOKEN_INVALID),
    (410, "Unregistered", PushOutcome.TOKEN_INVALID),
    (410, "ExpiredToken", PushOutcome.TOKEN_INVALID),
    (429, "TooManyRequests", PushOutcome.RETRY),
    (429, "TooManyProviderTokenUpdates", PushOutcome.RETRY),
    (403, "ExpiredProviderToken", PushOutcome.RETRY),
    (500, "InternalServerError", PushOutcome.RETRY),
    (502, "", PushOutcome.RETRY),
    (503, "ServiceUnavailable", PushOutcome.RETRY),
    (503, "Shutdown", PushOutcome.RETRY),
    (400, "BadTopic", PushOutcome.REJECTED),
    (400, "TopicDisallowed", PushOutcome.REJECTED),
    (400, "MissingTopic", PushOutcome.REJECTED),
    (400, "PayloadEmpty", PushOutcome.REJECTED),
    (400, "BadExpirationDate", PushOutcome.REJECTED),
    (400, "BadPriority", PushOutcome.REJECTED),
    (400, "InvalidPushType", PushOutcome.REJECTED),
    (400, "SomethingNew", PushOutcome.REJECTED),
    (403, "InvalidProviderToken", PushOutcome.REJECTED),
    (403, "Forbidden", PushOutcome.REJECTED),
    (404, "BadPath", PushOutcome.REJECTED),
    (405, "MethodNotAllowed", PushOutcome.REJECTED),
    (413, "PayloadTooLarge", PushOutcome.REJECTED),
]


@pytest.mark.parametrize(("status", "reason", "outcome"), RESPONSES)
async def test_each_response_maps_to_an_outcome(
    apns: ApnsHarness, status: int, reason: str, outcome: PushOutcome
) -> None:
    """Transient failures are retried as often as the policy allows; final ones are not."""
    token = apns.token()
    apns.simulator.faults.add(PushFault(token=token, status=status, reason=reason, times=None))
    result = await apns.gateway.send(update_push(token))
    attempts = 6 if outcome is PushOutcome.RETRY else 1
    assert (result.outcome, result.status, result.reason, result.attempts) == (
        outcome,
        status,
        reason,
        attempts,
    )
    assert len(apns.simulator.log.for_target(token)) == attempts
    assert classify(status, reason) is outcome


async def test_a_410_carries_the_time_since_when_the_token_is_invalid(apns: ApnsHarness) -> None:
    """A later registration of the token stays valid."""
    token = apns.token()
    apns.simulator.devices.retire(token)
    result = await apns.gateway.send(update_push(token))
    assert (result.outcome, result.reason) == (PushOutcome.TOKEN_INVALID, "Unregistered")
    assert result.invalid_since_ms == apns.simulator.devices.tokens[token].retired_at_ms


@pytest.mark.parametrize(
    "token", ["../4/broadcasts", "ab/cd", "a b", "é" * 64, "", "ab?x=1", "ab#"]
)
async def test_a_malformed_token_is_invalid(apns: ApnsHarness, token: str) -> None:
    """No other path of APNs is ever requested, regardless of the registered token."""
    assert (await apns.gateway.send(update_push(token))).outcome is PushOutcome.TOKEN_INVALID
    assert [entry.path for entry in apns.simulator.log.entries] == ["/3/device/0"]


async def test_rejections_are_logged_once_a_minute_without_the_token(apns: ApnsHarness) -> None:
    tokens = apns.tokens(5)
    apns.simulator.faults.add(PushFault(status=400, reason="BadCollapseId", times=None))
    with capture_logs() as lines:
        results = await send_all(apns.gateway, [update_push(token) for token in tokens])
    assert {result.outcome for _, result in results} == {PushOutcome.REJECTED}
    assert [(line["log_level"], line["reason"]) for line in lines] == [("error", "BadCollapseId")]
    assert not any(token in str(lines) for token in tokens)


async def test_pushes_are_counted_by_outcome(apns: ApnsHarness) -> None:
    token, gone = apns.tokens(2)
    apns.simulator.devices.retire(gone)
    before = (
        apns.metrics.registry.get_sample_value(
            "tally_apns_pushes_total", {"outcome": "token_invalid"}
        )
        or 0
    )
    await send_all(apns.gateway, [update_push(token), update_push(gone)])
    assert (
        apns.metrics.registry.get_sample_value(
            "tally_apns_pushes_total", {"outcome": "token_invalid"}
        )
        == before + 1
    )
    assert apns.metrics.registry.get_sample_value("tally_apns_requests_in_flight") == 0


async def test_a_channel_is_created_read_listed_used_and_deleted(apns: ApnsHarness) -> None:
    channel = await apns.gateway.create_channel()
    brief = await apns.gateway.create_channel(stores_latest=False)
    assert await apns.gateway.read_channel(channel) == BroadcastChannel(channel, stores_latest=True)
    assert await apns.gateway.read_channel(brief) == BroadcastChannel(brief, stores_latest=False)
    assert set(await apns.gateway.list_channels()) >= {channel, brief}
    assert (
        await apns.gateway.broadcast(channel, PAYLOAD, priority=5, expiration=1_900_000_000)
    ).is_delivered
    entry = apns.simulator.log.for_target(channel)[0]
    assert (entry.path, entry.priority, entry.expiration) == (
        f"/4/broadcasts/apps/{apns.simulator.bundle_id}",
        "5",
        "1900000000",
    )
    assert await apns.gateway.delete_channel(channel)
    assert not await apns.gateway.delete_channel(channel)
    assert await apns.gateway.read_channel(channel) is None
    gone = await apns.gateway.broadcast(channel, PAYLOAD, priority=10)
    assert (gone.outcome, gone.reason) == (PushOutcome.TOKEN_INVALID, "ChannelNotRegistered")


async def test_all_channels_are_listed(apns: ApnsHarness) -> None:
    """The response has a quarter of a megabyte, more than an HTTP/2 window."""
    known = {await apns.gateway.create_channel()}
    config = apns.simulator.channels.configs[next(iter(known))]
    known |= {apns.simulator.channels.create(config) for _ in range(9_000)}
    assert set(await apns.gateway.list_channels()) >= known


async def test_too_many_channels_are_a_conflict_and_a_503_is_unavailable(
    apns: ApnsHarness,
) -> None:
    apns.simulator.channels.max_channels = len(apns.simulator.channels.configs)
    try:
        with pytest.raises(Conflict, match="CannotCreateChannelConfig"):
            await apns.gateway.create_channel()
    finally:
        apns.simulator.channels.max_channels = 10_000
    apns.simulator.faults.add(
        PushFault(path="/1/apps", status=503, reason="ServiceUnavailable", times=None)
    )
    with pytest.raises(Unavailable, match="ServiceUnavailable"):
        await apns.gateway.create_channel()


async def test_listing_channels_retries_transient_failures(apns: ApnsHarness) -> None:
    apns.simulator.faults.add(PushFault(path="/1/apps", status=500, reason="InternalServerError"))
    apns.simulator.faults.add(PushFault(path="/1/apps", cut="before"))
    assert isinstance(await apns.gateway.list_channels(), tuple)


async def test_without_a_key_nothing_is_sent() -> None:
    """Every result has the reason NotConfigured, so that Live Activities stay pending."""
    async with open_apns(Settings(), SystemClock(), Metrics()) as gateway:
        port: PushGateway = gateway
        assert not port.is_configured
        results = [
            await gateway.send(update_push("ab" * 32)),
            await gateway.broadcast("c", PAYLOAD, priority=5),
        ]
        results += [result for _, result in await send_all(gateway, [update_push("ab" * 32)])]
        assert {(result.outcome, result.reason) for result in results} == {
            (PushOutcome.RETRY, NOT_CONFIGURED)
        }
        with pytest.raises(Unavailable, match="not configured"):
            await gateway.create_channel()


async def open_and_close(settings: Settings) -> ApnsGateway:
    async with open_apns(settings, ManualClock(), Metrics()) as gateway:
        return gateway


async def test_invalid_settings_are_named(apns: ApnsHarness, tmp_path: Path) -> None:
    """Each message names its variable and does not contain the key."""
    valid = apns.settings
    invalid = {
        "TALLY_CRICKET_APNS_BUNDLE_ID is required": replace(valid, cricket_apns_bundle_id=""),
        "TALLY_CRICKET_APNS_KEY_ID is required": replace(valid, cricket_apns_key_id=""),
        "TALLY_CRICKET_APNS_KEY must be a PEM key": replace(
            valid, cricket_apns_key=Secret(str(tmp_path / "missing.p8"))
        ),
        "TALLY_CRICKET_APNS_AUTHORITY": replace(
            valid, cricket_apns_authority=tmp_path / "missing.pem"
        ),
    }
    for message, settings in invalid.items():
        with pytest.raises(SettingsError, match=message):
            await open_and_close(settings)


async def test_the_key_may_be_a_path_or_a_pem_on_one_line(
    apns: ApnsHarness, tmp_path: Path
) -> None:
    """A file, or an environment variable with escaped line breaks."""
    path = tmp_path / "AuthKey.p8"
    path.write_text(apns.simulator.key.pem)
    for value in (str(path), apns.simulator.key.pem.replace("\n", "\\n")):
        settings = replace(apns.settings, cricket_apns_key=Secret(value))
        async with open_apns(settings, SystemClock(), Metrics()) as gateway:
            assert (await gateway.send(update_push(apns.token()))).is_delivered


async def test_a_server_with_an_untrusted_certificate_gets_nothing(
    apns: ApnsHarness,
) -> None:
    """Neither a push nor a provider token reaches a man in the middle."""
    settings = replace(apns.settings, cricket_apns_authority=None)
    async with open_apns(settings, SystemClock(), Metrics(), FAST_RETRIES) as gateway:
        result = await gateway.send(update_push(apns.token()))
    assert (result.outcome, result.status) == (PushOutcome.RETRY, 0)
    assert apns.simulator.log.total == 0


async def test_the_payload_is_transmitted_unchanged(apns: ApnsHarness) -> None:
    payload = json.dumps(
        {"aps": {"content-state": {"text": "é" * 1000}}}, ensure_ascii=False
    ).encode()
    token = apns.token()
    await apns.gateway.send(Push(token=token, payload=payload))
    assert apns.simulator.log.payloads(token) == [payload]
