"""Measures a live match with many followers, from a ball in the feed to the last push.

The store is SQLite with one Live Activity per follower; the APNs simulator runs in a separate
process. The time starts when the changed feed is polled (in production up to 2.5 s later) and ends
with the response to the last push. In the same run, in alternation, the raw HTTP/2 client sends as
many pushes of the same size and does nothing else. Both run with the garbage collection and the
thread switching of `tally serve`. With a broadcast channel, one request reaches all followers.
"""

import secrets
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from bench.live_harness import (
    LiveHarness,
    LocalScores,
    create_activities,
    open_live_harness,
    server_interpreter,
)
from bench.push import (
    make_client,
    resident_megabytes,
    run_simulator,
    share_provider_token,
    through_clients,
)
from bench.rounds import Line, measure_alternately
from tally.cricket.apns.gateway import ApnsGateway, open_apns
from tally.cricket.model.push import Priority, PushResult
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.settings import Settings

FOLLOWERS: Final = 100_000
MAX_ROUNDS: Final = 3
MATCHES: Final = (1, 10, 20)
# The share of the raw client's rate: of one match, and of several at a time.
_MIN_SHARES: Final = {1: 0.8}
_MIN_SHARE: Final = 0.7
_SECTION: Final = "a live match with followers"


@dataclass(frozen=True, slots=True)
class Crowd:
    """A number of followers, distributed over a number of matches."""

    followers: int
    matches: int

    def __str__(self) -> str:
        noun = "match" if self.matches == 1 else "matches"
        return f"{self.followers:,} followers of {self.matches} {noun}"


class TimedGateway:
    """Wraps the gateway and records the time of the last response to a broadcast."""

    def __init__(self, gateway: ApnsGateway) -> None:
        self._gateway = gateway
        self.broadcast_at = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gateway, name)

    async def broadcast(
        self, channel_id: str, payload: bytes, *, priority: Priority, expiration: int = 0
    ) -> PushResult:
        result = await self._gateway.broadcast(
            channel_id, payload, priority=priority, expiration=expiration
        )
        if not result.is_delivered:
            raise AssertionError(f"a broadcast was not delivered: {result.status} {result.reason}")
        self.broadcast_at = time.perf_counter()
        return result


async def live(rounds: int, followers: int = FOLLOWERS) -> AsyncIterator[Line]:
    """Measure one, ten and twenty matches with the same number of followers, then a channel."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory, server_interpreter():
        async with (
            run_simulator(Path(directory)) as settings,
            open_apns(settings, SystemClock(), Metrics()) as gateway,
        ):
            await share_provider_token(gateway, settings)
            for matches in MATCHES:
                async with open_live_harness(
                    Path(directory) / f"store-{matches}", gateway, LocalScores(matches)
                ) as harness:
                    yield await _measure_tokens(
                        harness, settings, Crowd(followers, matches), min(rounds, MAX_ROUNDS)
                    )
            yield await _measure_channel(Path(directory) / "store-channel", gateway, followers)


async def _measure_tokens(
    harness: LiveHarness, settings: Settings, crowd: Crowd, rounds: int
) -> Line:
    clients = [make_client(settings) for _ in range(settings.cricket_apns_connections)]
    await create_activities(harness.tables.activities, harness.scores.match_ids, crowd.followers)
    await harness.deliver_ball()
    before = peak = resident_megabytes()
    seconds: list[float] = []

    async def ours() -> int:
        nonlocal peak
        started = time.perf_counter()
        await harness.deliver_ball()
        seconds.append(time.perf_counter() - started)
        peak = max(peak, resident_megabytes())
        return crowd.followers

    async def raw() -> int:
        tokens = (secrets.token_hex(80) for _ in range(crowd.followers))
        return await through_clients(clients, settings, tokens, _payload(harness))

    mine, theirs, ratio = await measure_alternately(ours, raw, rounds)
    for client in clients:
        await client.close()
    share = _MIN_SHARES.get(crowd.matches, _MIN_SHARE)
    note = (
        f"{min(seconds):.1f} to {max(seconds):.1f} s from the feed to the last push; "
        f"{1e6 / mine:,.0f}/s, raw {1e6 / theirs:,.0f}/s; "
        f"{before:.0f} MB before, {peak:.0f} MB after"
    )
    return Line(
        _SECTION,
        f"{crowd}, by token",
        mine,
        "raw client",
        theirs,
        ratio,
        f"{share:.0%} of raw",
        ratio <= 1 / share,
        note,
    )


async def _measure_channel(place: Path, gateway: ApnsGateway, followers: int) -> Line:
    """Measure one broadcast to subscribers of the channel, and the scan for other devices."""
    timed = TimedGateway(gateway)
    async with open_live_harness(place, cast("ApnsGateway", timed), LocalScores(1)) as harness:
        (match_id,) = harness.scores.match_ids
        channel_id = await gateway.create_channel()
        await harness.deliver_ball()
        await harness.tables.matches.set_channel(match_id, channel_id)
        await create_activities(harness.tables.activities, [match_id], followers, channel_id)
        await harness.deliver_ball()
        reached, done = [], []
        for _ in range(MAX_ROUNDS):
            started = time.perf_counter()
            await harness.deliver_ball()
            reached.append(timed.broadcast_at - started)
            done.append(time.perf_counter() - started)
        microseconds = min(reached) / followers * 1e6
        note = (
            f"{min(reached) * 1000:.0f} to {max(reached) * 1000:.0f} ms from the feed to the one "
            f"request that reaches all; {min(done):.1f} s to scan all devices"
        )
        return Line(
            _SECTION, f"{Crowd(followers, 1)}, by channel", microseconds, "", 0, 0, "", None, note
        )


def _payload(harness: LiveHarness) -> bytes:
    """Return the payload of the last update."""
    live_match = next(iter(harness.workers.live_matches.values()))
    update = live_match.fan_out.update
    if update is None:
        raise AssertionError("nothing has been delivered")
    return update.payload("neutral", None)
