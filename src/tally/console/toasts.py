"""Short messages at the bottom of the page: confirmations, and problems that stay until closed."""

from typing import Final

from nicegui import ui

PROBLEM_MILLISECONDS: Final = 15_000


def confirm(message: str) -> None:
    """Show that something was done."""
    ui.notify(message, type="positive", progress=True)


def report_problem(message: str) -> None:
    """Show why something was not done; it stays long enough to read, and can be closed."""
    ui.notify(message, type="negative", close_button="Close", timeout=PROBLEM_MILLISECONDS)
