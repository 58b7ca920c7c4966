"""Trouble on the way to Apple: survived with nothing lost, nothing out of order, and nothing sent twice without need."""

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
from tests.cricket.apns_harness import Apple, apple_nearby, number_in, send_all, update

MANY = 300


@pytest.fixture(scope="module")
async def _apple(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Apple]:
    async with apple_nearby(tmp_path_factory.mktemp("apple")) as apple:
        yield apple


@pytest.fixture
def apple(_apple: Apple) -> Apple:
    _apple.sim.faults.clear()
    _apple.sim.log.clear()
    return _apple


def taken(apple: Apple) -> Counter[str]:
    """How often Apple has taken a push for each token."""
    return Counter(seen.target for seen in apple.sim.log.entries if seen.status == 200)


# What goes wrong, and how many pushes at most Apple may have had without our knowing, so that they
# come twice.
TROUBLES = {
    "429": (PushFault(status=429, reason="TooManyRequests", times=20, skip=50), 0),
    "503": (PushFault(status=503, reason="ServiceUnavailable", times=40, skip=50), 0),
    "500": (PushFault(status=500, reason="InternalServerError", times=20, skip=50), 0),
    "503 with a wish": (
        PushFault(status=503, reason="Shutdown", times=3, skip=10, retry_after=0),
        0,
    ),
    "graceful goaway": (PushFault(goaway="graceful", times=3, skip=60), 0),
    "abrupt goaway": (PushFault(goaway="abrupt", times=2, skip=100), MANY),
    "connection cut before": (PushFault(cut="before", skip=100), MANY),
    "connection cut after": (PushFault(cut="after", skip=100, times=2), MANY),
    "stream refused": (PushFault(reset="refused", times=10, skip=30), 0),
    "stream failed": (PushFault(reset="failed", times=10, skip=30), 0),
    "slow": (PushFault(delay=0.2, times=20, skip=30), 0),
    "expired provider token": (
        PushFault(status=403, reason="ExpiredProviderToken", times=30, skip=20),
        0,
    ),
}


@pytest.mark.parametrize("name", TROUBLES)
async def test_every_push_arrives_in_spite_of(apple: Apple, name: str) -> None:
    """Each token has its push at the end, and each push one verdict; twice only where an answer may have been lost."""
    fault, most_repeated = TROUBLES[name]
    apple.sim.faults.add(fault)
    tokens = apple.tokens(MANY)
    verdicts = await send_all(apple.gateway, [update(token) for token in tokens], concurrency=100)
    assert sorted(push.token for push, _ in verdicts) == sorted(tokens)
    assert {verdict.outcome for _, verdict in verdicts} == {PushOutcome.DELIVERED}
    arrived = taken(apple)
    assert set(arrived) == set(tokens)
    assert sum(arrived.values()) - MANY <= most_repeated
    assert apple.sim.faults.pending == []


async def test_the_order_of_a_tokens_pushes_is_kept_in_trouble(apple: Apple) -> None:
    """Whatever is tried again, a later push to the same token waits for it."""
    tokens = apple.tokens(20)
    for fault in (
        PushFault(status=503, reason="ServiceUnavailable", times=60, skip=20),
        PushFault(cut="before", skip=150),
    ):
        apple.sim.faults.add(fault)
    pushes = [update(token, number) for number in range(15) for token in tokens]
    verdicts = await send_all(apple.gateway, pushes, concurrency=150)
    assert {verdict.outcome for _, verdict in verdicts} == {PushOutcome.DELIVERED}
    for token in tokens:
        numbers = [number_in(payload) for payload in apple.sim.log.payloads(token)]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(15))


async def test_a_waiting_state_gives_way_to_a_newer_one(apple: Apple) -> None:
    """Never an old score after a new one, and no time spent on the old."""
    token = apple.token()
    apple.sim.faults.add(
        PushFault(token=token, status=503, reason="ServiceUnavailable", times=1, retry_after=3)
    )
    first = asyncio.create_task(apple.gateway.send(update(token, 1, is_replaceable=True)))
    await apple.sim.log.wait_until(lambda record: record.total == 1)
    rest = [
        asyncio.create_task(apple.gateway.send(update(token, number, is_replaceable=True)))
        for number in (2, 3, 4)
    ]
    verdicts = [await task for task in (first, *rest)]
    assert [verdict.outcome for verdict in verdicts] == [PushOutcome.SUPERSEDED] * 3 + [
        PushOutcome.DELIVERED
    ]
    assert [number_in(payload) for payload in apple.sim.log.payloads(token)] == [4]


async def test_what_is_no_state_is_never_given_up_for_another(apple: Apple) -> None:
    """Two starts to one phone are two matches."""
    token = apple.token()
    apple.sim.faults.add(PushFault(token=token, status=503, reason="ServiceUnavailable", times=2))
    verdicts = await asyncio.gather(
        *(apple.gateway.send(update(token, number)) for number in (1, 2))
    )
    assert [verdict.outcome for verdict in verdicts] == [PushOutcome.DELIVERED] * 2
    assert [number_in(payload) for payload in apple.sim.log.payloads(token)] == [1, 2]


async def test_broadcasts_to_a_channel_keep_their_order_and_the_newest_wins(apple: Apple) -> None:
    channel = await apple.gateway.create_channel()
    apple.sim.faults.add(PushFault(token=channel, status=503, reason="ServiceUnavailable", times=1))
    sends = [
        apple.gateway.broadcast(channel, update("", number).payload, priority=5)
        for number in (1, 2, 3)
    ]
    verdicts = await asyncio.gather(*sends)
    assert verdicts[-1].is_delivered
    assert number_in(apple.sim.log.payloads(channel)[-1]) == 3


async def test_patience_ends_and_the_push_comes_back_as_one_to_retry(apple: Apple) -> None:
    """With how long to wait, so that whoever sent it can decide."""
    token = apple.token()
    apple.sim.faults.add(
        PushFault(token=token, status=503, reason="ServiceUnavailable", times=None, retry_after=7)
    )
    verdict = await apple.gateway.send(update(token))
    assert (verdict.outcome, verdict.status, verdict.attempts) == (PushOutcome.RETRY, 503, 1)
    assert verdict.retry_after >= 7


async def test_a_service_that_is_away_costs_no_push(tmp_path: Path) -> None:
    """Nobody listens for a while; the verdicts say so, and later pushes get through by themselves."""
    patient = RetryPolicy(attempts=3, base=0.005, cap=0.01, deadline=2)
    async with apple_nearby(tmp_path, patience=patient) as apple:
        token = apple.token()
        assert (await apple.gateway.send(update(token))).is_delivered
        apple.sim.faults.add(PushFault(cut="before", times=None))
        away = await apple.gateway.send(update(token))
        assert (away.outcome, away.status) == (PushOutcome.RETRY, 0)
        apple.sim.faults.clear()
        assert (await apple.gateway.send(update(token))).is_delivered


async def test_every_connection_lost_in_the_middle_of_a_stream_loses_no_push(apple: Apple) -> None:
    """As when the network goes away for a moment, several times."""
    tokens = apple.tokens(MANY)

    async def streamed() -> AsyncIterator[Push]:
        for number, token in enumerate(tokens):
            if number in {100, 180, 250}:
                apple.sim.drop_connections()
            yield update(token)

    async with aclosing(apple.gateway.send_all(streamed(), 40)) as found:
        outcomes = Counter([verdict.outcome async for _, verdict in found])
    assert outcomes == {PushOutcome.DELIVERED: MANY}
    assert set(taken(apple)) == set(tokens)


async def test_the_provider_token_is_renewed_within_its_hour_and_after_a_403(
    tmp_path: Path,
) -> None:
    """Over two hours no push meets an expired token; and one that Apple calls expired all the same is replaced."""
    clock = ManualClock(datetime(2026, 1, 1, 10, 5, tzinfo=UTC))
    async with apple_nearby(tmp_path, clock) as apple:
        token = apple.token()
        for _ in range(24):
            assert (await apple.gateway.send(update(token))).is_delivered
            await clock.advance(300)
        assert set(apple.sim.log.counts) == {(200, "")}
        apple.sim.faults.add(PushFault(token=token, status=403, reason="ExpiredProviderToken"))
        await clock.advance(1300)
        sending = asyncio.create_task(apple.gateway.send(update(token)))
        await clock.until_sleeping()
        await clock.advance(1)
        verdict = await sending
        assert (verdict.outcome, verdict.attempts) == (PushOutcome.DELIVERED, 2)


async def test_one_slow_connection_does_not_hold_up_the_other(tmp_path: Path) -> None:
    """Trouble slows down the connection it came on, and that one alone."""
    async with apple_nearby(tmp_path, connections=2) as apple:
        transport = apple.gateway._transport
        assert transport is not None
        first, second = transport.pool.connections
        token = apple.token()
        apple.sim.faults.add(
            PushFault(token=token, status=503, reason="ServiceUnavailable", times=1)
        )
        before = (first.limit, second.limit)
        await apple.gateway.send(update(token))
        changed = [lane.limit < limit for lane, limit in zip((first, second), before, strict=True)]
        assert sorted(changed) == [False, True]


async def test_a_connection_that_has_gone_silent_is_replaced(tmp_path: Path) -> None:
    """Nothing is refused and nothing answered, as behind a firewall that forgot the connection: another one is taken."""
    async with apple_nearby(tmp_path, connections=1, answer_seconds=0.3) as apple:
        transport = apple.gateway._transport
        assert transport is not None
        tokens = apple.tokens(5)
        assert (await apple.gateway.send(update(tokens[0]))).is_delivered
        before = transport.pool.connections[0].client
        apple.sim.faults.add(PushFault(delay=3600, times=5))
        verdicts = await send_all(apple.gateway, [update(token) for token in tokens])
        assert {verdict.outcome for _, verdict in verdicts} == {PushOutcome.DELIVERED}
        assert max(verdict.attempts for _, verdict in verdicts) > 1
        assert transport.pool.connections[0].client is not before
        assert apple.sim.log.connections >= 2


async def test_a_cancelled_push_leaves_no_trace(apple: Apple) -> None:
    """Its place on the connection is free again, and the next push to the token goes out."""
    token = apple.token()
    apple.sim.faults.add(PushFault(token=token, delay=30))
    apple.sim.faults.applied.clear()
    sending = asyncio.create_task(apple.gateway.send(update(token, 1)))
    transport = apple.gateway._transport
    assert transport is not None
    await apple.sim.faults.applied.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert transport.pool.in_flight == 0
    assert (await apple.gateway.send(update(token, 2))).is_delivered
