"""The frame around every page: header with navigation and operator, and shared page elements."""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final, ParamSpec

from nicegui import ui

from tally.console.access import page_session
from tally.console.context import ConsoleContext
from tally.console.open_pages import OpenPages
from tally.console.theme import apply_theme

P = ParamSpec("P")

HOME: Final = "/"
# Path, label and icon of each page in the header.
NAVIGATION: Final = (
    ("/", "Home", "space_dashboard"),
    ("/cricket", "Cricket", "sports_cricket"),
    ("/collect", "Collect", "view_in_ar"),
    ("/scoreboard", "Scoreboard", "leaderboard"),
    ("/devices", "Devices", "sensors"),
    ("/data", "Data", "table_chart"),
    ("/operations", "Operations", "build"),
)

Page = Callable[P, Awaitable[None] | None]


class Shell:
    """Registers pages: `shell.page("/devices", "Devices")` decorates the function of one."""

    def __init__(self, context: ConsoleContext, open_pages: OpenPages) -> None:
        self._context = context
        self._open_pages = open_pages

    def page(
        self, path: str, title: str, about: str = "", *, is_headed: bool = True
    ) -> Callable[[Page[P]], None]:
        """Register a page. With `is_headed=False` the page renders its own `heading`."""

        def register(fill: Page[P]) -> None:
            @wraps(fill)
            async def render(*args: P.args, **kwargs: P.kwargs) -> None:
                self._frame(path)
                if is_headed:
                    heading(title, about)
                result = fill(*args, **kwargs)
                if inspect.isawaitable(result):
                    await result

            ui.page(path, title=f"{title} · Tally")(render)

        return register

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
                for target, name, icon in NAVIGATION:
                    self._navigation_button(
                        target,
                        name,
                        icon,
                        is_current=target == path or (target != HOME and path.startswith(target)),
                    )
            self._operator()

    def _operator(self) -> None:
        operator = page_session().operator
        with ui.row().classes("items-center gap-1 no-wrap"):
            ui.label(f"{operator.name} ({operator.role.value})").classes(
                "tally-small tally-operator ellipsis"
            ).props("data-operator=1")
            ui.button("Sign out", icon="logout", on_click=self._sign_out).classes(
                "tally-nav"
            ).props(
                f"flat no-caps color=white aria-label='Sign out' title='Sign out {operator.name}'"
            )

    async def _sign_out(self) -> None:
        session = page_session()
        await self._context.sessions.end(session)
        await self._context.operators.record(session.operator, "console_sign_out", "console")
        await self._open_pages.close_ended()

    def _navigation_button(self, target: str, name: str, icon: str, *, is_current: bool) -> None:
        button = ui.button(name, icon=icon, on_click=lambda: ui.navigate.to(target)).classes(
            "tally-nav"
        )
        button.props(f"flat no-caps color=white aria-label={name} title={name}")
        if is_current:
            button.props("aria-current=page").classes("bg-white/20")


def heading(title: str, about: str = "") -> None:
    """Render the page's title and a one-sentence description."""
    with ui.column().classes("gap-0 w-full"):
        ui.label(title).classes("text-h4").props("role=heading aria-level=1")
        if about:
            ui.label(about).classes("tally-quiet")


def card(title: str, *, about: str = "", classes: str = "") -> ui.card:
    """Return a titled card to fill with `with`; `classes` are added to the default ones."""
    element = ui.card().classes(f"tally-card w-full {classes}")
    with element, ui.column().classes("gap-0"):
        ui.label(title).classes("text-subtitle1 text-weight-medium").props(
            "role=heading aria-level=2"
        )
        if about:
            ui.label(about).classes("tally-quiet tally-small")
    return element


class Region:
    """A page region that is redrawn only when its data changes, so that it keeps the focus."""

    def __init__(self, element: ui.element) -> None:
        self.element = element
        self._data: object = None

    def show(self, data: object, draw: Callable[[], object]) -> None:
        """Redraw the region with `draw`, unless it already shows `data`."""
        if data == self._data:
            return
        self._data = data
        self.element.clear()
        with self.element:
            draw()


def link_to(element: ui.element, path: str) -> None:
    """Make an element a link that works with the mouse and the keyboard."""
    element.classes("cursor-pointer").props("tabindex=0 role=link")
    element.on("click", lambda: ui.navigate.to(path))
    element.on("keydown.enter", lambda: ui.navigate.to(path))


def not_started(backend: str) -> None:
    """Render the page of a backend that this instance does not run."""
    empty_state(f"This instance does not run the {backend} backend.")


def empty_state(message: str) -> None:
    """Explain why a region is empty and what would fill it."""
    with ui.row().classes("items-center gap-2 tally-quiet no-wrap"):
        ui.icon("info").props("aria-hidden=true")
        ui.label(message)
