"""The page that leads to the pages for operating an instance."""

from typing import Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.shell import Shell

# The address below the console, the label, the icon and what the page is for.
PAGES: Final = (
    ("jobs", "Jobs", "schedule", "Scheduled work: history, next runs, run now, pause."),
    ("logs", "Logs", "subject", "Recent log lines by request, level and text."),
    ("backups", "Back-ups", "save", "Create, list and download back-ups."),
    ("webhooks", "Webhooks", "webhook", "Receivers of events, and their deliveries."),
    ("alarms", "Alarms", "notifications", "Open alarms of devices, and their history."),
    ("operators", "Operators", "group", "Accounts, and the audit trail of their changes."),
)


def add_operations_index(shell: Shell, context: ConsoleContext) -> None:
    @shell.page("/operations", "Operations", "How this installation runs.")
    def operations() -> None:
        with ui.element("div").classes("tally-tiles"):
            for path, label, icon, about in PAGES:
                if path == "alarms" and "devices" not in context.backends:
                    continue
                with (
                    ui.link(target=f"/operations/{path}").classes("no-underline"),
                    ui.card().classes("tally-card w-full"),
                ):
                    with ui.row().classes("items-center gap-2 no-wrap"):
                        ui.icon(icon, size="sm").props("aria-hidden=true").classes("text-primary")
                        ui.label(label).classes("text-subtitle1 text-primary").props(
                            "role=heading aria-level=2"
                        )
                    ui.label(about).classes("tally-quiet tally-small")
