"""The charts of a match: cumulative runs and the run rate, by over."""

from collections.abc import Sequence
from typing import Final

from nicegui import ui

from tally.console.charts import line, line_chart
from tally.console.shell import card
from tally.cricket.model.feed import Ball

BALLS_PER_OVER: Final = 6
# Selectable ranges: the latest overs of each innings; 0 is all of them.
OVER_RANGES: Final = {0: "All overs", 10: "Last 10 overs", 5: "Last 5 overs"}


class RunCharts:
    """Both charts of one page, with a common range."""

    def __init__(self) -> None:
        self._balls: Sequence[Ball] = ()

    def build(self) -> None:
        with ui.row().classes("w-full"):
            self._range = ui.select(OVER_RANGES, value=0, label="Range of the charts").classes(
                "w-48"
            )
        with card("Cumulative runs", about="Runs of each innings after every ball"):
            self._total = _chart("Cumulative runs", "runs")
        with card("Run rate", about="Runs per over of each innings, from its start to every over"):
            self._rate = _chart("Run rate", "runs per over")
        self._range.on_value_change(lambda: self.show(self._balls))

    def show(self, balls: Sequence[Ball]) -> None:
        self._balls = balls
        numbers = sorted({ball.innings for ball in balls})
        totals = {number: cumulative_runs(balls, number) for number in numbers}
        rates = {number: run_rates(points) for number, points in totals.items()}
        for chart, by_innings in ((self._total, totals), (self._rate, rates)):
            series = [
                line(f"Innings {number}", self._in_range(points))
                for number, points in by_innings.items()
            ]
            if series != chart.options["series"]:
                chart.options["series"] = series
                chart.update()

    def _in_range(self, points: list[list[float]]) -> list[list[float]]:
        overs = int(self._range.value)
        if not overs or not points:
            return points
        start = points[-1][0] - overs
        return [point for point in points if point[0] >= start]


def _chart(label: str, unit: str) -> ui.echart:
    axis = {"type": "value", "name": "overs", "nameLocation": "middle", "nameGap": 24}
    options = line_chart(x_axis=axis | {"scale": True}, unit=unit, bottom=40)
    return ui.echart(options).classes("w-full h-56").props(f"role=img aria-label='{label}'")


def cumulative_runs(balls: Sequence[Ball], innings: int) -> list[list[float]]:
    """Return the overs and the runs so far after each ball of an innings."""
    total, points = 0, []
    for ball in balls:
        if ball.innings == innings:
            total += ball.runs_total
            points.append([round(ball.over + ball.number / BALLS_PER_OVER, 2), float(total)])
    return points


def run_rates(points: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the runs per over after each complete over, from cumulative runs."""
    last = {int(overs): [overs, runs] for overs, runs in points if overs >= 1 and overs % 1 == 0}
    return [[overs, round(runs / overs, 2)] for overs, runs in last.values()]
