"""The few pages that simulated services show to people: plain HTML, no script, nothing loaded."""

import itertools
from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from starlette.responses import HTMLResponse

# A form may lead on to the application that sent the person here, so `form-action` is left open.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Cache-Control": "no-store",
}
# More than a person wants to choose from.
MAX_CHOICES: Final = 30
STYLE: Final = """
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 26rem; margin: 3rem auto; padding: 0 1rem; color: #1b1b1f; }
button { font: inherit; display: block; width: 100%; margin: .4rem 0; padding: .5rem; border: 1px solid #5b5b66;
  border-radius: .4rem; background: #fff; color: inherit; text-align: left; cursor: pointer; }
button:hover, button:focus { background: #eef; } input[type=text] { font: inherit; width: 100%; padding: .4rem; }
p.note { color: #55555f; font-size: .9rem; } label { display: block; margin: .3rem 0; }
"""


def page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """`body` is HTML, with whatever came from outside already escaped."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    html = f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body><main><h1>{escape(title)}</h1>'
    return HTMLResponse(f"{html}{body}</main></body></html>", status, HEADERS)


def form(action: str, hidden: Mapping[str, str], inside: Iterable[str]) -> str:
    fields = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in hidden.items()
    )
    return f'<form method="post" action="{escape(action)}">{fields}{"".join(inside)}</form>'


def button(name: str, value: str, text: str) -> str:
    return f'<button name="{escape(name)}" value="{escape(value)}">{escape(text)}</button>'


def choices(name: str, values: Iterable[tuple[str, str]]) -> list[str]:
    """A button for each value and its text, as many as fit on a page."""
    return [button(name, value, text) for value, text in itertools.islice(values, MAX_CHOICES)]


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'
