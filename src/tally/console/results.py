"""The page with the results of a search over all backends."""

from collections.abc import Sequence

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.links import SEARCH, block_link, table_path
from tally.console.search import MAX_RESULTS, SearchGroup, SearchResult, matches
from tally.console.shell import Shell, card, empty_state


def add_results_page(shell: Shell, context: ConsoleContext) -> None:
    async def find_tables(text: str) -> Sequence[SearchResult]:
        tables = sorted(context.catalogue.tables(), key=lambda table: table.name)
        return [
            SearchResult(table.name, table_path(table.name), f"Key {', '.join(table.key_names)}")
            for table in tables
            if matches(text, table.name)
        ]

    shell.search.add("Tables", find_tables)

    @shell.page(SEARCH, "Search")
    async def results(q: str = "") -> None:
        groups = await shell.search.find(q)
        kinds = ", ".join(kind.lower() for kind in shell.search.kinds)
        if not q.strip():
            empty_state(f"Type a name or an ID into the box above to search {kinds}.")
        elif not groups:
            empty_state(f'Nothing matches "{q.strip()}". Searched {kinds}.')
        for group in groups:
            _show_group(group)


def _show_group(group: SearchGroup) -> None:
    is_full = len(group.results) == MAX_RESULTS
    about = f"The first {MAX_RESULTS}; type more to narrow them down" if is_full else ""
    with card(group.kind, about=about):
        if group.problem:
            empty_state(group.problem)
        with ui.element("ul").classes("tally-list"):
            for result in group.results:
                with (
                    ui.element("li"),
                    block_link(result.path).classes("tally-line q-pa-xs").props("data-result=1"),
                ):
                    ui.label(result.label).classes("text-weight-medium")
                    if result.detail:
                        ui.label(result.detail).classes("tally-quiet tally-small")
