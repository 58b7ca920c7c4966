"""The charts of requests and latencies on the home page, with a time range."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from nicegui import ui

from tally.console.charts import CLOCK, DAYS, HOURS, line, line_chart
from tally.console.context import ConsoleContext
from tally.console.shell import card
from tally.console.tiles import TILES
from tally.console.traffic import PERCENTILES, TrafficSample

REFRESH_SECONDS: Final = 2.0
TIME_RANGES: Final = {600: "10 minutes", 3_600: "1 hour", 21_600: "6 hours", 86_400: "24 hours"}
HOUR: Final = 3_600
# Samples per moving average of the shortest range, where requests arrive in bursts.
WINDOW_SAMPLES: Final = 10
MAX_POINTS: Final = 240
ABOUT: Final = (
    "Of this instance, since its process started and for at most 24 hours. "
    "Prometheus keeps a longer history."
)

Reader = Callable[[TrafficSample, str], float]


class TrafficCharts:
    """Both charts of one page."""

    def __init__(self, context: ConsoleContext) -> None:
        self._traffic = context.traffic
        self._names = [backend.name for backend in TILES if backend.name in context.backends]
        self._drawn: object = None

    def build(self) -> None:
        with card("Traffic", about=ABOUT):
            with ui.row().classes("gap-4 w-full"):
                self._range = ui.select(TIME_RANGES, value=600, label="Time range").classes("w-40")
                percentiles = {
                    index: f"p{percent}: {percent} % are faster"
                    for index, percent in enumerate(PERCENTILES)
                }
                self._percentile = ui.select(percentiles, value=1, label="Latency").classes("w-56")
            with ui.element("div").classes("tally-halves"):
                self._requests = _chart("Requests per second", "requests/s")
                self._latency = _chart("Latency", "ms")
        self._range.on_value_change(self.refresh)
        self._percentile.on_value_change(self.refresh)
        ui.timer(REFRESH_SECONDS, self.refresh)

    def refresh(self) -> None:
        """Draw the charts again if there is another sample, or another choice."""
        seconds, index = int(self._range.value), int(self._percentile.value)
        samples = self._traffic.samples(seconds)
        drawn = (seconds, index, samples[-1].time if samples else 0.0)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        window = WINDOW_SAMPLES if seconds == min(TIME_RANGES) else 1
        self._draw(self._requests, samples, window, lambda sample, name: sample.of(name).requests)
        self._draw(
            self._latency,
            samples,
            window,
            lambda sample, name: sample.of(name).percentiles_ms[index],
        )

    def _draw(
        self, chart: ui.echart, samples: Sequence[TrafficSample], window: int, read: Reader
    ) -> None:
        step = max(1, len(samples) // MAX_POINTS) if window > 1 else 1
        times = [round(sample.time * 1000) for sample in samples]
        chart.options["series"] = []
        for name in self._names:
            values = moving_average([read(sample, name) for sample in samples], window)
            points = list(zip(times, values, strict=True))[::step]
            # The first averages cover too few samples; skip them once there are enough others.
            skipped = window // step if len(samples) > 2 * window else 0
            chart.options["series"].append(line(name.capitalize(), points[skipped:]))
        chart.options["xAxis"]["axisLabel"]["formatter"] = _time_format(samples)
        chart.update()


def traffic_charts(context: ConsoleContext) -> None:
    TrafficCharts(context).build()


def _chart(title: str, unit: str) -> ui.echart:
    with ui.column().classes("gap-1 w-full"):
        ui.label(title).classes("text-weight-medium").props("role=heading aria-level=3")
        chart = ui.echart(line_chart(x_axis={"type": "time"}, unit=unit))
        return chart.classes("w-full h-64").props(f"role=img aria-label='{title} by backend'")


def _time_format(samples: Sequence[TrafficSample]) -> str:
    span = samples[-1].time - samples[0].time if samples else 0.0
    return CLOCK if span < HOUR else HOURS if span < 24 * HOUR - 60 else DAYS


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of each value and those before it in the window."""
    return [
        round(fmean(values[max(0, end - window) : end]), 1) for end in range(1, len(values) + 1)
    ]
