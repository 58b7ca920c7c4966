"""Serves the documentation pages: an explorer of the API, and the meaning of every error code.

The explorer is Swagger UI. Its files come from the package `offapi`; the pages work without network
access and load nothing from other servers. Links to assets contain a hash of the content, so that
browsers can cache them for a year.
"""

import hashlib
import re
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from tally.error_codes import ERROR_CODES, ErrorCode
from tally.errors import NotFound
from tally.kit.endpoints import Endpoint
from tally.kit.http import ERRORS_PAGE

ASSET_HEADERS: Final = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
}
# Swagger UI sets style attributes, and its style sheet contains images.
PAGE_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self';"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
HEAD: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<link rel="icon" href="data:,">'
)


def docs_endpoints() -> tuple[Endpoint, ...]:
    return (
        Endpoint("GET", "/docs", show_explorer, "Explore the API", is_documented=False),
        Endpoint("GET", ERRORS_PAGE, show_error_codes, "Explain error codes", is_documented=False),
        Endpoint("GET", "/docs/assets/{name}", get_asset, "Get an asset", is_documented=False),
    )


async def show_explorer(_: Request) -> Response:
    return HTMLResponse(_explorer(), headers=PAGE_HEADERS)


async def show_error_codes(_: Request) -> Response:
    return HTMLResponse(_error_codes(), headers=PAGE_HEADERS)


async def get_asset(request: Request) -> Response:
    file = _asset_files().get(request.path_params["name"])
    if file is None:
        raise NotFound("No such asset")
    return FileResponse(file, headers=ASSET_HEADERS)


@cache
def _asset_files() -> dict[str, Path]:
    """Return the assets; `offapi` is not imported because that reads three explorers."""
    package = find_spec("offapi")
    if package is None or package.origin is None:
        raise RuntimeError("The package offapi is not installed")
    wheel, own = Path(package.origin).parent, Path(__file__).parent / "docs_assets"
    return {
        "swagger-ui.js": wheel / "swagger_bundle.js",
        "swagger-ui.css": wheel / "swagger_style.css",
        "explorer.js": own / "explorer.js",
        "errors.css": own / "errors.css",
    }


def _asset(name: str) -> str:
    digest = hashlib.sha256(_asset_files()[name].read_bytes()).hexdigest()
    return f"/docs/assets/{name}?v={digest[:12]}"


@cache
def _explorer() -> str:
    return (
        f"{HEAD}<title>Tally API</title>"
        f'<link rel="stylesheet" href="{_asset("swagger-ui.css")}"></head>'
        '<body><div id="explorer"></div>'
        f'<script src="{_asset("swagger-ui.js")}"></script>'
        f'<script src="{_asset("explorer.js")}"></script></body></html>'
    )


@cache
def _error_codes() -> str:
    entries = sorted(ERROR_CODES.values(), key=lambda entry: (entry.status, entry.code))
    return (
        f"{HEAD}<title>Error codes of Tally</title>"
        f'<link rel="stylesheet" href="{_asset("errors.css")}"></head>'
        '<body><a href="/docs">API explorer</a><h1>Error codes</h1>'
        "<p>Every error is <code>application/problem+json</code> (RFC 9457), and its"
        " <code>type</code> links to an entry of this page.</p>"
        f"{''.join(map(_error_code, entries))}</body></html>"
    )


def _error_code(entry: ErrorCode) -> str:
    return (
        f'<section id="{entry.code}"><h2><a href="#{entry.code}"><code>{entry.code}</code></a></h2>'
        f"<p><strong>{entry.status} {_prose(entry.title)}.</strong> {_prose(entry.meaning)}</p>"
        f"<p>{_prose(entry.action)}</p></section>"
    )


def _prose(text: str) -> str:
    """Return text as HTML; words in backquotes become code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
