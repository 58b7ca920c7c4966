"""Chart options: colours that are legible in light and dark mode, and axis formats."""

from collections.abc import Iterable
from typing import Any, Final

COLOURS: Final = ("#2a9d84", "#d97b29", "#5f83d6", "#b65c9a")
LABEL_COLOUR: Final = "#78837e"
GRID_COLOUR: Final = "rgba(127, 140, 134, 0.28)"
FONT: Final = "Roboto, sans-serif"
# Axis label formats by time range; the browser renders them in local time.
CLOCK: Final = "{HH}:{mm}:{ss}"
HOURS: Final = "{HH}:{mm}"
DAYS: Final = "{d}.{M}. {HH}:{mm}"


def line_chart(
    *, x_axis: dict[str, Any], unit: str = "", bottom: int = 28, legend: bool = True
) -> dict[str, Any]:
    """Return the options of a line chart without series; `unit` labels the values."""
    label = {"color": LABEL_COLOUR, "hideOverlap": True}
    grid_line = {"lineStyle": {"color": GRID_COLOUR}}
    return {
        "animation": False,
        "color": list(COLOURS),
        "textStyle": {"fontFamily": FONT, "color": LABEL_COLOUR},
        "grid": {
            "left": 48,
            "right": 14,
            "top": 14 + 20 * legend + 16 * bool(unit),
            "bottom": bottom,
        },
        "legend": {
            "show": legend,
            "top": 0,
            "left": 0,
            "icon": "roundRect",
            "itemWidth": 14,
            "itemHeight": 4,
            "textStyle": {"color": LABEL_COLOUR},
        },
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {"axisLine": grid_line, "axisTick": {"show": False}, "splitLine": {"show": False}}
        | x_axis
        | {"axisLabel": label | x_axis.get("axisLabel", {})},
        "yAxis": {
            "type": "value",
            "name": unit,
            "nameTextStyle": {"color": LABEL_COLOUR, "align": "left", "padding": [0, 0, 0, -36]},
            "splitLine": grid_line,
            "axisLabel": label,
        },
        "series": [],
    }


def line(name: str, points: Iterable[Any], **options: Any) -> dict[str, Any]:
    """Return one series; `name` is its legend entry."""
    return {
        "name": name,
        "type": "line",
        "showSymbol": False,
        "lineStyle": {"width": 2},
        "data": list(points),
    } | options
