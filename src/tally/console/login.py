"""Who may see the console where it is not open to everybody: whoever knows its password."""

import asyncio
from typing import Final

from nicegui import app, ui

from tally.console.desk import Desk
from tally.console.look import dress
from tally.console.shell import HOME, LOGIN, Shell
from tally.kit.auth import is_same

# Before a wrong password is said to be wrong: nobody tries many.
PAUSE_SECONDS: Final = 1.0


def put_login(shell: Shell, desk: Desk) -> None:
    @ui.page(LOGIN, title="Sign in · Tally")
    def login() -> None:
        dress()
        if shell.may_look():
            ui.navigate.to(HOME)
            return

        async def sign_in() -> None:
            if desk.password is not None and is_same(password.value or "", desk.password):
                app.storage.user["is_signed_in"] = True
                ui.navigate.to(app.storage.user.pop("wanted", HOME))
                return
            await asyncio.sleep(PAUSE_SECONDS)
            ui.notify("This is not the password", type="negative")

        with ui.card().classes("absolute-center tally-card"):
            ui.label("Tally").classes("text-h5").props("role=heading aria-level=1")
            ui.label("The console's password is in the data directory, or in TALLY_CONSOLE_PASSWORD.").classes("tally-quiet")
            password = ui.input("Password", password=True).classes("w-full").on("keydown.enter", sign_in)
            ui.button("Sign in", on_click=sign_in)
