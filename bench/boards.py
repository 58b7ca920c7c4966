"""Benchmarks named boards: 100 boards of 10,000 players beside a million on the global board.

Targets at 200 requests per second: PATCH /scores, on the global board and two named ones, with a
p99 below 100 ms, and GET /boards/{id} below 50 ms. While a board with as many players as the global
one is reset, no request takes more than 500 ms. The memory of Redis and the disk of PostgreSQL are
stated per player of a board.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.load import Load, at_rate
from bench.rounds import Line
from bench.scoreboard_harness import ScoreboardHarness, run_scoreboard

_RATE = 200
_BOARDS = 100
_BOARD_PLAYERS = 10_000
_BIG = "big"
_SECONDS_PER_MINUTE = 60

_CREATE = """
INSERT INTO boards (id, name, is_ascending, operator, created_at, season_started_at, schedule,
    time_zone, season_ends_at)
SELECT id, id, false, 'sum', now(), now(), '0 0 1 1 *', 'UTC', now() + interval '300 days'
FROM unnest($1::text[]) AS ids (id)
"""
_ADD_BANDS = """
INSERT INTO rank_bands SELECT id, 1, 9223372036854775807, '-infinity',
    'ffffffff-ffff-ffff-ffff-ffffffffffff', 0 FROM unnest($1::text[]) AS ids (id)
"""
# Ordered, because PostgreSQL begins scans of large tables where others are, so that parts overlap.
_FILL = """
INSERT INTO board_scores (user_id, board, season, total_score, score_first_reached_at)
SELECT user_id, $1, 1, (random() * 1000000)::bigint, now() - random() * interval '1 day'
FROM (SELECT user_id FROM scores ORDER BY user_id OFFSET $2 LIMIT $3) players
"""
_SIZE = "SELECT pg_total_relation_size('board_scores') + pg_total_relation_size('rank_bands')"
_SET_BOARDS = "UPDATE completed_actions SET boards = $1 WHERE action_id = ANY($2)"
_END_SEASON = "UPDATE boards SET season_ends_at = now() + interval '3 seconds' WHERE id = $1"


async def named_boards(seconds: int, players: int) -> AsyncIterator[Line]:
    """Measure updates, reads and a reset with this many players."""
    section = f"named boards, {players:,} players on the global board"
    with tempfile.TemporaryDirectory(
        prefix="tally-bench-", ignore_cleanup_errors=True
    ) as directory:
        async with run_scoreboard(Path(directory), servers=1) as harness:
            await harness.create_players(players)
            yield await _fill(section, harness, players)
            await harness.rebuild()
            await _wait_for_copies(harness)
            yield _memory(section, await _redis_bytes(harness, _BIG), players)
            yield await _updates(section, harness, seconds)
            yield await _reads(section, harness, seconds)
            yield await _reset(section, harness, players)


def board_id(number: int) -> str:
    return f"board-{number % _BOARDS}"


async def _fill(section: str, harness: ScoreboardHarness, players: int) -> Line:
    """Create the boards and their players, and measure the disk that they need."""
    size = await harness.database.value("bench", _SIZE)
    rows = min(_BOARD_PLAYERS, players)
    boards = [board_id(number) for number in range(_BOARDS)]
    await harness.database.value("bench", _ADD_BANDS, [*boards, _BIG])
    for number, board in enumerate(boards):
        offset = number * rows % max(1, players - rows + 1)
        await harness.database.value("bench", _FILL, board, offset, rows)
    for offset in range(0, players, 100_000):
        await harness.database.value("bench", _FILL, _BIG, offset, 100_000)
    await harness.database.value("bench", "ANALYZE board_scores")
    # Last, because the server copies a board to Redis as soon as it exists.
    await harness.database.value("bench", _CREATE, [*boards, _BIG])
    total = len(boards) * rows + players
    per_player = (await harness.database.value("bench", _SIZE) - size) / total
    return Line(
        section,
        "disk of PostgreSQL",
        0,
        "",
        0,
        0,
        note=f"{per_player:.0f} bytes per player of a board, with its indexes, before vacuum",
    )


async def _wait_for_copies(harness: ScoreboardHarness) -> None:
    """Wait until the server has copied every board to Redis, and ranks have been counted."""
    names = [f"leaderboard:{board_id(number)}:1:changed_at" for number in range(_BOARDS)]
    names.append(f"leaderboard:{_BIG}:1:changed_at")
    deadline = time.monotonic() + 10 * _SECONDS_PER_MINUTE
    while time.monotonic() < deadline:
        async with harness.cache.redis.use("bench") as client:
            copies = int(await client.exists(*names))
        changes = await harness.database.value("bench", "SELECT count(*) FROM rank_changes")
        if copies == len(names) and changes == 0:
            return
        await asyncio.sleep(0.5)
    raise TimeoutError("The boards were not copied to Redis within ten minutes")


async def _redis_bytes(harness: ScoreboardHarness, board: str) -> int:
    names = (f"leaderboard:{board}:1", f"leaderboard:{board}:1:players")
    async with harness.cache.redis.use("bench") as client:
        sizes = [await client.memory_usage(name, samples=1000) for name in names]
    return sum(int(size or 0) for size in sizes)


def _memory(section: str, size: int, players: int) -> Line:
    note = f"{size / players:.0f} bytes per player of a board ({size / 2**20:.0f} MiB)"
    return Line(section, "memory of Redis", 0, "", 0, 0, note=note)


async def _updates(section: str, harness: ScoreboardHarness, seconds: int) -> Line:
    sessions = await harness.log_in(1000)
    await at_rate(harness.update_score, await harness.prepare_updates(sessions, 1000), _RATE)
    requests = await harness.prepare_updates(sessions, _RATE * seconds)
    for number in range(_BOARDS):
        action_ids = [request.action_id for request in requests[number::_BOARDS]]
        boards = ["global", board_id(number), board_id(number + 1)]
        await harness.database.value("bench", _SET_BOARDS, sorted(boards), action_ids)
    load = await at_rate(harness.update_score, requests, _RATE)
    name = f"PATCH /scores on the global and two named boards, {_RATE} per second"
    return _line(section, name, load, 0.1)


async def _reads(section: str, harness: ScoreboardHarness, seconds: int) -> Line:
    paths = [
        f"/boards/{board_id(number)}?limit=10&offset={harness.random.randrange(1000)}"
        for number in range(_RATE * seconds)
    ]
    load = await at_rate(harness.get, paths, _RATE)
    return _line(section, f"GET /boards/{{id}}, {_RATE} per second", load, 0.05)


def _line(section: str, name: str, load: Load, max_p99: float) -> Line:
    target = f"p99 < {max_p99 * 1000:.0f} ms"
    is_met = load.meets(_RATE, max_p99)
    return Line(section, name, load.quantile(0.5) * 1e6, "", 0, 0, target, is_met, load.describe())


async def _reset(section: str, harness: ScoreboardHarness, players: int) -> Line:
    """Read and update the big board at a constant rate while its season closes."""
    seconds = 10
    sessions = await harness.log_in(1000)
    requests = await harness.prepare_updates(sessions, _RATE // 2 * seconds)
    action_ids = [request.action_id for request in requests]
    await harness.database.value("bench", _SET_BOARDS, [_BIG], action_ids)
    await harness.database.value("bench", _END_SEASON, _BIG)
    updates, reads = await asyncio.gather(
        at_rate(harness.update_score, requests, _RATE // 2),
        at_rate(harness.get, [f"/boards/{_BIG}"] * len(requests), _RATE // 2),
    )
    season = await harness.database.value("bench", "SELECT season FROM boards WHERE id = $1", _BIG)
    if season != 2:
        raise AssertionError(f"the board is in season {season}")
    longest = max(updates.latencies[-1], reads.latencies[-1])
    return Line(
        section,
        f"requests while {players:,} players are reset",
        longest * 1e6,
        "",
        0,
        0,
        "maximum < 500 ms",
        longest < 0.5,
        f"PATCH: {updates.describe()}, maximum {updates.latencies[-1] * 1000:.0f} ms;"
        f" GET: {reads.describe()}, maximum {reads.latencies[-1] * 1000:.0f} ms",
    )
