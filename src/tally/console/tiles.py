"""A tile of the first page: what a backend is for, how it stands now, and below, how much it does and whether it is well."""

from dataclasses import dataclass
from typing import Final

from nicegui import ui

from tally.console.dashboard import BackendHealth, Tile
from tally.console.formatting import format_duration, format_rate
from tally.console.shell import link_to
from tally.console.traffic import Traffic

MARKS: Final = {
    BackendHealth.HEALTHY: ("check_circle", "text-positive"),
    BackendHealth.DEGRADED: ("warning", "text-warning"),
    BackendHealth.FAILING: ("error", "text-negative"),
}
ALL_MARKS: Final = " ".join(colour for _, colour in MARKS.values())


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """A backend as the first page introduces it."""

    name: str
    title: str
    sign: str
    about: str


TILES: Final = (
    BackendInfo(
        "cricket",
        "Cricket",
        "sports_cricket",
        "Live scores, and Live Activities on every Lock Screen",
    ),
    BackendInfo(
        "collect", "Collect", "view_in_ar", "Workouts unlock the parts of a statue, for ever"
    ),
    BackendInfo(
        "scoreboard",
        "Scoreboard",
        "leaderboard",
        "A leaderboard that moves live and cannot be cheated",
    ),
    BackendInfo(
        "devices", "Devices", "sensors", "Readings of thousands of boards, stored once each"
    ),
)


class BackendTile:
    """The tile of a backend that runs here."""

    def __init__(self, kind: BackendInfo) -> None:
        with _framed(kind):
            with ui.row().classes("items-baseline gap-2 no-wrap q-mt-xs"):
                self._figure = ui.label("…").classes("tally-figure").props("data-figure=1")
                self._words = ui.label().classes("text-subtitle1").props("data-words=1")
            self._details = ui.label().classes("col-grow").props("data-details=1")
            with ui.row().classes(
                "tally-rule w-full items-center justify-between gap-2 q-pt-sm tally-small"
            ):
                self._traffic = (
                    ui.label().classes("tally-quiet tally-numbers").props("data-traffic=1")
                )
                with ui.row().classes("items-center gap-1 no-wrap").props("data-health=1"):
                    self._mark = ui.icon("pending", size="xs").props("aria-hidden=true")
                    self._said = ui.label()

    def show(self, tile: Tile, traffic: Traffic) -> None:
        headline = tile.headline
        if headline is not None:
            self._figure.set_text(headline.figure)
            self._words.set_text(headline.words)
            self._details.set_text(" · ".join(headline.details))
        else:
            self._figure.set_text("?")
            self._words.set_text("in trouble")
            self._details.set_text(tile.said)
        mean = f" · {format_duration(traffic.mean_ms / 1000)}" if traffic.requests else ""
        failures = f" · {format_rate(traffic.failures)} failures/s" if traffic.failures else ""
        self._traffic.set_text(f"{format_rate(traffic.requests)} requests/s{mean}{failures}")
        sign, colour = MARKS[tile.health]
        self._mark.set_name(sign)
        self._mark.classes(remove=ALL_MARKS, add=colour)
        self._said.classes(remove=ALL_MARKS, add=colour)
        self._said.set_text("in trouble" if headline is None else tile.said)


def absent_tile(kind: BackendInfo) -> None:
    """The tile of a backend that does not run here."""
    with _framed(kind):
        ui.label("Not started here").classes("text-subtitle1 q-mt-xs")
        ui.label("TALLY_BACKENDS, or --only, says what runs on this instance").classes(
            "tally-quiet tally-small"
        )


def _framed(kind: BackendInfo) -> ui.card:
    tile = ui.card().classes("tally-card tally-tile").props(f"data-tile={kind.name}")
    link_to(tile, f"/{kind.name}")
    with tile:
        with ui.row().classes("items-center gap-2 no-wrap"):
            ui.icon(kind.sign, size="md").classes("text-primary").props("aria-hidden=true")
            ui.label(kind.title).classes("text-h6").props("role=heading aria-level=2")
        ui.label(kind.about).classes("tally-quiet tally-small")
    return tile
