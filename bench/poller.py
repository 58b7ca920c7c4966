"""Measures the processor time of the poller with twenty live matches and no followers.

One line is a poll with a new ball in every match, the other a poll without a change. The baseline
decodes and translates the same matches and does nothing else; both include it, because the score
service is in this process. At a poll every 2.5 s, the note gives the share of one core.
"""

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Final

from bench.live_harness import INITIAL_BALLS, LocalScores, open_live_harness
from bench.rounds import Line
from tally.cricket.apns.gateway import open_apns
from tally.cricket.service.live.poller import LIVE_INTERVAL_SECONDS
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.settings import Settings

MATCHES: Final = 20
POLLS: Final = 20


async def poller(rounds: int) -> AsyncIterator[Line]:
    """Measure polls with and without a new ball, each beside the translation alone."""
    scores = LocalScores(MATCHES)
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as directory:
        async with (
            open_apns(Settings(), SystemClock(), Metrics()) as gateway,
            open_live_harness(Path(directory), gateway, scores) as harness,
        ):
            await harness.deliver_ball()
            # The matches must not end.
            balls = scores.playbacks[0].deliveries - INITIAL_BALLS - 5

            async def poll() -> None:
                await harness.poller.run()
                await harness.workers.wait_idle()

            for what, work in (("a ball in each", harness.deliver_ball), ("no change", poll)):
                mine, theirs = await _measure(work, scores, min(rounds * POLLS, balls))
                share = mine / 1e6 / LIVE_INTERVAL_SECONDS
                yield Line(
                    "the poller",
                    f"{MATCHES} live matches, {what}",
                    mine,
                    "translation only",
                    theirs,
                    mine / theirs,
                    note=f"{share:.1%} of one core at {LIVE_INTERVAL_SECONDS} s",
                )


async def _measure(
    work: Callable[[], Awaitable[object]], scores: LocalScores, count: int
) -> tuple[float, float]:
    """Return the median processor times of `work` and of the translation in µs, alternately."""
    times: dict[str, list[float]] = {"work": [], "translation": []}
    for _ in range(count):
        for name, call in (("translation", scores.live), ("work", work)):
            started = time.process_time()
            await call()
            times[name].append((time.process_time() - started) * 1e6)
    return median(times["work"]), median(times["translation"])
