"""A minimal browser for login flows: per-host cookies, redirects followed by the caller.

Virtual athletes and tests use it. Unlike a real browser, it sends `Secure` cookies over plain
HTTP, because a demo on one machine has no TLS.
"""

from collections import defaultdict
from collections.abc import Mapping
from http.cookies import SimpleCookie
from urllib.parse import parse_qsl, urljoin, urlsplit

from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from tally.errors import Unavailable


class Browser:
    """The browser of one user. Cookies are sent back to the host that set them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cookies: dict[str, dict[str, str]] = defaultdict(dict)

    async def get(self, url: str) -> Response:
        return await self._send("GET", url)

    async def submit(self, url: str, fields: Mapping[str, str]) -> Response:
        return await self._send("POST", url, form=dict(fields))

    async def post(self, url: str, body: object) -> Response:
        return await self._send("POST", url, body=body)

    async def _send(
        self, method: str, url: str, form: dict[str, str] | None = None, body: object = None
    ) -> Response:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        cookies = self._cookies[parts.netloc]
        request = self._client.request(method, url).header("origin", origin)
        if cookies:
            request = request.header(
                "cookie", "; ".join(f"{name}={value}" for name, value in cookies.items())
            )
        if form is not None:
            request = request.form(form)
        elif body is not None:
            request = request.body_json(body)
        try:
            response = await request.build().send()
        except PyreqwestError as error:
            raise Unavailable(f"Cannot reach {origin}: {type(error).__name__}") from error
        for line in response.get_header_all("set-cookie"):
            _store_cookie(cookies, line)
        return response


def redirect_target(response: Response, base: str) -> str:
    """The URL a redirect points to; Unavailable if the response is not a redirect."""
    location = response.get_header("location")
    if response.status not in {302, 303, 307} or location is None:
        url = base.partition("?")[0]
        raise Unavailable(f"Expected a redirect from {url}, got status {response.status}")
    return urljoin(base, location)


def query_parameters(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


def _store_cookie(cookies: dict[str, str], line: str) -> None:
    for name, morsel in SimpleCookie(line).items():
        is_expired = morsel["max-age"] == "0" or not morsel.value
        cookies.pop(name, None)
        if not is_expired:
            cookies[name] = morsel.value
