"""A collect server with simulators of Strava and the OIDC provider, and users with browsers.

All of them use real sockets and share one manual clock.

ann = await server.create_user("Ann")
ride = server.strava.record(ann.athlete_id, "Ride", 42_195)
await server.process_inbox()
(await ann.browser.get("/milestones")).json
"""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
from pyreqwest.client import Client, ClientBuilder

from tally.app import Application, build_app, open_application
from tally.collect.wiring import Collect
from tally.kit.clock import ManualClock
from tally.kit.server import serving
from tally.settings import Secret, Settings
from tally.sim.oidc.keys import SigningKeys
from tally.sim.oidc.pool import COLLECT_CLIENT
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.strava.core import Consent, OAuthApplication
from tally.sim.strava.rate_limits import UNLIMITED, RateLimits
from tally.sim.strava.simulator import StravaSimulator
from tally.store.api import Scan
from tally.store.schema import Table
from tests.api_response import ApiResponse, expect_error

ADMIN = "the-token-of-the-operators-0123456789"
VERIFY = "the-verify-token-of-the-webhook-0123"
WEBHOOK_SECRET = "the-secret-of-the-webhook-0123456789"
CALLBACK = f"/webhooks/strava/{WEBHOOK_SECRET}"
SUBSCRIPTION = 120_475
START = datetime(2026, 1, 1, tzinfo=UTC)
_names = itertools.count(1)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrowserResponse:
    """A response with a fully read body."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known.lower() == name), None)

    @property
    def cookies(self) -> dict[str, str]:
        """Return the Set-Cookie headers by cookie name."""
        lines = [value for known, value in self.headers if known.lower() == "set-cookie"]
        return {line.partition("=")[0]: line for line in lines}


@dataclass
class Browser:
    """An HTTP client with a cookie jar. By default it sends the Origin of the site."""

    client: Client
    url: str
    jar: dict[str, dict[str, str]] = field(default_factory=dict)

    async def send(
        self, method: str, url: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> BrowserResponse:
        where = url if url.startswith("http") else self.url + url
        host = urlsplit(where).netloc
        cookies = self.jar.setdefault(host, {})
        all_headers = (
            {"Origin": "{0.scheme}://{0.netloc}".format(urlsplit(where))}
            if headers is None
            else dict(headers)
        )
        if cookies:
            all_headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        request = self.client.request(method, where).headers(all_headers)
        if isinstance(body, bytes):
            request = request.body_bytes(body)
        elif body is not None:
            request = request.header("Content-Type", "application/json").body_bytes(
                msgspec.json.encode(body)
            )
        response = await request.build().send()
        for line in response.get_header_all("set-cookie"):
            for name, morsel in SimpleCookie(line).items():
                cookies.pop(name, None)
                if morsel.value and morsel["max-age"] != "0":
                    cookies[name] = morsel.value
        return BrowserResponse(
            response.status, list(response.headers.items()), bytes(await response.bytes())
        )

    async def get(self, url: str) -> BrowserResponse:
        return await self.send("GET", url)

    async def follow(self, response: BrowserResponse, base: str) -> BrowserResponse:
        """Follow a redirect."""
        location = response.header("location")
        assert location is not None, response
        return await self.get(urljoin(base, location))

    def copy(self) -> "Browser":
        """Return another browser with the same cookies."""
        jar = {host: dict(cookies) for host, cookies in self.jar.items()}
        return Browser(self.client, self.url, jar)

    @property
    def session(self) -> str | None:
        return self.jar.get(urlsplit(self.url).netloc, {}).get("cc_session")


@dataclass(frozen=True, slots=True)
class LinkedUser:
    """A signed-in user with a linked athlete."""

    browser: Browser
    user_id: str
    athlete_id: int

    async def create_milestone(self, **changes: Any) -> Any:
        body = {
            "modelId": "fox",
            "sport": "RIDE",
            "metric": "DISTANCE_METERS",
            "totalTarget": 12_000,
        } | changes
        response = await self.browser.send("POST", "/milestones", body)
        assert response.status == 201, response
        return response.json

    async def get_milestone(self, milestone_id: str) -> Any:
        response = await self.browser.get(f"/milestones/{milestone_id}")
        assert response.status == 200, response
        return response.json


@dataclass(frozen=True, slots=True)
class CollectServer:
    """The server and everything around it."""

    url: str
    application: Application
    clock: ManualClock
    strava: StravaSimulator
    oidc: OidcSimulator
    client: Client

    @property
    def collect(self) -> Collect:
        backend = self.application.backends["collect"]
        assert isinstance(backend, Collect)
        return backend

    def skip_time(self, seconds: float) -> None:
        """Advance the clock without waking sleeping tasks."""
        self.clock._elapsed += seconds

    async def run_with_clock(self, work: "asyncio.Future[T]") -> T:
        """Await work that sleeps, such as back-off, while advancing the clock."""
        while not work.done():
            await asyncio.wait({work}, timeout=0.02)
            await self.clock.advance(0.1)
        return await work

    def browser(self) -> Browser:
        return Browser(self.client, self.url)

    async def process_inbox(self) -> None:
        """Wait for all webhook deliveries and apply the events."""
        await self.strava.webhooks.wait_idle()
        await self.collect.worker.run()

    async def process_deletions(self) -> None:
        """Carry out the account deletions that are due."""
        while await self.collect.deletion_worker.run() is not None:
            pass

    async def pending_deletions(self) -> list[Any]:
        """Return the account deletions in progress, as operators see them."""
        response = await self.browser().send(
            "GET", "/admin/deletions?limit=200", headers={"Authorization": f"Bearer {ADMIN}"}
        )
        assert response.status == 200, response
        return list(response.json["items"])

    async def sign_in(self, browser: Browser, name: str) -> BrowserResponse:
        """Sign in through the OIDC provider; return the last response."""
        begun = await browser.get("/auth/login")
        assert begun.status == 302, begun
        return await self.return_from_provider(browser, begun, name)

    async def return_from_provider(
        self, browser: Browser, begun: BrowserResponse, name: str
    ) -> BrowserResponse:
        location = begun.header("location")
        assert location is not None
        agreed = await browser.get(f"{location}&login_hint={name}")
        assert agreed.status in {302, 303}, agreed
        return await browser.follow(agreed, self.oidc.url)

    async def link(self, browser: Browser, athlete_id: int, **consent: Any) -> BrowserResponse:
        """Link an athlete through Strava's consent page; return the last response."""
        self.strava.auto_approve = Consent(athlete_id, **consent)
        begun = await browser.get("/strava/connect")
        assert begun.status == 302, begun
        return await browser.follow(await browser.follow(begun, self.url), self.strava.url)

    async def create_user(self, name: str | None = None) -> LinkedUser:
        name = name or f"User{next(_names)}"
        browser = self.browser()
        signed_in = await self.sign_in(browser, name)
        assert signed_in.status == 303, signed_in
        athlete = self.strava.add_athlete(name)
        linked = await self.link(browser, athlete.id)
        assert linked.status == 303, linked
        me = await browser.get("/me")
        return LinkedUser(browser, me.json["userId"], athlete.id)

    async def patterns(self) -> dict[str, Any]:
        """Return the counters of collect's access patterns, by name."""
        response = await self.browser().get(f"{self.url.removesuffix('/collect')}/patterns")
        return {
            row["pattern"]: row for row in response.json["items"] if row["backend"] == "collect"
        }

    async def scan_table(self, table: Table) -> list[dict[str, object]]:
        """Return all items of a table, bypassing the access patterns."""
        found: list[dict[str, object]] = []
        start = None
        while True:
            page = await self.application.engine.scan(Scan(table, start=start))
            found += [dict(item) for item in page.items]
            start = page.next
            if start is None:
                return found

    async def audit(self, query: str) -> list[Any]:
        await self.collect.audit.flush()
        response = await self.browser().send(
            "GET", f"/admin/audit?{query}", headers={"Authorization": f"Bearer {ADMIN}"}
        )
        assert response.status == 200, response
        return list(response.json["items"])


def make_settings(
    folder: Path, strava: StravaSimulator, issuer: OidcSimulator, **changes: Any
) -> Settings:
    defaults: dict[str, Any] = {
        "data_dir": folder,
        "backends": ("collect",),
        "port": 0,
        "operator_token": Secret(ADMIN),
        "collect_oidc_issuer": issuer.issuer,
        "collect_oidc_client_id": COLLECT_CLIENT.client_id,
        "collect_oidc_client_secret": Secret(COLLECT_CLIENT.secret or ""),
        "collect_oidc_delete_url": issuer.url,
        "collect_strava_api_url": f"{strava.url}/api/v3",
        "collect_strava_oauth_url": f"{strava.url}/oauth",
        "collect_strava_client_id": str(strava.application.client_id),
        "collect_strava_client_secret": Secret(strava.application.client_secret),
        "collect_strava_verify_token": Secret(VERIFY),
        "collect_strava_subscription_id": SUBSCRIPTION,
        "collect_strava_webhook_secret": Secret(WEBHOOK_SECRET),
        "collect_sign_in_limit": 1_000_000,
        # The clock stands still, so that all events of a test are in one window.
        "collect_strava_event_reads": 0,
        "collect_strava_athlete_event_reads": 0,
    }
    return Settings(**(defaults | changes))


@functools.cache
def signing_keys() -> SigningKeys:
    """Return signing keys, cached because generating them is slow."""
    return SigningKeys()


@contextlib.asynccontextmanager
async def open_server(
    folder: Path, *, start: datetime = START, **changes: Any
) -> AsyncIterator[CollectServer]:
    """Start a server with its simulators, on SQLite by default, with a manual clock."""
    clock = ManualClock(start)
    async with contextlib.AsyncExitStack() as stack:
        # Tests send more than a day's worth of requests while the clock stands still.
        limits = RateLimits(clock, UNLIMITED, UNLIMITED)
        strava = StravaSimulator(
            clock, application=OAuthApplication(), limits=limits, subscription_id=SUBSCRIPTION
        )
        await stack.enter_async_context(strava.serving())
        issuer = OidcSimulator(clock, keys=signing_keys(), auto_approve="Any User")
        await stack.enter_async_context(issuer.serving())
        application = await stack.enter_async_context(
            open_application(make_settings(folder, strava, issuer, **changes), clock)
        )
        # Tests process the inbox explicitly.
        application = replace(application, jobs=())
        url = await stack.enter_async_context(
            serving(build_app(application), on_stopping=application.drain)
        )
        client = await stack.enter_async_context(
            ClientBuilder().no_proxy().follow_redirects(False).build()
        )
        await strava.webhooks.subscribe(f"{url}/collect{CALLBACK}", VERIFY)
        yield CollectServer(f"{url}/collect", application, clock, strava, issuer, client)


def assert_error(response: BrowserResponse, status: int, code: str) -> None:
    """Assert the common error format."""
    expect_error(ApiResponse(response.status, dict(response.headers), response.body), status, code)
