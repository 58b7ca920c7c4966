"""An answer comes whole and bounded, and whatever else comes is Unavailable, in words that give nothing away."""

import traceback

import msgspec
import pytest
from pyreqwest.client import Client
from starlette.requests import Request
from starlette.responses import Response

from tally.errors import Unavailable
from tally.kit.fetch import fetch
from tests.kit.serving import served


class Thing(msgspec.Struct):
    name: str


async def test_an_answer_has_status_headers_and_body(client: Client) -> None:
    """Header names in lower case, whatever the status."""

    async def handler(_: Request) -> Response:
        return Response('{"name": "x"}', 404, {"X-RateLimit-Limit": "100,1000"})

    async with served(handler, method="GET") as url:
        answer = await fetch(client.get(url), "Strava")
    assert (answer.status, answer.headers["x-ratelimit-limit"]) == (404, "100,1000")
    assert answer.decode(Thing, "Strava") == Thing("x")


@pytest.mark.parametrize("body", ["", "<html>", '{"name": 5}', "[" * 100_000])
async def test_something_unreadable_is_unavailable(client: Client, body: str) -> None:
    """It is the other side that is wrong."""

    async def handler(_: Request) -> Response:
        return Response(body)

    async with served(handler, method="GET") as url:
        answer = await fetch(client.get(url), "Strava")
    with pytest.raises(Unavailable, match="Strava sent an invalid response"):
        answer.decode(Thing, "Strava")


async def test_an_answer_without_end_is_cut_off(client: Client) -> None:
    """No more is read than was agreed on."""

    async def handler(_: Request) -> Response:
        return Response(b"x" * 2000)

    async with served(handler, method="GET") as url:
        with pytest.raises(Unavailable, match="more than 1000 bytes"):
            await fetch(client.get(url), "Strava", limit=1000)


async def test_nobody_there_is_unavailable_and_the_address_is_not_told(client: Client) -> None:
    """Addresses can hold secrets: not in the words, nor in a traceback."""
    with pytest.raises(Unavailable, match="Strava is unreachable") as away:
        await fetch(client.get("http://127.0.0.1:1/?token=very-hidden"), "Strava")
    told = "".join(traceback.format_exception(away.value)).replace(
        'client.get("http://127.0.0.1:1/?token=very-hidden")', ""
    )
    assert "very-hidden" not in str(away.value) + told
