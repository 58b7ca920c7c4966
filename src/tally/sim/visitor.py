"""A browser as far as logins need one: it keeps cookies by host, and goes where it is sent only when told to.

The made-up people use it, and so do tests that play a person. Unlike a browser it sends `Secure`
cookies over plain HTTP, since that is what a demo on one machine runs on.
"""

from collections import defaultdict
from collections.abc import Mapping
from http.cookies import SimpleCookie
from urllib.parse import parse_qsl, urljoin, urlsplit

from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from tally.errors import Unavailable


class Visitor:
    """A browser of one person's: what a host set in cookies goes back to that host."""

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
        cookies = self._cookies[parts.netloc]
        building = self._client.request(method, url).header(
            "origin", f"{parts.scheme}://{parts.netloc}"
        )
        if cookies:
            building = building.header(
                "cookie", "; ".join(f"{name}={value}" for name, value in cookies.items())
            )
        if form is not None:
            building = building.form(form)
        elif body is not None:
            building = building.body_json(body)
        try:
            response = await building.build().send()
        except PyreqwestError as error:
            raise Unavailable(
                f"{parts.scheme}://{parts.netloc} does not answer: {type(error).__name__}"
            ) from error
        for line in response.get_header_all("set-cookie"):
            _keep(cookies, line)
        return response


def target_of(response: Response, base: str) -> str:
    """Where a redirect leads; Unavailable if it is none."""
    location = response.get_header("location")
    if response.status not in {302, 303, 307} or location is None:
        raise Unavailable(
            f"A redirect was expected at {base.partition('?')[0]}, not {response.status}"
        )
    return urljoin(base, location)


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


def _keep(cookies: dict[str, str], line: str) -> None:
    for name, morsel in SimpleCookie(line).items():
        is_over = morsel["max-age"] == "0" or not morsel.value
        cookies.pop(name, None)
        if not is_over:
            cookies[name] = morsel.value
