"""The gateway to Apple's push service: what goes out, and what each answer means."""

import json
from collections.abc import AsyncIterator
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
from tests.cricket.apns_harness import QUICK, Apple, apple_nearby, send_all, update

PAYLOAD = b'{"aps":{"timestamp":1,"event":"update","content-state":{}}}'
APNS_ID = "123e4567-e89b-42d3-a456-426614174000"


@pytest.fixture(scope="module")
async def _apple(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Apple]:
    async with apple_nearby(tmp_path_factory.mktemp("apple")) as apple:
        yield apple


@pytest.fixture
def apple(_apple: Apple) -> Apple:
    _apple.sim.faults.clear()
    _apple.sim.log.clear()
    return _apple


async def test_a_live_activity_push_goes_out_as_apple_wants_it(apple: Apple) -> None:
    """Path, topic, type, priority, expiration, id and body."""
    token = apple.token()
    verdict = await apple.gateway.send(
        Push(token=token, payload=PAYLOAD, priority=5, expiration=1_900_000_000, apns_id=APNS_ID)
    )
    assert verdict == PushResult(PushOutcome.DELIVERED, 200, "", APNS_ID)
    seen = apple.sim.log.for_target(token)[0]
    assert (seen.method, seen.path) == ("POST", f"/3/device/{token}")
    assert seen.topic == f"{apple.sim.bundle_id}.push-type.liveactivity"
    assert (seen.push_type, seen.priority, seen.expiration, seen.apns_id) == (
        "liveactivity",
        "5",
        "1900000000",
        APNS_ID,
    )
    assert seen.payload == PAYLOAD


async def test_an_alert_goes_to_the_apps_own_topic(apple: Apple) -> None:
    token = apple.token(TokenKind.DEVICE)
    push = Push(
        token=token,
        payload=notification_payload(Alert("Toss", "India bat")),
        push_type="alert",
        collapse_id="toss-7",
    )
    assert (await apple.gateway.send(push)).is_delivered
    seen = apple.sim.log.for_target(token)[0]
    assert (seen.topic, seen.push_type, seen.collapse_id) == (
        apple.sim.bundle_id,
        "alert",
        "toss-7",
    )


ANSWERS = [
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


@pytest.mark.parametrize(("status", "reason", "outcome"), ANSWERS)
async def test_every_answer_of_apples_has_its_meaning(
    apple: Apple, status: int, reason: str, outcome: PushOutcome
) -> None:
    """What may pass is tried as often as patience allows; what is final, once."""
    token = apple.token()
    apple.sim.faults.add(PushFault(token=token, status=status, reason=reason, times=None))
    verdict = await apple.gateway.send(update(token))
    tries = 6 if outcome is PushOutcome.RETRY else 1
    assert (verdict.outcome, verdict.status, verdict.reason, verdict.attempts) == (
        outcome,
        status,
        reason,
        tries,
    )
    assert len(apple.sim.log.for_target(token)) == tries
    assert classify(status, reason) is outcome


async def test_a_token_that_is_gone_comes_with_the_moment_since_when(apple: Apple) -> None:
    """So that a registration newer than that is kept."""
    token = apple.token()
    apple.sim.devices.retire(token)
    verdict = await apple.gateway.send(update(token))
    assert (verdict.outcome, verdict.reason) == (PushOutcome.TOKEN_INVALID, "Unregistered")
    assert verdict.invalid_since_ms == apple.sim.devices.tokens[token].retired_at_ms


@pytest.mark.parametrize(
    "token", ["../4/broadcasts", "ab/cd", "a b", "é" * 64, "", "ab?x=1", "ab#"]
)
async def test_what_cannot_be_a_token_is_one_that_nobody_has(apple: Apple, token: str) -> None:
    """Whatever a client registered, no other path of Apple's is ever called with it."""
    assert (await apple.gateway.send(update(token))).outcome is PushOutcome.TOKEN_INVALID
    assert [seen.path for seen in apple.sim.log.entries] == ["/3/device/0"]


async def test_refusals_are_logged_once_a_minute_without_the_token(apple: Apple) -> None:
    """Loud enough that somebody repairs it, and no louder."""
    tokens = apple.tokens(5)
    apple.sim.faults.add(PushFault(status=400, reason="BadCollapseId", times=None))
    with capture_logs() as told:
        verdicts = await send_all(apple.gateway, [update(token) for token in tokens])
    assert {verdict.outcome for _, verdict in verdicts} == {PushOutcome.REJECTED}
    assert [(line["log_level"], line["reason"]) for line in told] == [("error", "BadCollapseId")]
    assert not any(token in str(told) for token in tokens)


async def test_what_became_of_pushes_is_counted(apple: Apple) -> None:
    token, gone = apple.tokens(2)
    apple.sim.devices.retire(gone)
    before = (
        apple.metrics.registry.get_sample_value(
            "tally_apns_pushes_total", {"outcome": "token_invalid"}
        )
        or 0
    )
    await send_all(apple.gateway, [update(token), update(gone)])
    assert (
        apple.metrics.registry.get_sample_value(
            "tally_apns_pushes_total", {"outcome": "token_invalid"}
        )
        == before + 1
    )
    assert apple.metrics.registry.get_sample_value("tally_apns_requests_in_flight") == 0


async def test_a_channel_is_made_read_listed_used_and_deleted(apple: Apple) -> None:
    channel = await apple.gateway.create_channel()
    brief = await apple.gateway.create_channel(stores_latest=False)
    assert await apple.gateway.read_channel(channel) == BroadcastChannel(
        channel, stores_latest=True
    )
    assert await apple.gateway.read_channel(brief) == BroadcastChannel(brief, stores_latest=False)
    assert set(await apple.gateway.list_channels()) >= {channel, brief}
    assert (
        await apple.gateway.broadcast(channel, PAYLOAD, priority=5, expiration=1_900_000_000)
    ).is_delivered
    seen = apple.sim.log.for_target(channel)[0]
    assert (seen.path, seen.priority, seen.expiration) == (
        f"/4/broadcasts/apps/{apple.sim.bundle_id}",
        "5",
        "1900000000",
    )
    assert await apple.gateway.delete_channel(channel)
    assert not await apple.gateway.delete_channel(channel)
    assert await apple.gateway.read_channel(channel) is None
    gone = await apple.gateway.broadcast(channel, PAYLOAD, priority=10)
    assert (gone.outcome, gone.reason) == (PushOutcome.TOKEN_INVALID, "ChannelNotRegistered")


async def test_all_channels_of_a_busy_app_are_listed(apple: Apple) -> None:
    """A quarter of a megabyte in one answer, more than a window of HTTP/2."""
    known = {await apple.gateway.create_channel()}
    wanted = apple.sim.channels.configs[next(iter(known))]
    known |= {apple.sim.channels.create(wanted) for _ in range(9_000)}
    assert set(await apple.gateway.list_channels()) >= known


async def test_a_full_list_of_channels_is_a_conflict_and_a_busy_apple_unavailable(
    apple: Apple,
) -> None:
    apple.sim.channels.max_channels = len(apple.sim.channels.configs)
    try:
        with pytest.raises(Conflict, match="CannotCreateChannelConfig"):
            await apple.gateway.create_channel()
    finally:
        apple.sim.channels.max_channels = 10_000
    apple.sim.faults.add(
        PushFault(path="/1/apps", status=503, reason="ServiceUnavailable", times=None)
    )
    with pytest.raises(Unavailable, match="ServiceUnavailable"):
        await apple.gateway.create_channel()


async def test_reading_channels_survives_a_moment_of_trouble(apple: Apple) -> None:
    apple.sim.faults.add(PushFault(path="/1/apps", status=500, reason="InternalServerError"))
    apple.sim.faults.add(PushFault(path="/1/apps", cut="before"))
    assert isinstance(await apple.gateway.list_channels(), tuple)


async def test_without_a_key_nothing_is_sent_and_everything_says_so() -> None:
    """Live Activities stay pending, and the reason can be told."""
    async with open_apns(Settings(), SystemClock(), Metrics()) as gateway:
        port: PushGateway = gateway
        assert not port.is_configured
        found = [
            await gateway.send(update("ab" * 32)),
            await gateway.broadcast("c", PAYLOAD, priority=5),
        ]
        found += [verdict for _, verdict in await send_all(gateway, [update("ab" * 32)])]
        assert {(verdict.outcome, verdict.reason) for verdict in found} == {
            (PushOutcome.RETRY, NOT_CONFIGURED)
        }
        with pytest.raises(Unavailable, match="not configured"):
            await gateway.create_channel()


async def opened(settings: Settings) -> ApnsGateway:
    async with open_apns(settings, ManualClock(), Metrics()) as gateway:
        return gateway


async def test_settings_that_do_not_hold_are_named(apple: Apple, tmp_path: Path) -> None:
    """Each sentence names its variable, and the key stays out of it."""
    whole = apple.settings
    wrong = {
        "TALLY_CRICKET_APNS_BUNDLE_ID is required": replace(whole, cricket_apns_bundle_id=""),
        "TALLY_CRICKET_APNS_KEY_ID is required": replace(whole, cricket_apns_key_id=""),
        "TALLY_CRICKET_APNS_KEY must be a PEM key": replace(
            whole, cricket_apns_key=Secret(str(tmp_path / "missing.p8"))
        ),
        "TALLY_CRICKET_APNS_AUTHORITY": replace(
            whole, cricket_apns_authority=tmp_path / "missing.pem"
        ),
    }
    for sentence, settings in wrong.items():
        with pytest.raises(SettingsError, match=sentence):
            await opened(settings)


async def test_the_key_may_be_a_path_or_a_text_on_one_line(apple: Apple, tmp_path: Path) -> None:
    """As a file beside the server, or as an environment variable that cannot hold line breaks."""
    path = tmp_path / "AuthKey.p8"
    path.write_text(apple.sim.key.pem)
    for given in (str(path), apple.sim.key.pem.replace("\n", "\\n")):
        settings = replace(apple.settings, cricket_apns_key=Secret(given))
        async with open_apns(settings, SystemClock(), Metrics()) as gateway:
            assert (await gateway.send(update(apple.token()))).is_delivered


async def test_a_server_with_a_certificate_that_nobody_vouches_for_gets_nothing(
    apple: Apple,
) -> None:
    """No push and no token of ours goes to somebody in the middle."""
    settings = replace(apple.settings, cricket_apns_authority=None)
    async with open_apns(settings, SystemClock(), Metrics(), QUICK) as gateway:
        verdict = await gateway.send(update(apple.token()))
    assert (verdict.outcome, verdict.status) == (PushOutcome.RETRY, 0)
    assert apple.sim.log.total == 0


async def test_the_payload_arrives_byte_by_byte(apple: Apple) -> None:
    payload = json.dumps(
        {"aps": {"content-state": {"text": "é" * 1000}}}, ensure_ascii=False
    ).encode()
    token = apple.token()
    await apple.gateway.send(Push(token=token, payload=payload))
    assert apple.sim.log.payloads(token) == [payload]
