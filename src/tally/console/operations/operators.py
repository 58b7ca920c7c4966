"""The page of operators: accounts, new tokens, and the audit trail of changes."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from nicegui import ui

from tally.console.access import page_session
from tally.console.context import ConsoleContext
from tally.console.operations.elements import TIME_CELL, ask_to_confirm, show_secret, time_text
from tally.console.shell import Region, Shell, card
from tally.errors import Conflict, Invalid
from tally.instance.repository.operator_audit import AuditRecord
from tally.instance.repository.operators import OperatorAccount
from tally.kit.operators import Role

REFRESH_SECONDS: Final = 5.0
AUDIT_ROWS: Final = 100
ABOUT: Final = "Accounts that administer this installation, and what they changed."
LIFETIMES: Final = {
    "30 days": timedelta(days=30),
    "90 days": timedelta(days=90),
    "1 year": timedelta(days=365),
    "Never": None,
}
AUDIT_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "time", "label": "Time", "field": "time", "align": "left"},
    {"name": "operator", "label": "Operator", "field": "operator", "align": "left"},
    {"name": "action", "label": "Action", "field": "action", "align": "left"},
    {"name": "target", "label": "Target", "field": "target", "align": "left"},
    {"name": "outcome", "label": "Outcome", "field": "outcome", "align": "left"},
]


def add_operator_page(shell: Shell, context: ConsoleContext) -> None:
    @shell.page("/operations/operators", "Operators", ABOUT)
    async def operators() -> None:
        view = OperatorView(context)
        view.show()
        await view.refresh()
        ui.timer(REFRESH_SECONDS, view.refresh, immediate=False)


class OperatorView:
    """The page of one visitor."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._operators = context.operators

    def show(self) -> None:
        with card("Accounts", about="A viewer may only read. Tokens are stored as hashes."):
            self._accounts = Region(ui.column().classes("w-full gap-2"))
        with (
            card("New operator", about="The token is shown once."),
            ui.row().classes("items-end gap-3"),
        ):
            self._name = ui.input("Name").classes("w-56")
            roles = [role.value for role in Role]
            self._role = ui.select(roles, value=Role.VIEWER.value, label="Role").classes("w-40")
            self._lifetime = ui.select(list(LIFETIMES), value="90 days", label="Token expires in")
            self._lifetime.classes("w-40")
            button = ui.button("Add operator", icon="person_add")
        self._context.changes.control(button, self._add)
        with card("Audit trail", about=f"The latest {AUDIT_ROWS} changes, newest first."):
            self._audit = (
                ui.table(columns=AUDIT_COLUMNS, rows=[], row_key="id", pagination=25)
                .classes("w-full")
                .props("dense flat wrap-cells no-data-label='No change yet.'")
            )
            self._audit.add_slot("body-cell-time", TIME_CELL)

    async def refresh(self) -> None:
        accounts = await self._operators.list()
        now = self._context.clock.now()
        shown = [
            (account.name, account.role, account.expires_at, account.last_used_at)
            for account in accounts
        ]
        self._accounts.show(shown, partial(self._draw, accounts, now))
        records, _ = await self._operators.changes(None, AUDIT_ROWS)
        rows = [_audit_row(record) for record in records]
        if rows != self._audit.rows:
            self._audit.rows = rows
            self._audit.update()

    def _draw(self, accounts: Sequence[OperatorAccount], now: datetime) -> None:
        for account in accounts:
            with (
                ui.row()
                .classes("items-center gap-3 w-full")
                .props(f'data-account="{account.name}"')
            ):
                ui.icon("person").props("aria-hidden=true")
                with ui.column().classes("gap-0"):
                    ui.label(f"{account.name} ({account.role.value})")
                    ui.label(_describe(account, now)).classes("tally-quiet tally-small")
                button = ui.button("Remove").props(
                    f"flat dense color=negative aria-label='Remove {account.name}'"
                )
                self._context.changes.control(button, partial(self._confirm, account.name))

    async def _add(self) -> None:
        name, role = (self._name.value or "").strip(), Role(self._role.value)
        lifetime = LIFETIMES[str(self._lifetime.value)]
        if not name:
            raise Invalid("Enter a name")
        expires = None if lifetime is None else self._context.clock.now() + lifetime
        async with self._context.changes.audited("operator_add", name, role=role.value):
            token = await self._operators.add(name, role, expires)
        show_secret(f"Token of {name}", token)
        self._name.set_value("")
        await self.refresh()

    async def _confirm(self, name: str) -> None:
        if name == page_session().operator.name:
            raise Conflict("You cannot remove yourself; another operator can")
        question = f"Remove {name}? The token becomes invalid, and open sessions end."
        ask_to_confirm(self._context.changes, question, "Remove", partial(self._remove, name))

    async def _remove(self, name: str) -> None:
        async with self._context.changes.audited("operator_remove", name):
            await self._operators.remove(name)
        await self.refresh()


def _describe(account: OperatorAccount, now: datetime) -> str:
    used = f"last used {time_text(account.last_used_at)}" if account.last_used_at else "never used"
    if account.expires_at is None:
        return f"Token does not expire, {used}"
    verb = "expired" if datetime.fromisoformat(account.expires_at) <= now else "expires"
    return f"Token {verb} {time_text(account.expires_at)}, {used}"


def _audit_row(record: AuditRecord) -> dict[str, str]:
    error = f": {record.error}" if record.error else ""
    return {
        "id": f"{record.operator} {record.id}",
        "time": time_text(record.time),
        "operator": record.operator,
        "action": record.action,
        "target": record.target,
        "outcome": f"{record.outcome}{error}",
    }
