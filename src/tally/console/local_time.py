"""Times in the time zone of the browser, with UTC in a tooltip.

local_time(reading.at), local_time(device.last_seen_at, label="4 min ago")
table.add_slot("body-cell-seen", time_cell("seen"))
"""

from datetime import UTC, datetime
from typing import Literal, TypeAlias

from nicegui.element import Element

TimeFormat: TypeAlias = Literal["minute", "second", "clock", "day", "zone"]


class LocalTime(Element, component="local_time.js"):
    """Renders a `<time>`; the browser formats it."""

    def __init__(self, at: str, kind: TimeFormat, label: str) -> None:
        super().__init__()
        self.props["at"] = at
        self.props["format"] = kind
        self.props["label"] = label


def local_time(
    at: datetime | str | None, kind: TimeFormat = "minute", *, label: str = "", never: str = "never"
) -> LocalTime:
    """Render a time; with `label`, the time is in the tooltip. None is rendered as `never`."""
    if at is None:
        return LocalTime("", kind, never)
    return LocalTime(iso_time(at), kind, label)


def time_zone() -> LocalTime:
    """Render the name of the browser's time zone."""
    return LocalTime("", "zone", "")


def iso_time(at: datetime | str) -> str:
    """Return a time as rows of tables hold it, for `time_cell`."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment.astimezone(UTC).isoformat()


def time_cell(field: str, kind: TimeFormat = "minute") -> str:
    """Return the template of a table cell.

    The row has the time in `field`, empty for none, and a text in `<field>_label`.
    """
    component = LocalTime.component
    tag = component.tag if component is not None else "time"
    return (
        f'<q-td :props="props"><{tag} :at="props.row.{field}" format="{kind}"'
        f' :label="props.row.{field}_label" /></q-td>'
    )
