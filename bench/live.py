"""A live match with many followers: from a ball in the feed to the last device that shows it.

The store is SQLite with a Live Activity for each follower, the push service a simulator in a
process of its own. Measured from the moment when the feed has changed and is polled (in the program
up to 2.5 s pass until then) to the moment when the last push has been answered. Beside it, in turns
and in the same run, the raw HTTP/2 client sends as many pushes of the same size and does nothing
else. With a broadcast channel, one request reaches everybody.
"""

import secrets
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from bench.live_world import Ground, OnTheAir, fill, ground
from bench.push import agree_on_a_token, client_of, memory, simulated, through_clients
from bench.rounds import Line, measure_alternately
from tally.cricket.apns.gateway import ApnsGateway, open_apns
from tally.cricket.model.push import Priority, PushResult
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.settings import Settings

FOLLOWERS: Final = 100_000
TURNS: Final = 3
MATCHES: Final = (1, 10, 20)
_MAX_RATIO: Final = 1 / 0.7
_SECTION: Final = "a live match with followers"


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many followers of so many matches."""

    followers: int
    matches: int

    def __str__(self) -> str:
        return f"{self.followers:,} followers of {self.matches} {'match' if self.matches == 1 else 'matches'}"


class Watched:
    """The gateway, and when it last had the answer to a broadcast."""

    def __init__(self, gateway: ApnsGateway) -> None:
        self._gateway = gateway
        self.broadcast_at = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gateway, name)

    async def broadcast(
        self, channel_id: str, payload: bytes, *, priority: Priority, expiration: int = 0
    ) -> PushResult:
        verdict = await self._gateway.broadcast(
            channel_id, payload, priority=priority, expiration=expiration
        )
        if not verdict.is_delivered:
            raise AssertionError(f"a broadcast was not taken: {verdict.status} {verdict.reason}")
        self.broadcast_at = time.perf_counter()
        return verdict


async def live(rounds: int, followers: int = FOLLOWERS) -> AsyncIterator[Line]:
    """One match, ten and twenty with the same number of followers in all; then one match on a channel."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with (
            simulated(Path(directory)) as settings,
            open_apns(settings, SystemClock(), Metrics()) as gateway,
        ):
            await agree_on_a_token(gateway, settings)
            for matches in MATCHES:
                async with ground(
                    Path(directory) / f"store-{matches}", gateway, OnTheAir(matches)
                ) as here:
                    yield await _by_tokens(
                        here, settings, Crowd(followers, matches), min(rounds, TURNS)
                    )
            yield await _by_channel(Path(directory) / "store-channel", gateway, followers)


async def _by_tokens(here: Ground, settings: Settings, crowd: Crowd, turns: int) -> Line:
    clients = [client_of(settings) for _ in range(settings.cricket_apns_connections)]
    await fill(here.tables.activities, here.air.match_ids, crowd.followers)
    await here.tell_everyone()
    before = peak = memory()
    seconds: list[float] = []

    async def ours() -> int:
        nonlocal peak
        begun = time.perf_counter()
        await here.tell_everyone()
        seconds.append(time.perf_counter() - begun)
        peak = max(peak, memory())
        return crowd.followers

    async def raw() -> int:
        tokens = (secrets.token_hex(80) for _ in range(crowd.followers))
        return await through_clients(clients, settings, tokens, _payload(here))

    mine, theirs, ratio = await measure_alternately(ours, raw, turns)
    for client in clients:
        await client.close()
    note = (
        f"{min(seconds):.1f} to {max(seconds):.1f} s from the feed to the last push; {1e6 / mine:,.0f}/s, "
        f"raw {1e6 / theirs:,.0f}/s; {before:.0f} MB before, {peak:.0f} MB after"
    )
    return Line(
        _SECTION,
        f"{crowd}, by token",
        mine,
        "raw client",
        theirs,
        ratio,
        "70 % of raw",
        ratio <= _MAX_RATIO,
        note,
    )


async def _by_channel(place: Path, gateway: ApnsGateway, followers: int) -> Line:
    """Everybody listens to the match's channel: one request, and then a look at who does not."""
    watched = Watched(gateway)
    async with ground(place, cast("ApnsGateway", watched), OnTheAir(1)) as here:
        (match_id,) = here.air.match_ids
        channel_id = await gateway.create_channel()
        await here.tell_everyone()
        await here.tables.matches.set_channel(match_id, channel_id)
        await fill(here.tables.activities, [match_id], followers, channel_id)
        await here.tell_everyone()
        reached, done = [], []
        for _ in range(TURNS):
            begun = time.perf_counter()
            await here.tell_everyone()
            reached.append(watched.broadcast_at - begun)
            done.append(time.perf_counter() - begun)
        taken = min(reached) / followers * 1e6
        note = (
            f"{min(reached) * 1000:.0f} to {max(reached) * 1000:.0f} ms from the feed to the one request that reaches all; "
            f"{min(done):.1f} s until everybody has been looked at"
        )
        return Line(_SECTION, f"{Crowd(followers, 1)}, by channel", taken, "", 0, 0, "", None, note)


def _payload(here: Ground) -> bytes:
    """The payload that the devices have just had, near enough."""
    live = next(iter(here.workers.live_matches.values()))
    showing = live.fan_out.update
    if showing is None:
        raise AssertionError("nothing has been shown")
    return showing.payload("neutral", None)
