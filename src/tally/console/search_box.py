"""The search box in the header.

The box is a form that requests the page of results, so results have an address.
"""

from typing import Final

from nicegui import ui

from tally.console.links import SEARCH, address
from tally.console.protection import NONCE
from tally.console.search import MAX_TEXT

FIELD: Final = "q"
PLACEHOLDER: Final = "Search (press /)"
# The key "/" focuses the box, unless the reader is typing.
SHORTCUT: Final = """
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable=true]")) return;
  const box = document.querySelector(".tally-search input");
  if (box === null) return;
  event.preventDefault();
  box.focus();
  box.select();
});
"""


def search_box() -> None:
    """Render the form. It needs no connection to the server."""
    request = ui.context.client.request
    nonce = getattr(request.state, NONCE)
    ui.add_head_html(f'<script nonce="{nonce}">{SHORTCUT}</script>')
    text = request.query_params.get(FIELD, "") if request.url.path.endswith(SEARCH) else ""
    form = ui.element("form").classes("tally-search").props("role=search method=get")
    form.props["action"] = address(SEARCH)
    with form:
        box = ui.element("input").props(f"type=search name={FIELD} aria-keyshortcuts=/")
        box.props["aria-label"] = "Search"
        box.props["placeholder"] = PLACEHOLDER
        box.props["maxlength"] = MAX_TEXT
        box.props["value"] = text
