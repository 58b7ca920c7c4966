"""Web pages of other origins cannot use a simulator, except to begin a sign-in."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.response import Response

from tally.kit.clock import ManualClock
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.page_protection import CONTROL_HEADERS
from tally.sim.sportmonks.simulator import SportMonksSimulator
from tally.sim.strava.simulator import StravaSimulator

FOREIGN: Any = [
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "origin": "http://evil.example"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "origin": "http://127.0.0.1:9"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
]
LOGIN = {
    "client_id": "tally-collect",
    "redirect_uri": "http://127.0.0.1:9/callback",
    "response_type": "code",
    "scope": "openid",
}


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[Client]:
    async with ClientBuilder().follow_redirects(False).build() as client:
        yield client


@pytest.fixture(scope="module")
async def urls() -> AsyncIterator[dict[str, str]]:
    """The URLs of all simulators with a control API."""
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        apns = await stack.enter_async_context(ApnsSimulator(clock).serving())
        oidc = await stack.enter_async_context(OidcSimulator(clock).serving())
        sportmonks = await stack.enter_async_context(SportMonksSimulator(clock).serving())
        strava = await stack.enter_async_context(StravaSimulator(clock).serving())
        yield {
            "apns": apns.control_url,
            "oidc": oidc.url,
            "sportmonks": sportmonks.url,
            "strava": strava.url,
        }


async def send(
    client: Client, method: str, url: str, headers: Mapping[str, str], **form: str
) -> Response:
    request = client.request(method, url).headers(dict(headers))
    return await (request.form(form) if form else request).build().send()


@pytest.mark.parametrize("simulator", ["apns", "oidc", "sportmonks", "strava"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
async def test_the_control_api_needs_its_header(
    client: Client, urls: dict[str, str], simulator: str, method: str
) -> None:
    for path in ("/_sim/state", "/_sim/faults", "/_sim/nothing", "/%5fsim/state"):
        response = await send(client, method, urls[simulator] + path, {})
        assert response.status == 403
        assert "access-control-allow-origin" not in response.headers
    response = await send(client, "GET", f"{urls[simulator]}/_sim/state", CONTROL_HEADERS)
    assert response.status == 200


@pytest.mark.parametrize("simulator", ["apns", "oidc", "sportmonks", "strava"])
async def test_preflights_are_not_answered(
    client: Client, urls: dict[str, str], simulator: str
) -> None:
    for path in ("/_sim/state", "/", "/login", "/oauth/token"):
        preflight = {
            "origin": "http://evil.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "x-tally-control",
        }
        response = await send(client, "OPTIONS", urls[simulator] + path, preflight)
        assert response.status in {403, 404, 405}
        assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_requests_of_foreign_pages_are_rejected(
    client: Client, urls: dict[str, str], headers: dict[str, str]
) -> None:
    """Also with a form and the public secrets of the simulators, which need no preflight."""
    subscription = {
        "client_id": "54321",
        "client_secret": "made-up-strava-secret",
        "callback_url": "http://127.0.0.1:9/",
        "verify_token": "x",
    }
    for url, form in (
        (f"{urls['strava']}/api/v3/push_subscriptions", subscription),
        (f"{urls['oidc']}/login", LOGIN | {"name": "Eve"}),
        (f"{urls['strava']}/oauth/authorize", {"name": "Eve"}),
    ):
        assert (await send(client, "POST", url, headers, **form)).status == 403
    state = f"{urls['apns']}/_sim/state"
    assert (await send(client, "GET", state, headers | CONTROL_HEADERS)).status == 403
    login = f"{urls['oidc']}/login?client_id=tally-collect"
    assert (await send(client, "GET", login, headers)).status == 403


async def test_a_sign_in_begins_with_a_redirect_from_the_application(
    client: Client, urls: dict[str, str]
) -> None:
    query = "&".join(f"{name}={value}" for name, value in LOGIN.items())
    redirected = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    login = f"{urls['oidc']}/login?{query}"
    page = await send(client, "GET", login, redirected)
    assert page.status == 200
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    own: Any
    for own in (
        {"sec-fetch-site": "same-origin", "origin": urls["oidc"]},
        {"origin": urls["oidc"]},
        {},
    ):
        response = await send(
            client, "POST", f"{urls['oidc']}/login", own, **(LOGIN | {"name": "Eve"})
        )
        assert response.status == 302
        assert "code=" in response.headers["location"]
