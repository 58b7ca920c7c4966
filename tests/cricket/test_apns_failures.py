"""Failures on the way to APNs lose no push and keep the order of pushes to a token."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tally.cricket.model.push import Push, PushOutcome
from tally.kit.clock import ManualClock
from tally.kit.retry import RetryPolicy
from tally.sim.apns.faults import PushFault
from tests.cricket.apns_harness import (
    ApnsHarness,
    open_apns_harness,
    push_number,
    send_all,
    update_push,
)

PUSHES = 300


def accepted_counts(apns: ApnsHarness) -> Counter[str]:
    """Return how often APNs accepted a push for each token."""
    return Counter(entry.target for entry in apns.simulator.log.entries if entry.status == 200)


# A fault, and the maximum number of pushes whose lost response causes a second delivery.
FAULTS = {
    "429": (PushFault(status=429, reason="TooManyRequests", times=20, skip=50), 0),
    "503": (PushFault(status=503, reason="ServiceUnavailable", times=40, skip=50), 0),
    "500": (PushFault(status=500, reason="InternalServerError", times=20, skip=50), 0),
    "503 with retry-after": (
        PushFault(status=503, reason="Shutdown", times=3, skip=10, retry_after=0),
        0,
    ),
    "graceful goaway": (PushFault(goaway="graceful", times=3, skip=60), 0),
    "abrupt goaway": (PushFault(goaway="abrupt", times=2, skip=100), PUSHES),
    "connection cut before": (PushFault(cut="before", skip=100), PUSHES),
    "connection cut after": (PushFault(cut="after", skip=100, times=2), PUSHES),
    "stream refused": (PushFault(reset="refused", times=10, skip=30), 0),
    "stream failed": (PushFault(reset="failed", times=10, skip=30), 0),
    "slow": (PushFault(delay=0.2, times=20, skip=30), 0),
    "expired provider token": (
        PushFault(status=403, reason="ExpiredProviderToken", times=30, skip=20),
        0,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_every_push_is_delivered_despite(apns: ApnsHarness, name: str) -> None:
    """Each push has one result. A push is delivered twice only if a response may have been lost."""
    fault, max_repeated = FAULTS[name]
    apns.simulator.faults.add(fault)
    tokens = apns.tokens(PUSHES)
    results = await send_all(
        apns.gateway, [update_push(token) for token in tokens], concurrency=100
    )
    assert sorted(push.token for push, _ in results) == sorted(tokens)
    assert {result.outcome for _, result in results} == {PushOutcome.DELIVERED}
    arrived = accepted_counts(apns)
    assert set(arrived) == set(tokens)
    assert sum(arrived.values()) - PUSHES <= max_repeated
    assert apns.simulator.faults.pending == []


async def test_retries_keep_the_order_of_pushes_to_a_token(apns: ApnsHarness) -> None:
    """A later push to the same token waits for the retries of an earlier one."""
    tokens = apns.tokens(20)
    for fault in (
        PushFault(status=503, reason="ServiceUnavailable", times=60, skip=20),
        PushFault(cut="before", skip=150),
    ):
        apns.simulator.faults.add(fault)
    pushes = [update_push(token, number) for number in range(15) for token in tokens]
    results = await send_all(apns.gateway, pushes, concurrency=150)
    assert {result.outcome for _, result in results} == {PushOutcome.DELIVERED}
    for token in tokens:
        numbers = [push_number(payload) for payload in apns.simulator.log.payloads(token)]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(15))


async def test_a_waiting_replaceable_push_is_superseded_by_a_newer_one(apns: ApnsHarness) -> None:
    """An old score never follows a new one, and is not retried."""
    token = apns.token()
    apns.simulator.faults.add(
        PushFault(token=token, status=503, reason="ServiceUnavailable", times=1, retry_after=3)
    )
    first = asyncio.create_task(apns.gateway.send(update_push(token, 1, is_replaceable=True)))
    await apns.simulator.log.wait_until(lambda log: log.total == 1)
    rest = [
        asyncio.create_task(apns.gateway.send(update_push(token, number, is_replaceable=True)))
        for number in (2, 3, 4)
    ]
    results = [await task for task in (first, *rest)]
    assert [result.outcome for result in results] == [PushOutcome.SUPERSEDED] * 3 + [
        PushOutcome.DELIVERED
    ]
    assert [push_number(payload) for payload in apns.simulator.log.payloads(token)] == [4]


async def test_a_push_that_is_not_replaceable_is_never_superseded(apns: ApnsHarness) -> None:
    """Two starts to one phone are two matches."""
    token = apns.token()
    apns.simulator.faults.add(
        PushFault(token=token, status=503, reason="ServiceUnavailable", times=2)
    )
    results = await asyncio.gather(
        *(apns.gateway.send(update_push(token, number)) for number in (1, 2))
    )
    assert [result.outcome for result in results] == [PushOutcome.DELIVERED] * 2
    assert [push_number(payload) for payload in apns.simulator.log.payloads(token)] == [1, 2]


async def test_broadcasts_to_a_channel_keep_their_order_and_the_newest_wins(
    apns: ApnsHarness,
) -> None:
    channel = await apns.gateway.create_channel()
    apns.simulator.faults.add(
        PushFault(token=channel, status=503, reason="ServiceUnavailable", times=1)
    )
    sends = [
        apns.gateway.broadcast(channel, update_push("", number).payload, priority=5)
        for number in (1, 2, 3)
    ]
    results = await asyncio.gather(*sends)
    assert results[-1].is_delivered
    assert push_number(apns.simulator.log.payloads(channel)[-1]) == 3


async def test_an_exhausted_retry_policy_returns_a_retry(apns: ApnsHarness) -> None:
    """The result contains the time to wait, so that the sender can decide."""
    token = apns.token()
    apns.simulator.faults.add(
        PushFault(token=token, status=503, reason="ServiceUnavailable", times=None, retry_after=7)
    )
    result = await apns.gateway.send(update_push(token))
    assert (result.outcome, result.status, result.attempts) == (PushOutcome.RETRY, 503, 1)
    assert result.retry_after >= 7


async def test_an_unavailable_service_loses_no_push(tmp_path: Path) -> None:
    """The results report it, and later pushes succeed without a restart."""
    impatient = RetryPolicy(attempts=3, base=0.005, cap=0.01, deadline=2)
    async with open_apns_harness(tmp_path, retry_policy=impatient) as apns:
        token = apns.token()
        assert (await apns.gateway.send(update_push(token))).is_delivered
        apns.simulator.faults.add(PushFault(cut="before", times=None))
        unavailable = await apns.gateway.send(update_push(token))
        assert (unavailable.outcome, unavailable.status) == (PushOutcome.RETRY, 0)
        apns.simulator.faults.clear()
        assert (await apns.gateway.send(update_push(token))).is_delivered


async def test_lost_connections_during_a_stream_lose_no_push(apns: ApnsHarness) -> None:
    """All connections are dropped, several times."""
    tokens = apns.tokens(PUSHES)

    async def stream() -> AsyncIterator[Push]:
        for number, token in enumerate(tokens):
            if number in {100, 180, 250}:
                apns.simulator.drop_connections()
            yield update_push(token)

    async with aclosing(apns.gateway.send_all(stream(), 40)) as found:
        outcomes = Counter([result.outcome async for _, result in found])
    assert outcomes == {PushOutcome.DELIVERED: PUSHES}
    assert set(accepted_counts(apns)) == set(tokens)


async def test_the_provider_token_is_renewed_within_its_hour_and_after_a_403(
    tmp_path: Path,
) -> None:
    """No push uses an expired token within two hours, and a 403 replaces the token."""
    clock = ManualClock(datetime(2026, 1, 1, 10, 5, tzinfo=UTC))
    async with open_apns_harness(tmp_path, clock) as apns:
        token = apns.token()
        for _ in range(24):
            assert (await apns.gateway.send(update_push(token))).is_delivered
            await clock.advance(300)
        assert set(apns.simulator.log.counts) == {(200, "")}
        apns.simulator.faults.add(PushFault(token=token, status=403, reason="ExpiredProviderToken"))
        await clock.advance(1300)
        sending = asyncio.create_task(apns.gateway.send(update_push(token)))
        await clock.until_sleeping()
        await clock.advance(1)
        result = await sending
        assert (result.outcome, result.attempts) == (PushOutcome.DELIVERED, 2)


async def test_a_failure_throttles_only_its_connection(tmp_path: Path) -> None:
    async with open_apns_harness(tmp_path, connections=2) as apns:
        transport = apns.gateway._transport
        assert transport is not None
        first, second = transport.pool.connections
        token = apns.token()
        apns.simulator.faults.add(
            PushFault(token=token, status=503, reason="ServiceUnavailable", times=1)
        )
        before = (first.limit, second.limit)
        await apns.gateway.send(update_push(token))
        changed = [
            connection.limit < limit
            for connection, limit in zip((first, second), before, strict=True)
        ]
        assert sorted(changed) == [False, True]


async def test_a_silent_connection_is_replaced(tmp_path: Path) -> None:
    """As behind a firewall that dropped the connection: no rejection and no response."""
    async with open_apns_harness(tmp_path, connections=1, response_timeout=0.3) as apns:
        transport = apns.gateway._transport
        assert transport is not None
        tokens = apns.tokens(5)
        assert (await apns.gateway.send(update_push(tokens[0]))).is_delivered
        before = transport.pool.connections[0].client
        apns.simulator.faults.add(PushFault(delay=3600, times=5))
        results = await send_all(apns.gateway, [update_push(token) for token in tokens])
        assert {result.outcome for _, result in results} == {PushOutcome.DELIVERED}
        assert max(result.attempts for _, result in results) > 1
        assert transport.pool.connections[0].client is not before
        assert apns.simulator.log.connections >= 2


async def test_a_cancelled_push_releases_its_slot(apns: ApnsHarness) -> None:
    """The next push to the token is sent."""
    token = apns.token()
    apns.simulator.faults.add(PushFault(token=token, delay=30))
    apns.simulator.faults.applied.clear()
    sending = asyncio.create_task(apns.gateway.send(update_push(token, 1)))
    transport = apns.gateway._transport
    assert transport is not None
    await apns.simulator.faults.applied.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert transport.pool.in_flight == 0
    assert (await apns.gateway.send(update_push(token, 2))).is_delivered
