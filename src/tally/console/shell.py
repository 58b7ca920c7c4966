"""What stands around every page: who may see it, the head with the way to the other pages, and the blocks they are made of."""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final, ParamSpec

from nicegui import app, ui

from tally.console.context import ConsoleContext
from tally.console.theme import apply_theme

P = ParamSpec("P")

HOME: Final = "/"
LOGIN: Final = "/login"
# Path, name, and the sign that stands for it.
NAVIGATION: Final = (
    ("/", "Home", "space_dashboard"),
    ("/cricket", "Cricket", "sports_cricket"),
    ("/collect", "Collect", "view_in_ar"),
    ("/scoreboard", "Scoreboard", "leaderboard"),
    ("/devices", "Devices", "sensors"),
    ("/data", "Data", "table_chart"),
)

Page = Callable[P, Awaitable[None] | None]


class Shell:
    """Makes pages: `shell.page("/devices", "Devices", "Boards and …")` around a function that fills one."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    def page(
        self, path: str, title: str, about: str = "", *, is_headed: bool = True
    ) -> Callable[[Page[P]], None]:
        """A page under a path. Without a head of ours, the page puts a `heading` of its own."""

        def put(fill: Page[P]) -> None:
            @wraps(fill)
            async def shown(*args: P.args, **kwargs: P.kwargs) -> None:
                if not self.is_allowed():
                    # In the address, not in a store: of those who have not signed in, nothing is
                    # kept.
                    ui.navigate.to(
                        LOGIN if "{" in path or path == HOME else f"{LOGIN}?wanted={path}"
                    )
                    return
                self._frame(path)
                if is_headed:
                    heading(title, about)
                filled = fill(*args, **kwargs)
                if inspect.isawaitable(filled):
                    await filled

            ui.page(path, title=f"{title} · Tally")(shown)

        return put

    def is_allowed(self) -> bool:
        return self._context.password is None or bool(app.storage.user.get("is_signed_in"))

    def _frame(self, path: str) -> None:
        apply_theme()
        with (
            ui.header(elevated=True)
            .classes("items-center justify-between no-wrap q-px-md q-py-sm")
            .props("aria-label='Tally'")
        ):
            with ui.row().classes("items-center gap-2 no-wrap"):
                ui.icon("bolt", size="sm").props("aria-hidden=true")
                ui.link("Tally", HOME).classes("text-h6 text-white no-underline tally-brand")
            with (
                ui.row()
                .classes("items-center gap-1 no-wrap")
                .props("role=navigation aria-label='Pages'")
            ):
                for place, name, sign in NAVIGATION:
                    self._way(
                        place,
                        name,
                        sign,
                        is_here=place == path or (place != HOME and path.startswith(place)),
                    )

    def _way(self, place: str, name: str, sign: str, *, is_here: bool) -> None:
        button = ui.button(name, icon=sign, on_click=lambda: ui.navigate.to(place)).classes(
            "tally-way"
        )
        button.props(f"flat no-caps color=white aria-label={name} title={name}")
        if is_here:
            button.props("aria-current=page").classes("bg-white/20")


def heading(title: str, about: str = "") -> None:
    """The one heading of a page, and a sentence that says what it shows."""
    with ui.column().classes("gap-0 w-full"):
        ui.label(title).classes("text-h4").props("role=heading aria-level=1")
        if about:
            ui.label(about).classes("tally-quiet")


def card(title: str, *, about: str = "", classes: str = "") -> ui.card:
    """A card with a title; fill it with `with`.

    `classes` come besides those that every card has.
    """
    made = ui.card().classes(f"tally-card w-full {classes}")
    with made, ui.column().classes("gap-0"):
        ui.label(title).classes("text-subtitle1 text-weight-medium").props(
            "role=heading aria-level=2"
        )
        if about:
            ui.label(about).classes("tally-quiet tally-small")
    return made


class Region:
    """A place on a page whose content is made anew only when what it shows has changed: nothing flickers or loses the focus."""

    def __init__(self, element: ui.element) -> None:
        self.element = element
        self._shown: object = None

    def show(self, what: object, draw: Callable[[], object]) -> None:
        """Have `draw` fill the place, unless it shows `what` already."""
        if what == self._shown:
            return
        self._shown = what
        self.element.clear()
        with self.element:
            draw()


def link_to(element: ui.element, path: str) -> None:
    """Make an element a link, for the mouse and for the keyboard."""
    element.classes("cursor-pointer").props("tabindex=0 role=link")
    element.on("click", lambda: ui.navigate.to(path))
    element.on("keydown.enter", lambda: ui.navigate.to(path))


def not_started(backend: str) -> None:
    """What the page of a backend shows where that does not run."""
    empty_state(f"The {backend} backend is not started here.")


def empty_state(sentence: str) -> None:
    """Say why a place is empty, and what would fill it."""
    with ui.row().classes("items-center gap-2 tally-quiet no-wrap"):
        ui.icon("info").props("aria-hidden=true")
        ui.label(sentence)
