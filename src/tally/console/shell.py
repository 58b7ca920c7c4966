"""The frame around every page: navigation, search and operator, and shared page elements."""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final, ParamSpec

from nicegui import ui

from tally.console.access import page_session
from tally.console.context import ConsoleContext
from tally.console.links import HOME, block_link, link
from tally.console.local_time import time_zone
from tally.console.navigation import NAVIGATION, NavigationEntry
from tally.console.open_pages import OpenPages
from tally.console.search import Search
from tally.console.search_box import search_box
from tally.console.theme import apply_theme

# NiceGUI replaces a page that takes longer with an error page; its default is three seconds.
BUILD_SECONDS: Final = 30.0

P = ParamSpec("P")

Page = Callable[P, Awaitable[None] | None]


class Shell:
    """Registers pages: `shell.page("/devices", "Devices")` decorates the function of one."""

    def __init__(self, context: ConsoleContext, open_pages: OpenPages) -> None:
        self._context = context
        self._open_pages = open_pages
        self.search = Search(context.clock)

    def page(
        self, path: str, title: str, about: str = "", *, is_headed: bool = True
    ) -> Callable[[Page[P]], None]:
        """Register a page. With `is_headed=False` the page renders its own `heading`."""

        def register(fill: Page[P]) -> None:
            @wraps(fill)
            async def render(*args: P.args, **kwargs: P.kwargs) -> None:
                self.frame(path)
                if is_headed:
                    heading(title, about)
                result = fill(*args, **kwargs)
                if inspect.isawaitable(result):
                    await result
                _time_zone_note()

            ui.page(path, title=f"{title} · Tally", response_timeout=BUILD_SECONDS)(render)

        return register

    def frame(self, path: str) -> None:
        """Render what every page has in common; `path` marks the current page."""
        apply_theme()
        drawer = ui.left_drawer(fixed=True, bordered=True).props("width=220")
        with drawer.classes("tally-drawer"):
            with ui.column().classes("gap-0 w-full").props("role=navigation aria-label='Pages'"):
                for group in NAVIGATION:
                    if group.title:
                        ui.label(group.title).classes("tally-group tally-quiet tally-small")
                    for entry in group.entries:
                        _navigation_link(entry, is_current=entry.is_current(path))
            self._operator()
        with ui.header(elevated=True).classes("tally-header").props("aria-label='Tally'"):
            ui.button(icon="menu", on_click=drawer.toggle).props(
                "flat round color=white aria-label='Navigation'"
            ).classes("tally-menu")
            with block_link(HOME).classes("tally-brand"):
                ui.icon("bolt", size="sm").props("aria-hidden=true")
                ui.label("Tally")
            search_box()
        # After the header, which would otherwise come before it.
        ui.skip_link("Skip to the content", target=ui.context.client.content)

    def _operator(self) -> None:
        operator = page_session().operator
        with ui.column().classes("gap-1 w-full tally-rule q-pt-sm"):
            ui.label("Signed in as").classes("tally-quiet tally-small")
            ui.label(f"{operator.name} ({operator.role.value})").classes(
                "text-weight-medium tally-operator"
            ).props("data-operator=1")
            ui.button("Sign out", icon="logout", on_click=self._sign_out).classes(
                "tally-sign-out"
            ).props(f"flat dense no-caps title='Sign out {operator.name}'")

    async def _sign_out(self) -> None:
        session = page_session()
        await self._context.sessions.end(session)
        await self._context.operators.record(session.operator, "console_sign_out", "console")
        await self._open_pages.close_ended()


def _navigation_link(entry: NavigationEntry, *, is_current: bool) -> None:
    with block_link(entry.path).classes("tally-nav") as element:
        ui.icon(entry.icon, size="sm").props("aria-hidden=true")
        ui.label(entry.label)
    if is_current:
        element.props("aria-current=page")


def _time_zone_note() -> None:
    with ui.row().classes("tally-quiet tally-small gap-1 q-mt-md").props("role=note"):
        ui.label("Your time zone:")
        time_zone()
        ui.label("· Point at a time to see it in UTC.")


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


def show_not_found(title: str, message: str, path: str, back: str) -> None:
    """Fill the page with the reason why there is nothing, and respond with 404.

    `path` and `back` are the address and the text of the link to where the reader can go on.
    """
    ui.context.client.status_code = 404
    heading(title)
    empty_state(message)
    with ui.row().classes("gap-4"):
        link(back, path)
        if path != HOME:
            link("Home", HOME)


def not_started(backend: str) -> None:
    """Render the page of a backend that this instance does not run."""
    empty_state(f"This instance does not run the {backend} backend.")


def empty_state(message: str) -> None:
    """Explain why a region is empty and what would fill it."""
    with ui.row().classes("items-center gap-2 tally-quiet no-wrap"):
        ui.icon("info").props("aria-hidden=true")
        ui.label(message)
