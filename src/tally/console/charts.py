"""How charts look: legible on a light page and on a dark one, with the same colours everywhere."""

from collections.abc import Iterable
from typing import Any, Final

COLOURS: Final = ("#2a9d84", "#d97b29", "#5f83d6", "#b65c9a")
INK: Final = "#78837e"
LINES: Final = "rgba(127, 140, 134, 0.28)"
FONT: Final = "Roboto, sans-serif"
# By how much time a chart shows, in milliseconds: how its axis tells it. By the clock and the
# calendar of whoever looks.
CLOCK: Final = "{HH}:{mm}:{ss}"
HOURS: Final = "{HH}:{mm}"
DAYS: Final = "{d}.{M}. {HH}:{mm}"


def line_chart(*, x: dict[str, Any], bottom: int = 28, legend: bool = True) -> dict[str, Any]:
    """The options of a chart with lines; its series come later."""
    label = {"color": INK, "hideOverlap": True}
    faint = {"lineStyle": {"color": LINES}}
    return {
        "animation": False,
        "color": list(COLOURS),
        "textStyle": {"fontFamily": FONT, "color": INK},
        "grid": {"left": 48, "right": 14, "top": 34 if legend else 14, "bottom": bottom},
        "legend": {
            "show": legend,
            "top": 0,
            "left": 0,
            "icon": "roundRect",
            "itemWidth": 14,
            "itemHeight": 4,
            "textStyle": {"color": INK},
        },
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {"axisLine": faint, "axisTick": {"show": False}, "splitLine": {"show": False}}
        | x
        | {"axisLabel": label | x.get("axisLabel", {})},
        "yAxis": {"type": "value", "splitLine": faint, "axisLabel": label},
        "series": [],
    }


def line(name: str, points: Iterable[Any], **more: Any) -> dict[str, Any]:
    """One line of a chart, by its name in the legend."""
    return {
        "name": name,
        "type": "line",
        "showSymbol": False,
        "lineStyle": {"width": 2},
        "data": list(points),
    } | more
