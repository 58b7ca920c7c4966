"""A browser as far as logins need one: it keeps cookies by host, and goes where it is sent only when told to."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

from pyreqwest.client import Client
from pyreqwest.response import Response


class Browser:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._cookies: dict[str, dict[str, str]] = defaultdict(dict)

    async def get(self, url: str) -> Response:
        return await self._send("GET", url, None)

    async def submit(self, url: str, fields: Mapping[str, str]) -> Response:
        return await self._send("POST", url, fields)

    async def _send(self, method: str, url: str, fields: Mapping[str, str] | None) -> Response:
        cookies = self._cookies[urlsplit(url).netloc]
        building = self._client.request(method, url)
        if cookies:
            building = building.header("cookie", "; ".join(f"{name}={value}" for name, value in cookies.items()))
        if fields is not None:
            building = building.form(dict(fields))
        response = await building.build().send()
        for line in response.get_header_all("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            cookies.pop(name, None)
            if value.strip('"') and "max-age=0" not in line.lower():
                cookies[name] = value
        return response


def target(url: str, response: Response) -> str:
    """Where a redirect leads."""
    assert response.status == 302, response.status
    return urljoin(url, response.headers["location"])


def query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


async def told(response: Response) -> tuple[int, Any]:
    return response.status, await response.json()
