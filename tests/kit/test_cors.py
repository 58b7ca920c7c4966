"""Pages of the allowed origins may call the backends; others get no CORS headers."""

from collections.abc import AsyncIterator

import pytest
from pyreqwest.client import Client
from starlette.requests import Request
from starlette.responses import Response

from tally.errors import NotFound
from tally.kit.endpoints import Endpoint
from tally.kit.http import Json
from tally.kit.server import serving
from tests.api_response import ApiResponse, expect_error
from tests.kit.serving import make_api, make_app

GAME = "https://game.example.com"


async def show(_: Request) -> Response:
    return Json({})


async def fail(_: Request) -> Response:
    raise NotFound("Nothing here")


API = make_api(
    Endpoint("GET", "/thing", show, "A thing"), Endpoint("PATCH", "/gone", fail, "Nothing")
)


@pytest.fixture(scope="module", params=[(GAME, "http://localhost:5173"), ("*",)], ids=["two", "*"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, tuple[str, ...]]]:
    async with serving(make_app(API, cors_origins=request.param)) as url:
        yield url, request.param


async def send(client: Client, method: str, url: str, **headers: str) -> ApiResponse:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ApiResponse.read(await client.request(method, url).headers(names).build().send())


async def preflight(client: Client, url: str, origin: str, method: str = "PATCH") -> ApiResponse:
    return await send(
        client,
        "OPTIONS",
        url,
        Origin=origin,
        Access_Control_Request_Method=method,
        Access_Control_Request_Headers="authorization,content-type",
    )


def words(response: ApiResponse, header: str) -> set[str]:
    return set(response.headers[f"access-control-{header}"].lower().split(", "))


def has_no_permission(response: ApiResponse) -> bool:
    return not any(name.startswith("access-control-") for name in response.headers)


@pytest.mark.parametrize("path", ["/devices/gone", "/devices/thing", "/devices/nowhere"])
async def test_a_preflight_allows_the_methods_and_headers_of_the_apis(
    client: Client, served: tuple[str, tuple[str, ...]], path: str
) -> None:
    url, origins = served
    response = await preflight(client, url + path, GAME)
    assert (response.status, response.body) == (204, b"")
    assert response.headers["access-control-allow-origin"] == (GAME if "*" not in origins else "*")
    assert words(response, "allow-methods") == {"get", "head", "post", "put", "patch", "delete"}
    required = {"authorization", "content-type", "x-api-key", "last-event-id"}
    assert required <= words(response, "allow-headers")
    assert "x-requested-with" not in words(response, "allow-headers"), "proves the same site"


async def test_responses_and_errors_are_readable_with_their_headers(
    client: Client, served: tuple[str, tuple[str, ...]]
) -> None:
    url, origins = served
    shown = await send(client, "GET", f"{url}/devices/thing", Origin=GAME)
    assert shown.status == 200
    failed = await send(client, "PATCH", f"{url}/devices/gone", Origin=GAME)
    expect_error(failed, 404, "not_found")
    for response in (shown, failed):
        allowed = response.headers["access-control-allow-origin"]
        assert allowed == (GAME if "*" not in origins else "*")
        assert words(response, "expose-headers") == {
            "ratelimit-limit",
            "ratelimit-remaining",
            "ratelimit-reset",
            "retry-after",
            "x-request-id",
        }


async def test_no_response_allows_credentials(
    client: Client, served: tuple[str, tuple[str, ...]]
) -> None:
    """A browser sends no cookies, and a page cannot read a response that needed them."""
    url, _ = served
    for response in (
        await preflight(client, f"{url}/devices/thing", GAME),
        await send(client, "GET", f"{url}/devices/thing", Origin=GAME, Cookie="cc_session=1"),
    ):
        assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize(
    "origin",
    ["https://other.example", "null", f"{GAME}.evil.example", f"{GAME}:8443", "http://x", ""],
)
async def test_another_origin_gets_no_permission(client: Client, origin: str) -> None:
    async with serving(make_app(API, cors_origins=(GAME,))) as url:
        refused = await preflight(client, f"{url}/devices/thing", origin)
        assert refused.status == 204
        assert has_no_permission(refused)
        response = await send(client, "GET", f"{url}/devices/thing", Origin=origin)
        assert response.status == 200
        assert has_no_permission(response)
        assert response.headers["vary"] == "Origin", "a cache must not share the response"


async def test_requests_without_an_origin_have_no_cors_headers(
    client: Client, served: tuple[str, tuple[str, ...]]
) -> None:
    url, _ = served
    response = await send(client, "GET", f"{url}/devices/thing")
    assert has_no_permission(response)
    expect_error(await send(client, "OPTIONS", f"{url}/devices/thing"), 405, "method_not_allowed")


async def test_pages_reach_only_the_backends(
    client: Client, served: tuple[str, tuple[str, ...]]
) -> None:
    """The console and the instance's own routes stay closed to other origins."""
    url, _ = served
    response = await preflight(client, f"{url}/metrics", GAME)
    expect_error(response, 404, "not_found")
    assert has_no_permission(response)


async def test_no_origin_is_allowed_by_default(client: Client) -> None:
    async with serving(make_app(API)) as url:
        refused = await preflight(client, f"{url}/devices/thing", GAME)
        expect_error(refused, 405, "method_not_allowed")
        assert has_no_permission(refused)
        assert has_no_permission(await send(client, "GET", f"{url}/devices/thing", Origin=GAME))
