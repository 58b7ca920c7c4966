"""Builds the HTML pages of simulated services: static, without scripts or external resources."""

import itertools
from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

from starlette.responses import HTMLResponse

# Forms may redirect to any registered application, so the policy does not restrict `form-action`.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline';"
    " frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
MAX_CHOICES: Final = 30
STYLE: Final = """
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 26rem; margin: 3rem auto;
  padding: 0 1rem; color: #1b1b1f; }
button { font: inherit; display: block; width: 100%; margin: .4rem 0; padding: .5rem;
  border: 1px solid #5b5b66; border-radius: .4rem; background: #fff; color: inherit;
  text-align: left; cursor: pointer; }
button:hover, button:focus { background: #eef; }
input[type=text] { font: inherit; width: 100%; padding: .4rem; }
p.note { color: #55555f; font-size: .9rem; } label { display: block; margin: .3rem 0; }
"""


def html_page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """A page with the given HTML body. The caller escapes untrusted parts of `body`."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    main = f"<main><h1>{escape(title)}</h1>{body}</main>"
    html = f'<!doctype html><html lang="en"><head>{head}</head><body>{main}</body></html>'
    return HTMLResponse(html, status, HEADERS)


def html_form(action: str, hidden: Mapping[str, str], content: Iterable[str]) -> str:
    fields = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in hidden.items()
    )
    return f'<form method="post" action="{escape(action)}">{fields}{"".join(content)}</form>'


def html_button(name: str, value: str, text: str) -> str:
    return f'<button name="{escape(name)}" value="{escape(value)}">{escape(text)}</button>'


def choice_buttons(name: str, choices: Iterable[tuple[str, str]]) -> list[str]:
    """One button per (value, text) pair, at most MAX_CHOICES."""
    return [
        html_button(name, value, text) for value, text in itertools.islice(choices, MAX_CHOICES)
    ]


def note_paragraph(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'
