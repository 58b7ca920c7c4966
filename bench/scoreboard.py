"""The scoreboard over HTTP with a million players, beside PostgreSQL and Redis doing the same statements in the same run.

Goals at 200 requests a second: PATCH /scores with a p99 under 100 ms, GET /leaderboard under 50 ms;
and every update at each of
1,000 watchers of two server processes within 200 ms, p99. The servers are real processes; this one makes the load and watches.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.load import Load, at_full_speed, at_rate
from bench.programs import Program
from bench.rounds import Line
from bench.scoreboard_world import Player, Trade, World, scoreboard_world
from bench.watchers import Watcher, watch
from tally.kit.clock import SystemClock
from tally.scoreboard.model import Score, ScoreChange

_PER_SECOND = 200
_CLIENTS = 8
_SIGNED_IN = 1_000
_WATCHERS = 1_000
_UPDATES = 60
_APART = 0.2


async def scoreboard(seconds: int, players: int) -> AsyncIterator[Line]:
    """Updates, reads and watchers, with so many players on the board."""
    section = f"scoreboard over HTTP, {players:,} players"
    with tempfile.TemporaryDirectory(
        prefix="tally-bench-", ignore_cleanup_errors=True
    ) as directory:
        async with scoreboard_world(Path(directory)) as world:
            await world.fill(players)
            begun = time.perf_counter()
            built = await world.rebuild()
            yield _rebuilt(section, built, time.perf_counter() - begun)
            signed_in = await world.sign_in(min(_SIGNED_IN, players))
            await _warm_up(world, signed_in)
            yield await _updates(section, world, signed_in, seconds)
            yield await _updates_without_redis(section, world, signed_in, seconds)
            yield await _updates_at_full_speed(section, world, signed_in, 100 * seconds)
            yield await _reads(section, world, seconds)
            yield await _reads_at_full_speed(section, world, 200 * seconds)
            yield await _watched(section, world, signed_in)


def _rebuilt(section: str, players: int, seconds: float) -> Line:
    each = seconds / max(players, 1) * 1e6
    return Line(
        section,
        "board rebuilt, a player",
        each,
        "",
        0,
        0,
        note=f"{players:,} players in {seconds:.1f} s, while it is read",
    )


async def _warm_up(world: World, players: list[Player]) -> None:
    """Every session is in the caches, and every statement is prepared, before anything is measured."""
    await at_full_speed(world.patch, await world.trades(players, len(players)), _CLIENTS)
    await at_full_speed(_raw_update(world), await world.trades(players, 200), _CLIENTS)
    await at_full_speed(lambda _: world.get("/leaderboard?limit=10"), range(200), _CLIENTS)


async def _updates(section: str, world: World, players: list[Player], seconds: int) -> Line:
    ours, used, refused = await _at_the_rate(world, players, seconds, world.programs[0])
    peer = await at_rate(
        _raw_update(world), await world.trades(players, _PER_SECOND * seconds), _PER_SECOND
    )
    line = _held(
        section,
        f"PATCH /scores, {_PER_SECOND} a second",
        ours,
        ("PostgreSQL, Redis", peer),
        most=0.1,
        used=used,
    )
    return replace(line, met=False, note=f"{line.note}; {refused} refused") if refused else line


async def _updates_without_redis(
    section: str, world: World, players: list[Player], seconds: int
) -> Line:
    """Slower, and none refused: PostgreSQL counts ranks for all who wait at once."""
    ours, used, refused = await _at_the_rate(world, players, seconds, world.without_redis)
    note = f"{ours.describe()}, {used:.0f} µs of the server's processor each; {refused} refused"
    what = f"PATCH /scores, {_PER_SECOND} a second, Redis away"
    return Line(
        section, what, ours.quantile(0.5) * 1e6, "", 0, 0, "none refused", not refused, note
    )


async def _at_the_rate(
    world: World, players: list[Player], seconds: int, server: Program
) -> tuple[Load, float, int]:
    """Updates through one server; its processor time for each in microseconds, and how many it refused."""
    refused = []

    async def send(trade: Trade) -> None:
        # A machine that is too busy makes the server refuse some, which is a goal missed and no
        # reason to stop.
        try:
            await world.patch(trade, server)
        except AssertionError as error:
            refused.append(error)

    used = server.cpu_seconds()
    ours = await at_rate(send, await world.trades(players, _PER_SECOND * seconds), _PER_SECOND)
    return ours, (server.cpu_seconds() - used) / ours.count * 1e6, len(refused)


async def _updates_at_full_speed(
    section: str, world: World, players: list[Player], count: int
) -> Line:
    ours = await at_full_speed(world.patch, await world.trades(players, count), _CLIENTS)
    peer = await at_full_speed(_raw_update(world), await world.trades(players, count), _CLIENTS)
    return _compared(
        section, f"PATCH /scores, as fast as {_CLIENTS} clients go", ours, "PostgreSQL, Redis", peer
    )


async def _reads(section: str, world: World, seconds: int) -> Line:
    asks = [
        f"/leaderboard?limit=10&offset={world.chance.randrange(0, 1000)}"
        for _ in range(_PER_SECOND * seconds)
    ]
    used = world.programs[0].cpu_seconds()
    ours = await at_rate(world.get, asks, _PER_SECOND)
    used = (world.programs[0].cpu_seconds() - used) / ours.count * 1e6
    peer = await at_rate(_raw_read(world), range(_PER_SECOND * seconds), _PER_SECOND)
    return _held(
        section,
        f"GET /leaderboard, {_PER_SECOND} a second",
        ours,
        ("Redis", peer),
        most=0.05,
        used=used,
    )


async def _reads_at_full_speed(section: str, world: World, count: int) -> Line:
    ours = await at_full_speed(world.get, ["/leaderboard?limit=10"] * count, _CLIENTS)
    peer = await at_full_speed(_raw_read(world), range(count), _CLIENTS)
    return _compared(
        section, f"GET /leaderboard, as fast as {_CLIENTS} clients go", ours, "Redis", peer
    )


def _raw_update(world: World) -> Callable[[Trade], Awaitable[None]]:
    """What an update comes to on the servers: the transaction, the answer kept, and the script that moves the player."""
    clock = SystemClock()

    async def send(trade: Trade) -> None:
        now = clock.now()
        change = ScoreChange(trade.token_hash, trade.action_id, trade.player.user_id, 50, now, now)
        applied = await world.scores.apply(change)
        await world.board.put(
            Score(applied.user_id, applied.username, applied.score_after, applied.at)
        )
        await world.scores.store_response(trade.token_hash, b"x" * 160)

    return send


def _raw_read(world: World) -> Callable[[Any], Awaitable[object]]:
    return lambda _: world.board.top(10, world.chance.randrange(0, 1000))


def _held(
    section: str, what: str, ours: Load, peer: tuple[str, Load], *, most: float, used: float
) -> Line:
    name, raw = peer
    is_held = ours.meets(_PER_SECOND, most)
    mine, theirs = ours.quantile(0.5) * 1e6, raw.quantile(0.5) * 1e6
    goal = f"p99 < {most * 1000:.0f} ms"
    note = f"{ours.describe()}, {used:.0f} µs of the server's processor each; raw: {raw.describe()}"
    return Line(section, what, mine, name, theirs, mine / theirs, goal, is_held, note)


def _compared(section: str, what: str, ours: Load, name: str, peer: Load) -> Line:
    mine, theirs = 1e6 / ours.rate, 1e6 / peer.rate
    return Line(
        section,
        what,
        mine,
        name,
        theirs,
        mine / theirs,
        note=f"{ours.describe()}; raw: {peer.describe()}",
    )


async def _watched(section: str, world: World, players: list[Player]) -> Line:
    """Updates one by one, through one server and the other in turn; each must reach every watcher of both."""
    leader = await _leader(world, players[0])
    watchers: list[Watcher] = []
    for program in world.programs:
        watchers += await watch(program.url, _WATCHERS // len(world.programs))
    sent: dict[int, float] = {}
    trades = await world.trades([players[0]], _UPDATES, points=1)
    for number, trade in enumerate(trades, start=1):
        sent[leader + number] = time.perf_counter()
        await world.patch(trade, world.programs[number % len(world.programs)])
        await asyncio.sleep(_APART)
    await asyncio.sleep(1)
    late = sorted(
        watcher.seen.get(score, float("inf")) - at
        for watcher in watchers
        for score, at in sent.items()
    )
    p50, p99, most = late[len(late) // 2], late[int(0.99 * len(late))], late[-1]
    missed = sum(1 for each in late if each == float("inf"))
    note = (
        f"{len(watchers):,} watchers, {len(world.programs)} processes, {len(sent)} updates: p50 {p50 * 1000:.1f} ms,"
        f" p99 {p99 * 1000:.1f} ms, longest {most * 1000:.1f} ms from the request on; {missed} missed"
    )
    return Line(
        section,
        "an update at a watcher, p99",
        p99 * 1e6,
        "p50",
        p50 * 1e6,
        p99 / p50,
        "p99 < 200 ms",
        p99 < 0.2,
        note,
    )


async def _leader(world: World, player: Player) -> int:
    """Put the player far ahead of everyone, and say with how many points."""
    await world.database.value(
        "bench", "UPDATE scores SET total_score = 50000000 WHERE user_id = $1", player.user_id
    )
    [trade] = await world.trades([player], 1, points=1)
    await world.patch(trade)
    return 50_000_001
