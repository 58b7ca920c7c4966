"""`fetch` returns a bounded response or raises Unavailable without revealing the URL."""

import traceback

import msgspec
import pytest
from pyreqwest.client import Client
from starlette.requests import Request
from starlette.responses import Response

from tally.errors import Unavailable
from tally.kit.fetch import fetch
from tests.kit.serving import serve_handler


class Thing(msgspec.Struct):
    name: str


async def test_a_response_has_status_headers_and_body(client: Client) -> None:
    """Header names are in lower case for every status."""

    async def handler(_: Request) -> Response:
        return Response('{"name": "x"}', 404, {"X-RateLimit-Limit": "100,1000"})

    async with serve_handler(handler, method="GET") as url:
        response = await fetch(client.get(url), "Strava")
    assert (response.status, response.headers["x-ratelimit-limit"]) == (404, "100,1000")
    assert response.decode(Thing, "Strava") == Thing("x")


@pytest.mark.parametrize("body", ["", "<html>", '{"name": 5}', "[" * 100_000])
async def test_an_invalid_body_is_unavailable(client: Client, body: str) -> None:
    """The service is at fault."""

    async def handler(_: Request) -> Response:
        return Response(body)

    async with serve_handler(handler, method="GET") as url:
        response = await fetch(client.get(url), "Strava")
    with pytest.raises(Unavailable, match="Strava sent an invalid response"):
        response.decode(Thing, "Strava")


async def test_an_oversized_response_is_rejected(client: Client) -> None:
    """At most `limit` bytes are read."""

    async def handler(_: Request) -> Response:
        return Response(b"x" * 2000)

    async with serve_handler(handler, method="GET") as url:
        with pytest.raises(Unavailable, match="more than 1000 bytes"):
            await fetch(client.get(url), "Strava", limit=1000)


async def test_an_unreachable_service_is_unavailable_and_the_url_is_hidden(client: Client) -> None:
    """A URL can contain secrets; it is neither in the message nor in the traceback."""
    with pytest.raises(Unavailable, match="Strava is unreachable") as caught:
        await fetch(client.get("http://127.0.0.1:1/?token=very-hidden"), "Strava")
    trace = "".join(traceback.format_exception(caught.value)).replace(
        'client.get("http://127.0.0.1:1/?token=very-hidden")', ""
    )
    assert "very-hidden" not in str(caught.value) + trace
