"""Generates the lists of docs/cricket.md: run `python -m tests.cricket.docs_page`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tally.cricket.api.routes import cricket_api
from tally.cricket.jobs import live_jobs, sync_jobs
from tally.cricket.repository.repositories import REPOSITORIES
from tally.settings import Settings
from tally.store.catalogue import owned_tables

PAGE = Path(__file__).parent.parent.parent / "docs" / "cricket.md"


class _Anything:
    """Stands where only names are asked for: whatever is asked of it is itself."""

    def __getattr__(self, name: str) -> Any:
        return self


NOTHING: Any = cast("Any", _Anything())


def routes() -> str:
    rows = ["| method and path | for | does |", "|---|---|---|"]
    for operation in cricket_api(NOTHING, NOTHING).endpoints:
        who = (
            "operators"
            if "admin_key" in operation.security
            else "people"
            if operation.security
            else "everyone"
        )
        rows.append(f"| `{operation.method} {operation.path}` | {who} | {operation.summary} |")
    return "\n".join(rows)


def tables() -> str:
    rows = ["| table | key | indexes | expires by |", "|---|---|---|---|"]
    for table in (table for repository in REPOSITORIES for table in owned_tables(repository)):
        key = ", ".join(f"`{name}`" for name in table.key_names)
        indexes = ", ".join(f"`{index.name}`" for index in table.indexes)
        rows.append(
            f"| `{table.name}` | {key} | {indexes} | {f'`{table.ttl}`' if table.ttl else ''} |"
        )
    return "\n".join(rows)


def jobs() -> str:
    found = (
        *sync_jobs(NOTHING, NOTHING, lambda: NOTHING, NOTHING),
        *live_jobs(NOTHING, NOTHING, NOTHING, Settings()),
    )
    rows = [f"| `{job.name}` | {job.interval:g} s | {job.description} |" for job in found]
    return "\n".join(["| job | every | does |", "|---|---|---|", *rows])


LISTS: dict[str, Callable[[], str]] = {"routes": routes, "tables": tables, "jobs": jobs}


def filled(page: str) -> str:
    """The page with its lists as the code has them: each stands between its comment and the next empty line after its table."""
    for name, made in LISTS.items():
        head, comment, rest = page.partition(f"<!-- {name} -->\n")
        rest = re.sub(r"\A\n\|.*?\n(?=\n)", "", rest, flags=re.DOTALL)
        page = f"{head}{comment}\n{made()}\n{rest}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
