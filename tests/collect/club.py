"""A server with its Strava and its issuer, all on real sockets and on one clock, and people with browsers.

ann = await club.member("Ann")
ride = club.strava.record(ann.athlete_id, "Ride", 42_195)
await club.apply()
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

ADMIN = "the-token-of-the-operators-0123456789"
VERIFY = "the-verify-token-of-the-webhook-0123"
SUBSCRIPTION = 120_475
START = datetime(2026, 1, 1, tzinfo=UTC)
_names = itertools.count(1)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

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
        """The lines that set cookies, by the cookie's name."""
        lines = [value for known, value in self.headers if known.lower() == "set-cookie"]
        return {line.partition("=")[0]: line for line in lines}


@dataclass
class Browser:
    """Cookies by host, and an Origin on everything that it sends, as a page of the site would."""

    client: Client
    url: str
    jar: dict[str, dict[str, str]] = field(default_factory=dict)

    async def send(
        self, method: str, url: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        where = url if url.startswith("http") else self.url + url
        host = urlsplit(where).netloc
        held = self.jar.setdefault(host, {})
        told = (
            {"Origin": "{0.scheme}://{0.netloc}".format(urlsplit(where))}
            if headers is None
            else dict(headers)
        )
        if held:
            told["Cookie"] = "; ".join(f"{name}={value}" for name, value in held.items())
        request = self.client.request(method, where).headers(told)
        if body is not None:
            request = request.header("Content-Type", "application/json").body_bytes(
                msgspec.json.encode(body)
            )
        response = await request.build().send()
        for line in response.get_header_all("set-cookie"):
            for name, morsel in SimpleCookie(line).items():
                held.pop(name, None)
                if morsel.value and morsel["max-age"] != "0":
                    held[name] = morsel.value
        return Answer(
            response.status, list(response.headers.items()), bytes(await response.bytes())
        )

    async def get(self, url: str) -> Answer:
        return await self.send("GET", url)

    async def follow(self, answer: Answer, base: str) -> Answer:
        """Where a redirect leads; what is told on the way is kept."""
        location = answer.header("location")
        assert location is not None, answer
        return await self.get(urljoin(base, location))

    @property
    def session(self) -> str | None:
        return self.jar.get(urlsplit(self.url).netloc, {}).get("cc_session")


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody who has signed in and linked an athlete."""

    browser: Browser
    user_id: str
    athlete_id: int

    async def milestone(self, **changes: Any) -> Any:
        wanted = {
            "modelId": "fox",
            "sport": "RIDE",
            "metric": "DISTANCE_METERS",
            "totalTarget": 12_000,
        } | changes
        answer = await self.browser.send("POST", "/milestones", wanted)
        assert answer.status == 201, answer
        return answer.json

    async def shown(self, milestone_id: str) -> Any:
        answer = await self.browser.get(f"/milestones/{milestone_id}")
        assert answer.status == 200, answer
        return answer.json


@dataclass(frozen=True, slots=True)
class Club:
    """All of it."""

    url: str
    parts: Application
    clock: ManualClock
    strava: StravaSimulator
    issuer: OidcSimulator
    client: Client

    @property
    def collect(self) -> Collect:
        backend = self.parts.backends["collect"]
        assert isinstance(backend, Collect)
        return backend

    def leap(self, seconds: float) -> None:
        """Be so much later, without waking whoever sleeps on the way."""
        self.clock._elapsed += seconds

    async def meanwhile(self, work: "asyncio.Future[T]") -> T:
        """The result of work that may have to wait a moment, as who lost a race does: the clock goes on until it is done."""
        while not work.done():
            await asyncio.wait({work}, timeout=0.02)
            await self.clock.advance(0.1)
        return await work

    def browser(self) -> Browser:
        return Browser(self.client, self.url)

    async def apply(self) -> None:
        """Wait for Strava to have told everything, and apply it."""
        await self.strava.webhooks.wait_idle()
        await self.collect.worker.run()

    async def sign_in(self, browser: Browser, name: str) -> Answer:
        """Through the issuer and back; the last answer."""
        begun = await browser.get("/auth/login")
        assert begun.status == 302, begun
        return await self.return_from_issuer(browser, begun, name)

    async def return_from_issuer(self, browser: Browser, begun: Answer, name: str) -> Answer:
        location = begun.header("location")
        assert location is not None
        agreed = await browser.get(f"{location}&login_hint={name}")
        assert agreed.status in {302, 303}, agreed
        return await browser.follow(agreed, self.issuer.url)

    async def link(self, browser: Browser, athlete_id: int, **consent: Any) -> Answer:
        """Through Strava's consent and back; the last answer."""
        self.strava.auto_approve = Consent(athlete_id, **consent)
        begun = await browser.get("/strava/connect")
        assert begun.status == 302, begun
        return await browser.follow(await browser.follow(begun, self.url), self.strava.url)

    async def member(self, name: str | None = None) -> Member:
        name = name or f"Member{next(_names)}"
        browser = self.browser()
        signed_in = await self.sign_in(browser, name)
        assert signed_in.status == 303, signed_in
        athlete = self.strava.add_athlete(name)
        linked = await self.link(browser, athlete.id)
        assert linked.status == 303, linked
        me = await browser.get("/me")
        return Member(browser, me.json["userId"], athlete.id)

    async def patterns(self) -> dict[str, Any]:
        """What the access patterns of collect have cost so far, by name."""
        answer = await self.browser().get(f"{self.url.removesuffix('/collect')}/patterns")
        return {row["pattern"]: row for row in answer.json if row["backend"] == "collect"}

    async def stored(self, table: Table) -> list[dict[str, object]]:
        """All items of a table, past every rule: only a test may do this."""
        found: list[dict[str, object]] = []
        start = None
        while True:
            page = await self.parts.store.engine.scan(Scan(table, start=start))
            found += [dict(item) for item in page.items]
            start = page.next
            if start is None:
                return found

    async def audit(self, query: str) -> list[Any]:
        await self.collect.audit.flush()
        answer = await self.browser().send(
            "GET", f"/admin/audit?{query}", headers={"Authorization": f"Bearer {ADMIN}"}
        )
        assert answer.status == 200, answer
        return list(answer.json["events"])


def settings_of(
    folder: Path, strava: StravaSimulator, issuer: OidcSimulator, **changes: Any
) -> Settings:
    usual: dict[str, Any] = {
        "data_dir": folder,
        "backends": ("collect",),
        "port": 0,
        "collect_admin_token": Secret(ADMIN),
        "collect_oidc_issuer": issuer.issuer,
        "collect_oidc_client_id": COLLECT_CLIENT.client_id,
        "collect_oidc_client_secret": Secret(COLLECT_CLIENT.secret or ""),
        "collect_oidc_delete_url": issuer.url,
        "collect_strava_url": strava.url,
        "collect_strava_client_id": str(strava.application.client_id),
        "collect_strava_client_secret": Secret(strava.application.client_secret),
        "collect_strava_verify_token": Secret(VERIFY),
        "collect_strava_subscription_id": SUBSCRIPTION,
    }
    return Settings(**(usual | changes))


@functools.cache
def signing_keys() -> SigningKeys:
    """The same for all clubs of a process: it takes a while to find them."""
    return SigningKeys()


@contextlib.asynccontextmanager
async def open_club(
    folder: Path, *, start: datetime = START, **changes: Any
) -> AsyncIterator[Club]:
    """A club that nobody else has, on SQLite unless the settings say otherwise; its clock stands still at `start`."""
    clock = ManualClock(start)
    async with contextlib.AsyncExitStack() as stack:
        # A club goes through more than a day's worth of requests while its clock stands still.
        limits = RateLimits(clock, UNLIMITED, UNLIMITED)
        strava = StravaSimulator(
            clock, application=OAuthApplication(), limits=limits, subscription_id=SUBSCRIPTION
        )
        await stack.enter_async_context(strava.serving())
        issuer = OidcSimulator(clock, keys=signing_keys(), auto_approve="Somebody")
        await stack.enter_async_context(issuer.serving())
        parts = await stack.enter_async_context(
            open_application(settings_of(folder, strava, issuer, **changes), clock)
        )
        # Nothing is applied but by `apply`: a test says when.
        parts = replace(parts, jobs=())
        url = await stack.enter_async_context(serving(build_app(parts), on_stopping=parts.drain))
        client = await stack.enter_async_context(
            ClientBuilder().no_proxy().follow_redirects(False).build()
        )
        await strava.webhooks.subscribe(f"{url}/collect/webhooks/strava", VERIFY)
        yield Club(f"{url}/collect", parts, clock, strava, issuer, client)


def expect_refused(answer: Answer, status: int, code: str) -> None:
    """The one shape that every error has."""
    assert answer.status == status, answer
    told = answer.json
    assert set(told) == {"error"}, told
    assert set(told["error"]) == {"code", "message"}, told
    assert told["error"]["code"] == code, told
    assert told["error"]["message"]
