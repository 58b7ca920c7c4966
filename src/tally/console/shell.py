"""What stands around every page: who may see it, the head with the way to the other pages, and the look of it all."""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final, ParamSpec

from nicegui import app, ui

from tally.console.desk import Desk

P = ParamSpec("P")

HOME: Final = "/"
LOGIN: Final = "/login"
# Path, name, and the sign that stands for it.
PLACES: Final = (
    ("/", "Home", "space_dashboard"),
    ("/cricket", "Cricket", "sports_cricket"),
    ("/collect", "Collect", "view_in_ar"),
    ("/scoreboard", "Scoreboard", "leaderboard"),
    ("/devices", "Devices", "sensors"),
    ("/data", "Data", "table_chart"),
)
COLOURS: Final = {
    "primary": "#0f5c4d",
    "secondary": "#3d5a80",
    "accent": "#b5531c",
    "positive": "#1b7a43",
    "negative": "#b3261e",
    "warning": "#8a5a00",
    "info": "#1d5f8a",
}
STYLE: Final = """
body { background: #f6f7f5; color: #1c2321; }
.body--dark { background: #131816; color: #e6ebe8; }
.tally-figure { font-size: 2.2rem; font-weight: 600; line-height: 1.1; font-variant-numeric: tabular-nums; }
.tally-quiet { color: #4a5450; } .body--dark .tally-quiet { color: #b4beb9; }
.tally-card { border-radius: 14px; box-shadow: 0 1px 3px rgb(0 0 0 / .14); }
.tally-row-move { transition: transform .4s ease; }
.nicegui-content { padding: 1.25rem; max-width: 1280px; margin: 0 auto; }
a:focus-visible, button:focus-visible, [tabindex]:focus-visible { outline: 3px solid #b5531c; outline-offset: 2px; }
"""

Page = Callable[P, Awaitable[None] | None]


class Shell:
    """Makes pages: `shell.page("/devices", "Devices")` around a function that fills one."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def page(self, path: str, title: str) -> Callable[[Page[P]], None]:
        def put(fill: Page[P]) -> None:
            @wraps(fill)
            async def shown(*args: P.args, **kwargs: P.kwargs) -> None:
                if not self.may_look():
                    app.storage.user["wanted"] = path if "{" not in path else HOME
                    ui.navigate.to(LOGIN)
                    return
                self._frame(path, title)
                filled = fill(*args, **kwargs)
                if inspect.isawaitable(filled):
                    await filled

            ui.page(path, title=f"{title} · Tally")(shown)

        return put

    def may_look(self) -> bool:
        return self._desk.password is None or bool(app.storage.user.get("is_signed_in"))

    def _frame(self, path: str, title: str) -> None:
        dress()
        with ui.header(elevated=True).classes("items-center justify-between q-px-md").props("aria-label='Tally'"):
            with ui.row().classes("items-center gap-2"):
                ui.icon("bolt", size="sm").props("aria-hidden=true")
                ui.link("Tally", HOME).classes("text-h6 text-white no-underline")
            with ui.row().classes("items-center gap-1").props("role=navigation aria-label='Pages'"):
                for place, name, sign in PLACES:
                    self._way(place, name, sign, is_here=place == path or (place != HOME and path.startswith(place)))
        ui.label(title).classes("text-h4 q-mb-sm").props("role=heading aria-level=1")

    def _way(self, place: str, name: str, sign: str, *, is_here: bool) -> None:
        button = ui.button(name, icon=sign, on_click=lambda: ui.navigate.to(place)).props("flat no-caps color=white")
        if is_here:
            button.props("aria-current=page").classes("bg-white/20")


def dress() -> None:
    """The colours and the style sheet."""
    ui.colors(**COLOURS)
    ui.add_css(STYLE)
    ui.query("html").props("lang=en")


def card(title: str, *, classes: str = "") -> ui.card:
    """A card with a title; fill it with `with`. `classes` come besides those that every card has."""
    made = ui.card().classes(f"tally-card w-full {classes}")
    with made:
        ui.label(title).classes("text-subtitle1 text-weight-medium").props("role=heading aria-level=2")
    return made


def not_started(backend: str) -> None:
    """What the page of a backend shows where that does not run."""
    nothing_here(f"The {backend} backend is not started here.")


def nothing_here(sentence: str) -> None:
    """Say why a place is empty, and what would fill it."""
    with ui.row().classes("items-center gap-2 tally-quiet"):
        ui.icon("info").props("aria-hidden=true")
        ui.label(sentence)
