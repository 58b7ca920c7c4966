"""The sign-in page of a console that is protected by a password."""

import asyncio
from typing import Final

from nicegui import app, ui

from tally.console.context import ConsoleContext
from tally.console.shell import HOME, LOGIN, NAVIGATION, Shell
from tally.console.theme import apply_theme
from tally.kit.auth import matches_secret

# Slows down guessing.
FAILURE_DELAY_SECONDS: Final = 1.0
SIGN_IN_HELP: Final = (
    "The password is the value of TALLY_CONSOLE_PASSWORD or, if that is not set, "
    "the content of console.key in the data directory."
)


def add_login_page(shell: Shell, context: ConsoleContext) -> None:
    @ui.page(LOGIN, title="Sign in · Tally")
    def login(next_path: str = HOME) -> None:
        apply_theme()
        if shell.is_allowed():
            ui.navigate.to(HOME)
            return
        # The parameter comes from the URL: redirect only to a page of the console.
        target = next_path if next_path in {path for path, *_ in NAVIGATION} else HOME

        async def sign_in() -> None:
            if context.password is not None and matches_secret(
                password.value or "", context.password
            ):
                app.storage.user["is_signed_in"] = True
                ui.navigate.to(target)
                return
            await asyncio.sleep(FAILURE_DELAY_SECONDS)
            ui.notify("Wrong password", type="negative")

        with (
            ui.card().classes("absolute-center tally-card q-pa-lg").style("width: min(24rem, 92vw)")
        ):
            with ui.row().classes("items-center gap-2"):
                ui.icon("bolt", size="md").classes("text-primary").props("aria-hidden=true")
                ui.label("Tally").classes("text-h5").props("role=heading aria-level=1")
            ui.label(SIGN_IN_HELP).classes("tally-quiet tally-small")
            password = ui.input("Password", password=True, password_toggle_button=True).classes(
                "w-full"
            )
            password.props("autofocus outlined").on("keydown.enter", sign_in)
            ui.button("Sign in", on_click=sign_in).classes("w-full")
