"""Public APNs clients understand the APNs simulator: aioapns, and @parse/node-apn from npm.

They were written against Apple's service, so the simulator and Tally's gateway cannot share a
misunderstanding. `make test` sends two pushes with each; `make judge` causes every kind of error.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aioapns
import pytest
from aioapns.connection import APNsProductionClientProtocol

from tally.kit.clock import ManualClock
from tally.sim.apns.devices import TokenKind
from tally.sim.apns.faults import PushFault
from tally.sim.apns.simulator import ApnsSimulator
from tests.clients import generators
from tests.sim.push_provider import issue_token

PROGRAM = Path(__file__).parent / "apns_program.mjs"
CONTENT = {"aps": {"timestamp": 1, "event": "update", "content-state": {"score": "1/0"}}}
ALERT = {"aps": {"alert": {"title": "Toss", "body": "Rovers won the toss"}}}


@pytest.fixture
async def apns() -> AsyncIterator[ApnsSimulator]:
    """A simulator on a clock that tests advance; clients use the time of the system."""
    async with ApnsSimulator(ManualClock(datetime.now(UTC))).serving() as opened:
        yield opened


def advance(apns: ApnsSimulator, **duration: float) -> None:
    clock = apns.devices._clock
    assert isinstance(clock, ManualClock)
    clock._elapsed += timedelta(**duration).total_seconds()


class PythonClient:
    """Sends pushes with aioapns."""

    def __init__(self, apns: ApnsSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
        url = urlsplit(apns.url)
        monkeypatch.setattr(APNsProductionClientProtocol, "APNS_SERVER", url.hostname)
        monkeypatch.setattr(APNsProductionClientProtocol, "APNS_PORT", url.port)
        authority = apns.certificates.authority.decode()
        self._topic = f"{apns.bundle_id}.push-type.liveactivity"
        self._client = aioapns.APNs(
            key=apns.key.pem,
            key_id=apns.key.key_id,
            team_id=apns.key.team_id,
            topic=self._topic,
            max_connections=1,
            max_connection_attempts=1,
            ssl_context=ssl.create_default_context(cadata=authority),
        )

    async def push(
        self, token: str, payload: dict[str, Any] | None = None, topic: str | None = None
    ) -> aioapns.common.NotificationResult:
        request = aioapns.NotificationRequest(
            device_token=token,
            message=CONTENT if payload is None else payload,
            time_to_live=60,
            priority=10,
            collapse_key="match-1",
            push_type=(
                aioapns.PushType.ALERT if payload is ALERT else aioapns.PushType.LIVEACTIVITY
            ),
            apns_topic=topic or self._topic,
        )
        async with asyncio.timeout(30):
            result = await self._client.send_notification(request)
        assert result.notification_id == request.notification_id
        return result

    async def reason(self, token: str, **changes: Any) -> tuple[str, str | None]:
        result = await self.push(token, **changes)
        return result.status, result.description

    def close(self) -> None:
        self._client.pool.close()


@pytest.fixture
def client(apns: ApnsSimulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[PythonClient]:
    opened = PythonClient(apns, monkeypatch)
    yield opened
    opened.close()


async def run_node(apns: ApnsSimulator, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send requests with @parse/node-apn; return its results."""
    modules = generators.node_modules()
    push, manage = urlsplit(apns.url), urlsplit(apns.manage_url)
    work = {
        "bundleId": apns.bundle_id,
        "requests": requests,
        "options": {
            "token": {
                "key": apns.key.pem,
                "keyId": apns.key.key_id,
                "teamId": apns.key.team_id,
            },
            "ca": apns.certificates.authority.decode(),
            "address": push.hostname,
            "port": push.port,
            "manageChannelsAddress": manage.hostname,
            "manageChannelsPort": manage.port,
            "production": False,
        },
    }
    # Node resolves the packages beside the program.
    program = modules.parent / PROGRAM.name
    program.write_bytes(PROGRAM.read_bytes())
    process = await asyncio.create_subprocess_exec(
        "node",
        str(program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(generators.RUN_SECONDS):
        output, errors = await process.communicate(json.dumps(work).encode())
    assert process.returncode == 0, errors.decode()[-2000:]
    results: list[dict[str, Any]] = json.loads(output)
    return results


def node_push(apns: ApnsSimulator, token: str, **changes: Any) -> dict[str, Any]:
    headers = {
        "topic": f"{apns.bundle_id}.push-type.liveactivity",
        "pushType": "liveactivity",
        "priority": 10,
        "expiry": 1_900_000_000,
        "collapseId": "match-1",
    }
    payload = changes.pop("payload", CONTENT)
    return {"token": token, "payload": payload, "headers": headers | changes}


async def test_aioapns_works(apns: ApnsSimulator, client: PythonClient) -> None:
    """A push is delivered, and a retired token has the time since when it is."""
    token = issue_token(apns)
    assert await client.reason(token) == ("200", None)
    [push] = apns.log.for_target(token)
    assert (json.loads(push.payload), push.collapse_id) == (CONTENT, "match-1")
    [delivery] = await apns.devices.mailbox("tests").take()
    assert json.loads(delivery.payload) == CONTENT
    retired_at_ms = apns.devices._clock.milliseconds()
    apns.devices.retire(token)
    advance(apns, seconds=5)
    result = await client.push(token)
    assert (result.status, result.description) == ("410", "Unregistered")
    assert result.timestamp == retired_at_ms


@pytest.mark.judge
async def test_aioapns_understands_every_error(apns: ApnsSimulator, client: PythonClient) -> None:
    token, device = issue_token(apns), issue_token(apns, TokenKind.DEVICE, "other phone")
    assert await client.reason("ab" * 32) == ("400", "BadDeviceToken")
    assert await client.reason("not-a-token") == ("400", "BadDeviceToken")
    assert await client.reason(token, topic="app.other") == ("400", "TopicDisallowed")
    assert await client.reason(token, topic=apns.bundle_id) == ("400", "BadTopic")
    assert await client.reason(device) == ("400", "DeviceTokenNotForTopic")
    assert await client.reason(device, payload=ALERT, topic=apns.bundle_id) == ("200", None)
    large = {"aps": {"content-state": {"text": "x" * 4_096}}}
    assert await client.reason(token, payload=large) == ("413", "PayloadTooLarge")
    for status, reason in ((429, "TooManyRequests"), (503, "ServiceUnavailable")):
        apns.faults.add(PushFault(token=token, status=status, reason=reason))
        assert await client.reason(token) == (str(status), reason)
    assert await client.reason(token) == ("200", None)
    advance(apns, hours=2)
    assert await client.reason(token) == ("403", "ExpiredProviderToken")


async def test_node_apn_works(apns: ApnsSimulator) -> None:
    """A push is delivered, and a retired token has the time since when it is."""
    token, retired = issue_token(apns), issue_token(apns)
    apns.devices.retire(retired)
    results = await run_node(apns, [node_push(apns, token), node_push(apns, retired)])
    assert [result["status"] for result in results] == [200, 410]
    assert results[1]["reason"] == "Unregistered"
    assert results[1]["timestamp"] == apns.devices._clock.milliseconds()
    [push] = apns.log.for_target(token)
    assert (json.loads(push.payload), push.collapse_id) == (CONTENT, "match-1")


@pytest.mark.judge
async def test_node_apn_understands_every_error(apns: ApnsSimulator) -> None:
    token = issue_token(apns)
    apns.faults.add(PushFault(token=token, status=429, reason="TooManyRequests"))
    large = {"aps": {"content-state": {"text": "x" * 4_096}}}
    results = await run_node(
        apns,
        [
            node_push(apns, token),
            node_push(apns, "ab" * 32),
            node_push(apns, token, topic="app.other"),
            node_push(apns, token, topic=apns.bundle_id),
            node_push(apns, token, payload=large),
            node_push(apns, token),
        ],
    )
    assert [(result["status"], result.get("reason")) for result in results] == [
        (429, "TooManyRequests"),
        (400, "BadDeviceToken"),
        (400, "TopicDisallowed"),
        (400, "BadTopic"),
        (413, "PayloadTooLarge"),
        (200, None),
    ]
    advance(apns, hours=2)
    [expired] = await run_node(apns, [node_push(apns, token)])
    assert (expired["status"], expired["reason"]) == (403, "ExpiredProviderToken")


@pytest.mark.judge
async def test_node_apn_manages_channels_and_broadcasts(apns: ApnsSimulator) -> None:
    """A broadcast reaches the subscribed devices; a deleted channel does not exist any more."""
    apns.devices.register("phone", "tests")
    create = {
        "action": "create",
        "headers": {},
        "payload": {"message-storage-policy": 1},
    }
    [created] = await run_node(apns, [create])
    assert created["status"] == 200, created
    channel_id = created["apns-channel-id"]
    apns.devices.subscribe("phone", channel_id)
    headers = {
        "channelId": channel_id,
        "pushType": "liveactivity",
        "priority": 10,
        "expiry": 1_900_000_000,
    }
    broadcast = {"payload": CONTENT, "headers": headers}
    channel = {"payload": {}, "headers": {"channelId": channel_id}}
    advance(apns, minutes=30)
    results = await run_node(
        apns,
        [
            broadcast,
            {**channel, "action": "read"},
            {**channel, "action": "readAll"},
            {**channel, "action": "delete"},
            broadcast,
        ],
    )
    assert [result["status"] for result in results] == [200, 200, 200, 200, 400], results
    assert results[1]["message-storage-policy"] == 1
    assert results[2]["channels"] == [channel_id]
    assert results[4]["reason"] == "ChannelNotRegistered"
    [delivery] = await apns.devices.mailbox("tests").take()
    assert (delivery.channel, json.loads(delivery.payload)) == (channel_id, CONTENT)
