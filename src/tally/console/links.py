"""The addresses of the console's pages, and links to them.

A link is a real `<a href>`: it opens in a new tab, can be copied, and works without the mouse.
"""

from typing import Final
from urllib.parse import quote

from nicegui import ui

HOME: Final = "/"
SEARCH: Final = "/search"


def athlete_path(user_id: str) -> str:
    return f"/collect/athletes/{_segment(user_id)}"


def player_path(user_id: str) -> str:
    return f"/scoreboard/players/{_segment(user_id)}"


def device_path(hardware_id: str) -> str:
    return f"/devices/{_segment(hardware_id)}"


def match_path(match_id: str) -> str:
    return f"/cricket/{_segment(match_id)}"


def table_path(name: str) -> str:
    return f"/data/{_segment(name)}"


def backend_path(name: str) -> str:
    return f"/{name}"


def _segment(text: str) -> str:
    return quote(text, safe=":@")


def address(path: str) -> str:
    """Return the address of a page for attributes that NiceGUI does not complete itself.

    The console is mounted under a path, and a proxy may serve it under another one.
    """
    request = ui.context.client.request
    prefix = quote(request.headers.get("X-Forwarded-Prefix", ""), safe="/:@!$&'()*+,;=%")
    return f"{prefix}{request.scope.get('root_path', '')}{path}"


def link(text: str, path: str) -> ui.link:
    """Render a text link to a page of the console."""
    return ui.link(text, path).classes("tally-link")


def block_link(path: str) -> ui.link:
    """Return a link to fill with `with`: a tile, or a row of a list."""
    return ui.link(target=path).classes("tally-block-link")


def link_cell(name: str, field: str = "href") -> str:
    """Return the template of a table cell whose text links to the address in the row's `field`.

    Rows hold the result of `address`, because a template cannot compute it.
    """
    return f"""
<q-td :props="props"><a v-if="props.row.{field}" :href="props.row.{field}" class="tally-link">
{{{{ props.row.{name} }}}}</a><span v-else>{{{{ props.row.{name} }}}}</span></q-td>
"""
