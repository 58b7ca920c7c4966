"""The history of requests: 24 hours at three resolutions, with percentiles, in bounded memory."""

import pytest

from tally.console.traffic import RESOLUTIONS, TrafficHistory, estimate_percentile
from tally.kit.clock import ManualClock
from tally.kit.metrics import Metrics
from tally.kit.request_metrics import BUCKET_BOUNDS

DAY_SECONDS = 86_400


async def test_the_history_covers_24_hours_and_no_more() -> None:
    """A day and a half at one sample per 10 seconds; each sample is a burst of two requests."""
    metrics, clock = Metrics(), ManualClock()
    history = TrafficHistory(metrics, clock)
    for _ in range(DAY_SECONDS * 3 // 2 // 10):
        history.sample()
        metrics.observe_request("GET", "/devices/latest", 200, 0.01)
        metrics.observe_request("GET", "/devices/latest", 503, 0.01)
        await clock.advance(10)
    day = history.samples(DAY_SECONDS)
    assert 23.9 * 3_600 <= day[-1].time - day[0].time <= DAY_SECONDS
    assert len(day) <= RESOLUTIONS[-1][1]
    assert {round(sample.of("devices").requests, 3) for sample in day} == {0.2}
    assert {round(sample.of("devices").failures, 3) for sample in day} == {0.1}
    assert day[-1].of("cricket").requests == 0.0
    assert len(history.samples(600)) == 60


async def test_samples_have_the_percentiles_of_their_interval() -> None:
    metrics, clock = Metrics(), ManualClock()
    history = TrafficHistory(metrics, clock)
    for seconds in (0.02, 5.0):
        history.sample()
        for _ in range(100):
            metrics.observe_request("GET", "/cricket/matches", 200, seconds)
        await clock.advance(1)
    history.sample()
    fast, slow = (sample.of("cricket").percentiles_ms for sample in history.samples(600))
    assert all(10 < value <= 25 for value in fast), fast
    assert all(2_500 < value <= 5_000 for value in slow), slow


@pytest.mark.parametrize(
    ("durations", "percent", "expected"),
    [
        ((), 50, 0.0),
        ((1,), 50, 0.0005),
        ((0, 10), 50, 0.00175),
        ((90, 0, 10), 95, 0.00375),
        ((*(0,) * len(BUCKET_BOUNDS), 3), 50, BUCKET_BOUNDS[-1]),
    ],
)
def test_a_percentile_is_interpolated_within_its_bucket(
    durations: tuple[int, ...], percent: float, expected: float
) -> None:
    assert estimate_percentile(durations, percent) == pytest.approx(expected)
