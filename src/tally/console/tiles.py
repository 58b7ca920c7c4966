"""The tiles of the home page: purpose, headline, traffic and health of each backend."""

from dataclasses import dataclass
from typing import Final

from nicegui import ui

from tally.console.dashboard import BackendHealth, Tile
from tally.console.formatting import format_duration, format_rate
from tally.console.links import backend_path, block_link
from tally.console.traffic import Traffic

STATUS_ICONS: Final = {
    BackendHealth.HEALTHY: ("check_circle", "text-positive"),
    BackendHealth.DEGRADED: ("warning", "text-warning"),
    BackendHealth.FAILING: ("error", "text-negative"),
}
STATUS_COLOURS: Final = " ".join(colour for _, colour in STATUS_ICONS.values())


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """How the home page introduces a backend."""

    name: str
    title: str
    icon: str
    about: str


TILES: Final = (
    BackendInfo(
        "cricket",
        "Cricket",
        "sports_cricket",
        "Live scores, and Live Activities on every Lock Screen",
    ),
    BackendInfo(
        "collect", "Collect", "view_in_ar", "Workouts unlock the parts of a statue permanently"
    ),
    BackendInfo(
        "scoreboard",
        "Scoreboard",
        "leaderboard",
        "A leaderboard that updates live and cannot be cheated",
    ),
    BackendInfo(
        "devices", "Devices", "sensors", "Readings of thousands of devices, stored exactly once"
    ),
)


class BackendTile:
    """The tile of a backend that this instance runs."""

    def __init__(self, backend: BackendInfo) -> None:
        with _tile_card(backend):
            with ui.row().classes("items-baseline gap-2 no-wrap q-mt-xs"):
                self._value = ui.label("…").classes("tally-figure").props("data-figure=1")
                self._unit = ui.label().classes("text-subtitle1").props("data-words=1")
            self._details = ui.label().classes("col-grow").props("data-details=1")
            with ui.row().classes(
                "tally-rule w-full items-center justify-between gap-2 q-pt-sm tally-small"
            ):
                self._traffic = (
                    ui.label().classes("tally-quiet tally-numbers").props("data-traffic=1")
                )
                with ui.row().classes("items-center gap-1 no-wrap").props("data-health=1"):
                    self._icon = ui.icon("pending", size="xs").props("aria-hidden=true")
                    self._status = ui.label()

    def show(self, tile: Tile, traffic: Traffic) -> None:
        headline = tile.headline
        if headline is not None:
            self._value.set_text(headline.value)
            self._unit.set_text(headline.unit)
            self._details.set_text(" · ".join(headline.details))
        else:
            self._value.set_text("?")
            self._unit.set_text("unavailable")
            self._details.set_text(tile.status)
        mean = f" · {format_duration(traffic.mean_ms / 1000)}" if traffic.requests else ""
        failures = f" · {format_rate(traffic.failures)} failures/s" if traffic.failures else ""
        self._traffic.set_text(f"{format_rate(traffic.requests)} requests/s{mean}{failures}")
        icon, colour = STATUS_ICONS[tile.health]
        self._icon.set_name(icon)
        self._icon.classes(remove=STATUS_COLOURS, add=colour)
        self._status.classes(remove=STATUS_COLOURS, add=colour)
        self._status.set_text("unavailable" if headline is None else tile.status)


def absent_tile(backend: BackendInfo) -> None:
    """Render the tile of a backend that this instance does not run."""
    with _tile_card(backend):
        ui.label("Not running on this instance").classes("text-subtitle1 q-mt-xs")
        ui.label("TALLY_BACKENDS or --only selects the backends of an instance").classes(
            "tally-quiet tally-small"
        )


def _tile_card(backend: BackendInfo) -> ui.card:
    with block_link(backend_path(backend.name)).props(f"data-tile={backend.name}"):
        tile = ui.card().classes("tally-card tally-tile w-full h-full")
    with tile:
        with ui.row().classes("items-center gap-2 no-wrap"):
            ui.icon(backend.icon, size="md").classes("text-primary").props("aria-hidden=true")
            ui.label(backend.title).classes("text-h6").props("role=heading aria-level=2")
        ui.label(backend.about).classes("tally-quiet tally-small")
    return tile
