"""Benchmarks the scoreboard over HTTP, next to the same statements on PostgreSQL and Redis.

Targets at 200 requests per second: PATCH /scores with a p99 below 100 ms and, without Redis, below
250 ms; GET /leaderboard below 50 ms. Each update reaches 1,000 subscribers of two server processes
within 200 ms (p99). The servers are separate processes; this process generates the load and
subscribes.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.load import Load, RequestsFailed, at_full_speed, at_rate
from bench.programs import Program
from bench.rounds import Line
from bench.scoreboard_harness import (
    Player,
    ScoreboardHarness,
    ScoreUpdateRequest,
    run_scoreboard,
)
from bench.stream_subscribers import StreamSubscriber, subscribe
from tally.kit.clock import SystemClock
from tally.scoreboard.model.scores import ScoreChange

_RATE = 200
_CLIENTS = 8
_SESSIONS = 1_000
_SUBSCRIBERS = 1_000
_UPDATES = 60
_UPDATE_INTERVAL_SECONDS = 0.2


async def scoreboard(seconds: int, players: int) -> AsyncIterator[Line]:
    """Measure a rebuild, updates, reads and stream delivery with this many players."""
    section = f"scoreboard over HTTP, {players:,} players"
    with tempfile.TemporaryDirectory(
        prefix="tally-bench-", ignore_cleanup_errors=True
    ) as directory:
        async with run_scoreboard(Path(directory)) as harness:
            await harness.create_players(players)
            started = time.perf_counter()
            rebuilt = await harness.rebuild()
            yield _rebuild(section, rebuilt, time.perf_counter() - started)
            sessions = await harness.log_in(min(_SESSIONS, players))
            await warm_up(harness, sessions)
            yield await _updates(section, harness, sessions, seconds)
            yield await _updates_without_redis(section, harness, sessions, seconds)
            yield await _reads(section, harness, seconds)
            yield await _delivery(section, harness, sessions)


def _rebuild(section: str, players: int, seconds: float) -> Line:
    return Line(
        section,
        "leaderboard rebuild, per player",
        seconds / max(players, 1) * 1e6,
        "",
        0,
        0,
        note=f"{players:,} players in {seconds:.1f} s, online",
    )


async def warm_up(harness: ScoreboardHarness, players: list[Player]) -> None:
    """Fill the session caches and prepare all statements before measuring."""
    requests = await harness.prepare_updates(players, len(players))
    await at_full_speed(harness.update_score, requests, _CLIENTS)
    await at_full_speed(raw_update(harness), await harness.prepare_updates(players, 200), _CLIENTS)
    await at_full_speed(lambda _: harness.get("/leaderboard?limit=10"), range(200), _CLIENTS)


async def _updates(
    section: str, harness: ScoreboardHarness, players: list[Player], seconds: int
) -> Line:
    ours, cpu = await _updates_at_rate(harness, players, seconds, harness.programs[0])
    requests = await harness.prepare_updates(players, _RATE * seconds)
    peer = await at_rate(raw_update(harness), requests, _RATE)
    return _compare_latency(
        section,
        f"PATCH /scores, {_RATE} per second",
        ours,
        ("PostgreSQL, Redis", peer),
        max_p99=0.1,
        cpu=cpu,
    )


async def _updates_without_redis(
    section: str, harness: ScoreboardHarness, players: list[Player], seconds: int
) -> Line:
    """Measure updates while PostgreSQL computes the ranks, from counts per band."""
    ours, cpu = await _updates_at_rate(harness, players, seconds, harness.without_redis)
    return Line(
        section,
        f"PATCH /scores, {_RATE} per second, without Redis",
        ours.quantile(0.5) * 1e6,
        "",
        0,
        0,
        "p99 < 250 ms",
        ours.meets(_RATE, 0.25),
        f"{ours.describe()}, {cpu:.0f} µs of server CPU time each",
    )


async def _updates_at_rate(
    harness: ScoreboardHarness, players: list[Player], seconds: int, server: Program
) -> tuple[Load, float]:
    """Return the load, and the server's CPU time per update in µs."""
    requests = await harness.prepare_updates(players, _RATE * seconds)
    cpu = server.cpu_seconds()
    ours = await at_rate(partial(harness.update_score, server=server), requests, _RATE)
    return ours, (server.cpu_seconds() - cpu) / ours.count * 1e6


async def _reads(section: str, harness: ScoreboardHarness, seconds: int) -> Line:
    paths = [
        f"/leaderboard?limit=10&offset={harness.random.randrange(0, 1000)}"
        for _ in range(_RATE * seconds)
    ]
    cpu = harness.programs[0].cpu_seconds()
    ours = await at_rate(harness.get, paths, _RATE)
    cpu = (harness.programs[0].cpu_seconds() - cpu) / ours.count * 1e6
    peer = await at_rate(_raw_read(harness), range(_RATE * seconds), _RATE)
    return _compare_latency(
        section,
        f"GET /leaderboard, {_RATE} per second",
        ours,
        ("Redis", peer),
        max_p99=0.05,
        cpu=cpu,
    )


def raw_update(harness: ScoreboardHarness) -> Callable[[ScoreUpdateRequest], Awaitable[None]]:
    """Return the storage operations of an update: transaction, Redis script, stored response."""
    clock = SystemClock()

    async def send(request: ScoreUpdateRequest) -> None:
        now = clock.now()
        change = ScoreChange(
            request.token_hash, request.action_id, request.player.user_id, 50, now, now
        )
        applied = await harness.scores.apply(change)
        if applied.score is None:
            raise RequestsFailed(f"{request.action_id} was scored before")
        await harness.cache.put(applied.score)
        await harness.scores.store_response(request.token_hash, b"x" * 160)

    return send


def _raw_read(harness: ScoreboardHarness) -> Callable[[Any], Awaitable[object]]:
    return lambda _: harness.cache.top(10, harness.random.randrange(0, 1000))


def _compare_latency(
    section: str,
    name: str,
    ours: Load,
    peer: tuple[str, Load],
    *,
    max_p99: float,
    cpu: float,
) -> Line:
    peer_name, raw = peer
    our_p50, raw_p50 = ours.quantile(0.5) * 1e6, raw.quantile(0.5) * 1e6
    return Line(
        section,
        name,
        our_p50,
        peer_name,
        raw_p50,
        our_p50 / raw_p50,
        f"p99 < {max_p99 * 1000:.0f} ms",
        ours.meets(_RATE, max_p99),
        f"{ours.describe()}, {cpu:.0f} µs of server CPU time each; raw: {raw.describe()}",
    )


async def _delivery(section: str, harness: ScoreboardHarness, players: list[Player]) -> Line:
    """Measure when updates, sent through alternating servers, reach every subscriber of both."""
    top_score = await _raise_to_top(harness, players[0])
    subscribers: list[StreamSubscriber] = []
    for program in harness.programs:
        subscribers += await subscribe(program.url, _SUBSCRIBERS // len(harness.programs))
    sent_at: dict[int, float] = {}
    requests = await harness.prepare_updates([players[0]], _UPDATES, points=1)
    for number, request in enumerate(requests, start=1):
        sent_at[top_score + number] = time.perf_counter()
        await harness.update_score(request, harness.programs[number % len(harness.programs)])
        await asyncio.sleep(_UPDATE_INTERVAL_SECONDS)
    await asyncio.sleep(1)
    delays = sorted(
        subscriber.received_at.get(score, float("inf")) - sent
        for subscriber in subscribers
        for score, sent in sent_at.items()
    )
    p50, p99, longest = delays[len(delays) // 2], delays[int(0.99 * len(delays))], delays[-1]
    missed = sum(1 for delay in delays if delay == float("inf"))
    if missed:
        raise RequestsFailed(f"{missed} of {len(delays)} updates did not reach a subscriber")
    note = (
        f"{len(subscribers):,} subscribers, {len(harness.programs)} processes,"
        f" {len(sent_at)} updates: p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms,"
        f" maximum {longest * 1000:.1f} ms after the request was sent"
    )
    return Line(
        section,
        "stream delivery, p99",
        p99 * 1e6,
        "p50",
        p50 * 1e6,
        p99 / p50,
        "p99 < 200 ms",
        p99 < 0.2,
        note,
    )


async def _raise_to_top(harness: ScoreboardHarness, player: Player) -> int:
    """Give the player the highest score and return it."""
    await harness.database.value(
        "bench", "UPDATE scores SET total_score = 50000000 WHERE user_id = $1", player.user_id
    )
    [request] = await harness.prepare_updates([player], 1, points=1)
    await harness.update_score(request)
    return 50_000_001
