"""Compares the scoreboard at full speed with the same operations on PostgreSQL and Redis.

Eight connections send one request at a time each. A round runs the storage operations alone before
and after the requests, which cancels a steady change of the machine's load, and lasts a fraction of
a second, since another program's work hits only a few rounds then. The result is the median round.
"""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.http_client import KeepAliveClient, open_client
from bench.load import Send, at_full_speed, merge_loads
from bench.rounds import Line
from bench.scoreboard import raw_update, warm_up
from bench.scoreboard_harness import (
    API,
    Player,
    ScoreboardHarness,
    ScoreUpdateRequest,
    run_scoreboard,
)

_CLIENTS = 8
_PLAYERS = 10_000
_SESSIONS = 1_000
_UPDATES_PER_BURST = 60
_READS_PER_BURST = 150
# Rounds per round of the other benchmarks, whose rounds are longer.
_ROUNDS_FACTOR = 4


async def closed_loops(rounds: int) -> AsyncIterator[Line]:
    """Measure updates and reads of the leaderboard."""
    with tempfile.TemporaryDirectory(
        prefix="tally-bench-", ignore_cleanup_errors=True
    ) as directory:
        async with run_scoreboard(Path(directory), servers=1) as harness:
            await harness.create_players(_PLAYERS)
            await harness.rebuild()
            sessions = await harness.log_in(_SESSIONS)
            await warm_up(harness, sessions)
            headers = {"Content-Type": "application/json"}
            with open_client(harness.programs[0].url, headers) as client:
                for comparison in (
                    _updates(harness, client, sessions),
                    _reads(harness, client),
                ):
                    yield await comparison.run(rounds)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A request, its storage operations alone, the content of a round, and the goal."""

    name: str
    harness: ScoreboardHarness
    send: Send
    send_raw: Send
    prepare: Callable[[], Awaitable[Sequence[Any]]]
    raw_name: str
    percent: int

    async def run(self, rounds: int) -> Line:
        measured = [await self._measure() for _ in range(rounds * _ROUNDS_FACTOR)]
        ours, raw, cpu = (median(column) for column in zip(*measured, strict=True))
        shares = [100 * theirs / mine for mine, theirs, _ in measured]
        low, share, high = quantiles(shares, n=4)
        return Line(
            "scoreboard, closed loop of eight connections",
            self.name,
            ours,
            self.raw_name,
            raw,
            100 / share,
            f"{self.percent} % of raw",
            share >= self.percent,
            f"{share:.0f} % of raw, {low:.0f} to {high:.0f} % in the middle half of {len(shares)}"
            f" rounds; {cpu:.0f} µs of server CPU time each",
        )

    async def _measure(self) -> tuple[float, float, float]:
        """Return the µs of a request, of its storage operations alone, and of server CPU time."""
        server = self.harness.programs[0]
        work = [await self.prepare() for _ in range(4)]
        before = await at_full_speed(self.send_raw, work[0], _CLIENTS)
        cpu = server.cpu_seconds()
        ours = await at_full_speed(self.send, [*work[1], *work[2]], _CLIENTS)
        cpu = server.cpu_seconds() - cpu
        after = await at_full_speed(self.send_raw, work[3], _CLIENTS)
        raw = merge_loads((before, after))
        return 1e6 / ours.rate, 1e6 / raw.rate, cpu / ours.count * 1e6


def _updates(
    harness: ScoreboardHarness, client: KeepAliveClient, players: list[Player]
) -> _Comparison:
    async def update(request: ScoreUpdateRequest) -> None:
        token = request.player.token
        await client.request("PATCH", f"{API}/scores", request.body, token)

    async def prepare() -> list[ScoreUpdateRequest]:
        return await harness.prepare_updates(players, _UPDATES_PER_BURST)

    raw = raw_update(harness)
    return _Comparison("PATCH /scores", harness, update, raw, prepare, "PostgreSQL, Redis", 60)


def _reads(harness: ScoreboardHarness, client: KeepAliveClient) -> _Comparison:
    async def read(offset: int) -> None:
        await client.request("GET", f"{API}/leaderboard?limit=10&offset={offset}")

    async def read_raw(offset: int) -> None:
        await harness.cache.top(10, offset)

    async def prepare() -> list[int]:
        return [harness.random.randrange(0, 1000) for _ in range(_READS_PER_BURST)]

    return _Comparison("GET /leaderboard", harness, read, read_raw, prepare, "Redis", 50)
