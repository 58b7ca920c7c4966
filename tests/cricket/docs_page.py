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


class _Placeholder:
    """Returns itself for every attribute; only the declarations are read."""

    def __getattr__(self, name: str) -> Any:
        return self


PLACEHOLDER: Any = cast("Any", _Placeholder())


def routes() -> str:
    rows = ["| method and path | role | description |", "|---|---|---|"]
    for endpoint in cricket_api(PLACEHOLDER, PLACEHOLDER).endpoints:
        role = (
            "admin"
            if "operator" in endpoint.security
            else "user"
            if endpoint.security
            else "public"
        )
        rows.append(f"| `{endpoint.method} {endpoint.path}` | {role} | {endpoint.summary} |")
    return "\n".join(rows)


def tables() -> str:
    rows = ["| table | key | indexes | TTL attribute |", "|---|---|---|---|"]
    for table in (table for repository in REPOSITORIES for table in owned_tables(repository)):
        key = ", ".join(f"`{name}`" for name in table.key_names)
        indexes = ", ".join(f"`{index.name}`" for index in table.indexes)
        rows.append(
            f"| `{table.name}` | {key} | {indexes} | {f'`{table.ttl}`' if table.ttl else ''} |"
        )
    return "\n".join(rows)


def jobs() -> str:
    all_jobs = (
        *sync_jobs(PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, lambda: PLACEHOLDER, PLACEHOLDER),
        *live_jobs(PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, Settings()),
    )
    rows = [f"| `{job.name}` | {job.interval:g} s | {job.description} |" for job in all_jobs]
    return "\n".join(["| job | interval | description |", "|---|---|---|", *rows])


LISTS: dict[str, Callable[[], str]] = {"routes": routes, "tables": tables, "jobs": jobs}


def render_lists(page: str) -> str:
    """Replace each list: the table between its comment and the next empty line."""
    for name, render in LISTS.items():
        head, comment, rest = page.partition(f"<!-- {name} -->\n")
        rest = re.sub(r"\A\n\|.*?\n(?=\n)", "", rest, flags=re.DOTALL)
        page = f"{head}{comment}\n{render()}\n{rest}"
    return page


if __name__ == "__main__":
    PAGE.write_text(render_lists(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
