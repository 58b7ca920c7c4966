"""The APNs simulator validates requests like APNs and delivers accepted pushes to devices."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import jwt
import pytest
from pyreqwest.client import ClientBuilder

from tally.cricket.apns.gateway import open_apns
from tally.cricket.model.push import Push
from tally.kit.clock import ManualClock, SystemClock
from tally.kit.metrics import Metrics
from tally.settings import read_settings
from tally.sim.apns.command import write_settings
from tally.sim.apns.devices import PushDelivery, TokenKind
from tally.sim.apns.faults import PushFault
from tally.sim.apns.provider_tokens import make_provider_key
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.page_protection import CONTROL_HEADERS
from tests.sim.push_provider import (
    PAYLOAD,
    PushProvider,
    connect_provider,
    issue_token,
    provider_token,
)

MINUTE = 60


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def apns(clock: ManualClock) -> AsyncIterator[ApnsSimulator]:
    async with ApnsSimulator(clock).serving() as apns:
        yield apns


@pytest.fixture
async def provider(apns: ApnsSimulator, clock: ManualClock) -> AsyncIterator[PushProvider]:
    async with connect_provider(apns, clock) as provider:
        yield provider


async def test_valid_push_is_accepted_with_an_id(provider: PushProvider) -> None:
    """The id is the given one or a generated one."""
    token = issue_token(provider.apns)
    expected_id = "123e4567-e89b-42d3-a456-426614174000"
    assert await provider.push(token, apns_id=expected_id) == (200, {"<apns-id>": expected_id})
    status, body = await provider.push(token)
    assert (status, len(body["<apns-id>"])) == (200, 36)


WRONG: dict[str, tuple[str | None, dict[str, str | None], int, str]] = {
    "BadDeviceToken, too short": ("abc", {}, 400, "BadDeviceToken"),
    "BadDeviceToken, never issued": ("ab" * 32, {}, 400, "BadDeviceToken"),
    "MissingDeviceToken": ("", {}, 400, "MissingDeviceToken"),
    "MissingTopic": (None, {"apns_topic": None}, 400, "MissingTopic"),
    "TopicDisallowed": (None, {"apns_topic": "org.example.other"}, 400, "TopicDisallowed"),
    "BadTopic": (None, {"apns_topic": "app.tally.cricket"}, 400, "BadTopic"),
    "InvalidPushType": (None, {"apns_push_type": "carrier-pigeon"}, 400, "InvalidPushType"),
    "InvalidPushType, missing": (None, {"apns_push_type": None}, 400, "InvalidPushType"),
    "BadPriority": (None, {"apns_priority": "7"}, 400, "BadPriority"),
    "BadExpirationDate": (None, {"apns_expiration": "tomorrow"}, 400, "BadExpirationDate"),
    "BadCollapseId": (None, {"apns_collapse_id": "x" * 65}, 400, "BadCollapseId"),
    "BadMessageId": (None, {"apns_id": "not a UUID"}, 400, "BadMessageId"),
    "MissingProviderToken": (None, {"authorization": None}, 403, "MissingProviderToken"),
    "InvalidProviderToken": (None, {"authorization": "bearer a.b.c"}, 403, "InvalidProviderToken"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_invalid_push_gets_the_apns_reason(provider: PushProvider, name: str) -> None:
    token, changed, status, reason = WRONG[name]
    found = await provider.push(
        issue_token(provider.apns) if token is None else token, PAYLOAD, **changed
    )
    assert found == (
        status,
        {"reason": reason} | ({"<apns-id>": "not a UUID"} if reason == "BadMessageId" else {}),
    )


@pytest.mark.parametrize(
    ("payload", "status", "reason"),
    [(b"", 400, "PayloadEmpty"), (b"x" * 4097, 413, "PayloadTooLarge")],
)
async def test_payload_size_is_limited(
    provider: PushProvider, payload: bytes, status: int, reason: str
) -> None:
    assert await provider.push(issue_token(provider.apns), payload) == (status, {"reason": reason})
    assert (await provider.push(issue_token(provider.apns), b"x" * 4096))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/3/device/ab", 405, "MethodNotAllowed"),
        ("POST", "/2/device/ab", 404, "BadPath"),
        ("POST", "/", 404, "BadPath"),
    ],
)
async def test_unknown_paths_and_methods_are_rejected(
    provider: PushProvider, method: str, path: str, status: int, reason: str
) -> None:
    assert await provider.call(method, provider.apns.url + path, PAYLOAD) == (
        status,
        {"reason": reason},
    )


async def test_retired_token_gets_410_with_a_timestamp(
    provider: PushProvider, clock: ManualClock
) -> None:
    token = issue_token(provider.apns)
    provider.apns.devices.retire(token)
    await clock.advance(5)
    assert await provider.push(token) == (
        410,
        {"reason": "Unregistered", "timestamp": clock.milliseconds() - 5000},
    )


async def test_token_kind_must_match_the_push_type(provider: PushProvider) -> None:
    """Device tokens and activity tokens have different topics."""
    device = issue_token(provider.apns, TokenKind.DEVICE)
    assert await provider.push(device) == (400, {"reason": "DeviceTokenNotForTopic"})
    assert (
        await provider.push(device, apns_push_type="alert", apns_topic=provider.apns.bundle_id)
    )[0] == 200
    for kind in (TokenKind.START, TokenKind.UPDATE):
        wrong = await provider.push(
            issue_token(provider.apns, kind),
            apns_push_type="alert",
            apns_topic=provider.apns.bundle_id,
        )
        assert wrong == (400, {"reason": "DeviceTokenNotForTopic"})


async def test_new_device_token_retires_the_previous_one(provider: PushProvider) -> None:
    old, new = (issue_token(provider.apns, TokenKind.DEVICE) for _ in range(2))
    topic = provider.apns.bundle_id
    assert (await provider.push(old, apns_push_type="alert", apns_topic=topic))[0] == 410
    assert (await provider.push(new, apns_push_type="alert", apns_topic=topic))[0] == 200


async def test_provider_token_expires_after_an_hour(
    provider: PushProvider, clock: ManualClock
) -> None:
    token = issue_token(provider.apns)
    assert (await provider.push(token))[0] == 200
    await clock.advance(60 * MINUTE)
    assert (await provider.push(token))[0] == 200
    await clock.advance(1)
    assert await provider.push(token) == (403, {"reason": "ExpiredProviderToken"})


async def test_provider_token_updates_are_limited_to_one_per_20_minutes(
    provider: PushProvider, clock: ManualClock
) -> None:
    token = issue_token(provider.apns)
    assert (await provider.push(token))[0] == 200
    await clock.advance(19 * MINUTE)
    second = provider_token(provider.apns, clock.seconds())
    assert await provider.push(token, authorization=second) == (
        429,
        {"reason": "TooManyProviderTokenUpdates"},
    )
    assert (await provider.push(token))[0] == 200
    await clock.advance(MINUTE)
    assert (await provider.push(token, authorization=second))[0] == 200


async def test_forged_foreign_and_future_provider_tokens_are_invalid(
    provider: PushProvider, clock: ManualClock
) -> None:
    apns, token, now = provider.apns, issue_token(provider.apns), clock.seconds()
    other = make_provider_key()
    forged = "bearer " + jwt.encode(
        {"iss": apns.key.team_id, "iat": now}, other.pem, "ES256", {"kid": apns.key.key_id}
    )
    unknown = "bearer " + jwt.encode(
        {"iss": apns.key.team_id, "iat": now}, other.pem, "ES256", {"kid": "OTHER"}
    )
    wrong = [
        forged,
        unknown,
        provider_token(apns, now, iss="ANOTHERTEAM"),
        provider_token(apns, now + 3600),
        provider_token(apns, now, iat="now"),
    ]
    for authorization in wrong:
        assert await provider.push(token, authorization=authorization) == (
            403,
            {"reason": "InvalidProviderToken"},
        )


async def test_push_reaches_the_device_of_the_token(provider: PushProvider) -> None:
    token = issue_token(provider.apns, device="phone-7")
    await provider.push(token, apns_priority="5")
    taken = await provider.apns.devices.mailbox("tests").take()
    assert taken == [PushDelivery("phone-7", PAYLOAD.decode(), "liveactivity", 5, token=token)]


async def test_broadcast_reaches_only_subscribed_devices(provider: PushProvider) -> None:
    apns = provider.apns
    for device in ("a", "b", "c"):
        issue_token(apns, device=device)
    url = f"{apns.manage_url}/1/apps/{apns.bundle_id}/channels"
    body = b'{"message-storage-policy": 1, "push-type": "LiveActivity"}'
    status, response = await provider.call("POST", url, body)
    assert status == 201
    channel = response["<apns-channel-id>"]
    apns.devices.subscribe("a", channel)
    apns.devices.subscribe("b", channel)
    apns.devices.subscribe("c", channel)
    apns.devices.unsubscribe("c", channel)
    send = f"{apns.url}/4/broadcasts/apps/{apns.bundle_id}"
    assert (
        await provider.call("POST", send, b"x" * 5120, apns_channel_id=channel, apns_topic=None)
    )[0] == 200
    taken = await apns.devices.mailbox("tests").take()
    assert sorted(delivery.device for delivery in taken) == ["a", "b"]
    assert {delivery.channel for delivery in taken} == {channel}


CHANNEL = "AAAAAAAAAAAAAAAAAAAAAA=="


@pytest.mark.parametrize(
    ("changed", "size", "status", "reason"),
    [
        ({}, 10, 400, "ChannelNotRegistered"),
        ({"apns_channel_id": None}, 10, 400, "MissingChannelId"),
        ({"apns_channel_id": "short"}, 10, 400, "BadChannelId"),
        ({"apns_push_type": "alert"}, 10, 400, "InvalidPushType"),
        ({"apns_push_type": None}, 10, 400, "MissingPushType"),
        ({}, 5121, 413, "PayloadTooLarge"),
        ({}, 0, 400, "PayloadEmpty"),
    ],
)
async def test_invalid_broadcast_gets_the_apns_reason(
    provider: PushProvider, changed: dict[str, str | None], size: int, status: int, reason: str
) -> None:
    send = f"{provider.apns.url}/4/broadcasts/apps/{provider.apns.bundle_id}"
    found = await provider.call(
        "POST", send, b"x" * size, **({"apns_channel_id": CHANNEL} | changed)
    )
    assert found == (status, {"reason": reason})


async def test_invalid_channel_request_gets_the_apns_reason(provider: PushProvider) -> None:
    apns = provider.apns
    base = f"{apns.manage_url}/1/apps/{apns.bundle_id}"
    wrong = [
        (
            await provider.call(
                "POST", f"{base}/channels", b'{"message-storage-policy":1,"push-type":"Alert"}'
            ),
            "InvalidPushType",
        ),
        (await provider.call("POST", f"{base}/channels", b"no JSON"), "InvalidPushType"),
        (await provider.call("GET", f"{base}/channels"), "MissingChannelId"),
        (await provider.call("GET", f"{base}/channels", apns_channel_id="x"), "BadChannelId"),
        (
            await provider.call("DELETE", f"{base}/channels", apns_channel_id=CHANNEL),
            "ChannelNotRegistered",
        ),
        (await provider.call("PUT", f"{base}/channels"), "MethodNotAllowed"),
        (await provider.call("GET", f"{apns.manage_url}/1/apps/other/channels"), "BadPath"),
        (
            await provider.call("GET", f"{base}/all-channels", authorization=None),
            "MissingProviderToken",
        ),
    ]
    assert [body["reason"] for (_, body), _ in wrong] == [reason for _, reason in wrong]
    assert all("<apns-request-id>" in body for (_, body), _ in wrong)


async def test_offline_device_gets_the_latest_push_per_token_when_online(
    provider: PushProvider, clock: ManualClock
) -> None:
    """Expired pushes and pushes without storage are lost."""
    apns, later = provider.apns, str(clock.seconds() + 100)
    stored, brief, fleeting = (issue_token(apns) for _ in range(3))
    apns.devices.set_online("phone", is_online=False)
    for payload in (b"1", b"2"):
        await provider.push(stored, payload, apns_expiration=later)
    await provider.push(brief, b"3", apns_expiration=str(clock.seconds() + 10))
    await provider.push(fleeting, b"4", apns_expiration="0")
    await clock.advance(50)
    apns.devices.set_online("phone", is_online=True)
    assert [delivery.payload for delivery in await apns.devices.mailbox("tests").take()] == ["2"]


async def test_log_is_bounded_and_can_only_count(provider: PushProvider) -> None:
    apns, token = provider.apns, issue_token(provider.apns)
    await provider.push(token)
    apns.log.is_recording = False
    await provider.push(token)
    assert (len(apns.log.entries), apns.log.accepted, apns.log.total) == (1, 2, 2)
    assert apns.log.entries.maxlen is not None


async def test_log_size_and_retired_tokens_can_be_limited(
    provider: PushProvider,
) -> None:
    """Counts stay complete; a forgotten token becomes unknown."""
    apns = provider.apns
    apns.log.limit(2)
    apns.devices.max_retired_tokens = 1
    forgotten, gone, good = (issue_token(apns) for _ in range(3))
    apns.devices.retire(forgotten)
    apns.devices.retire(gone)
    assert [(await provider.push(token))[0] for token in (forgotten, gone, good)] == [400, 410, 200]
    assert (len(apns.log.entries), apns.log.total) == (2, 3)


async def test_lost_pushes_are_accepted_and_never_delivered(provider: PushProvider) -> None:
    """All to a token, channel or device, or a share of all; the provider cannot know it."""
    apns = provider.apns
    lossy, other = issue_token(apns, device="lossy phone"), issue_token(apns, device="other phone")
    async with ClientBuilder().build() as client:

        async def lose(losses: object) -> int:
            request = client.put(f"{apns.control_url}/_sim/losses").headers(CONTROL_HEADERS)
            return (await request.body_json(losses).build().send()).status

        for targets in ([lossy], ["lossy phone"]):
            assert await lose({"targets": targets}) == 204
            assert [(await provider.push(token))[0] for token in (lossy, other)] == [200, 200]
            deliveries = await apns.devices.mailbox("tests").take()
            assert [delivery.token for delivery in deliveries] == [other]
        assert await lose({"share": 0.5}) == 204
        for _ in range(200):
            await provider.push(other)
        delivered = len(await apns.devices.mailbox("tests").take())
        assert 50 < delivered < 150
        assert apns.devices.lost == 2 + 200 - delivered
        assert await lose({"share": 2}) == 400
        assert await lose({}) == 204
        assert (await provider.push(lossy))[0] == 200
        assert len(await apns.devices.mailbox("tests").take()) == 1


async def test_control_api_covers_every_function(provider: PushProvider) -> None:
    """A phone in another process registers, gets tokens and reads deliveries."""
    apns = provider.apns
    control = f"{apns.control_url}/_sim"
    async with ClientBuilder().build() as client:

        async def call(method: str, path: str, body: object = None) -> tuple[int, object]:
            request = client.request(method, control + path).headers(CONTROL_HEADERS)
            response = (
                await (request.body_json(body) if body is not None else request).build().send()
            )
            content = bytes(await response.bytes())
            return response.status, json.loads(content) if content else None

        assert (await call("PUT", "/devices/phone-9", {"mailbox": "away"}))[0] == 204
        status, body = await call("POST", "/devices/phone-9/tokens", {"kind": "update"})
        assert isinstance(body, dict)
        token = body["token"]
        assert (status, len(token)) == (201, 160)
        async with (
            client.get(f"{control}/mailboxes/away")
            .headers(CONTROL_HEADERS)
            .streamed_read_buffer_limit(0)
            .build_streamed() as stream
        ):
            assert await stream.body_reader.read_chunk() == b"\n"
            assert (await provider.push(token))[0] == 200
            chunk = await stream.body_reader.read_chunk()
            assert chunk is not None
            assert json.loads(bytes(chunk)) == {
                "device": "phone-9",
                "payload": PAYLOAD.decode(),
                "push_type": "liveactivity",
                "priority": 10,
                "token": token,
            }
        fault = {"token": token, "status": 429, "reason": "TooManyRequests"}
        assert (await call("POST", "/faults", fault))[0] == 204
        assert await provider.push(token) == (429, {"reason": "TooManyRequests"})
        _, log = await call("GET", f"/log?target={token}")
        assert isinstance(log, list)
        assert [(seen["status"], seen["reason"]) for seen in log] == [
            (200, ""),
            (429, "TooManyRequests"),
        ]
        _, state = await call("GET", "/state")
        assert isinstance(state, dict)
        assert (state["accepted"], state["devices"], state["tokens"]) == (1, 1, 1)
        assert (await call("DELETE", f"/tokens/{token}"))[0] == 204
        assert (await provider.push(token))[0] == 410
        wrong = [
            ("POST", "/faults", {"unheard_of": 1}, 400),
            ("POST", "/devices/nobody/tokens", {"kind": "update"}, 404),
            ("DELETE", "/tokens/nobodys", None, 404),
            ("DELETE", "/mailboxes/nobodys", None, 404),
        ]
        for method, path, body, expected in wrong:
            assert (await call(method, path, body))[0] == expected
        assert (await call("DELETE", "/mailboxes/away"))[0] == 204
        assert apns.devices.devices == {}


async def test_delay_uses_the_simulator_clock(provider: PushProvider, clock: ManualClock) -> None:
    token = issue_token(provider.apns)
    provider.apns.faults.add(PushFault(token=token, delay=3600))
    pushing = asyncio.create_task(provider.push(token))
    await clock.until_sleeping()
    await clock.advance(3599)
    assert not pushing.done()
    await clock.advance(1)
    assert (await pushing)[0] == 200


async def test_keys_and_certificates_survive_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    """The settings of a server stay valid."""
    directory = tmp_path / "apns"
    first, second = ApnsSimulator.load(directory, clock), ApnsSimulator.load(directory, clock)
    assert first.key == second.key
    assert first.certificates == second.certificates
    assert {path.stat().st_mode & 0o77 for path in directory.iterdir()} == {0}


async def test_settings_file_configures_a_server(tmp_path: Path) -> None:
    """Its variables are all that a server needs to push."""
    clock = SystemClock()
    async with ApnsSimulator.load(tmp_path, clock).serving() as apns:
        lines = write_settings(apns, tmp_path).read_text(encoding="utf-8").splitlines()
        settings = read_settings(dict(line.split("=", 1) for line in lines))
        async with open_apns(settings, clock, Metrics()) as gateway:
            assert (await gateway.send(Push(token=issue_token(apns), payload=PAYLOAD))).is_delivered
