"""A public Strava client understands the Strava simulator: stravalib.

It was written against Strava's service, so the simulator and Tally's gateway cannot share a
misunderstanding. `make test` logs in and reads a page; `make judge` reads every page, refreshes,
exhausts the rate limits and causes every kind of error.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from requests.adapters import HTTPAdapter
from stravalib import exc
from stravalib.client import Client
from stravalib.model import SummaryActivity
from stravalib.util.limiter import RequestRate, get_rates_from_response_headers

from tally.kit.clock import ManualClock
from tally.sim.fault_injection import InjectedFault
from tally.sim.strava.core import Consent
from tally.sim.strava.model import StravaAthlete
from tally.sim.strava.rate_limits import RateLimit
from tally.sim.strava.simulator import StravaSimulator

P = ParamSpec("P")
T = TypeVar("T")

CALLBACK = "http://127.0.0.1:9/strava/callback"
START = datetime(2026, 3, 1, 8, tzinfo=UTC)
INACTIVE = '{"errors":[{"resource":"Application","field":"Status","code":"Inactive"}]}'


class SimulatorAdapter(HTTPAdapter):
    """Sends requests for www.strava.com to the simulator."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def send(
        self, request: requests.PreparedRequest, *args: Any, **options: Any
    ) -> requests.Response:
        assert request.url is not None
        request.url = request.url.replace("https://www.strava.com", self._url, 1)
        return super().send(request, *args, **options)


class StravalibAthlete:
    """stravalib with the tokens of one athlete. Records the rates that responses report."""

    def __init__(self, strava: StravaSimulator) -> None:
        self.session = requests.Session()
        self.session.mount("https://www.strava.com", SimulatorAdapter(strava.url))
        self.strava = strava
        self.rates: list[RequestRate] = []
        self.client = Client(requests_session=self.session)
        self.client.protocol.rate_limiter = self._record_rates

    def _record_rates(self, headers: Mapping[str, str], method: Any) -> None:
        rates = get_rates_from_response_headers(dict(headers), method)
        if rates is not None:
            self.rates.append(rates)

    async def call(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        async with asyncio.timeout(60):
            return await asyncio.to_thread(function, *args, **options)

    async def login(self) -> int:
        """Log in with the authorization code flow; return the id of the athlete."""
        application = self.strava.application
        url = self.client.authorization_url(
            application.client_id, CALLBACK, scope=["read", "activity:read_all"], state="s-1"
        )
        response = await self.call(self.session.get, url, allow_redirects=False)
        query = parse_qs(urlsplit(response.headers["location"]).query)
        assert (query["state"], query["scope"]) == (["s-1"], ["read,activity:read_all"])
        tokens, athlete = await self.call(
            self.client.protocol.exchange_code_for_token,
            application.client_id,
            application.client_secret,
            query["code"][0],
            return_athlete=True,
        )
        self.client.access_token = tokens["access_token"]
        self.client.refresh_token = tokens["refresh_token"]
        self.client.token_expires = tokens["expires_at"]
        assert athlete is not None
        return int(athlete["id"])

    async def activities(self, **query: Any) -> list[SummaryActivity]:
        return await self.call(lambda: list(self.client.get_activities(**query)))


@pytest.fixture
async def strava() -> AsyncIterator[StravaSimulator]:
    """A simulator on a clock that tests advance; the client uses the time of the system."""
    async with StravaSimulator(ManualClock(datetime.now(UTC))).serving() as opened:
        yield opened


@pytest.fixture
def ana(strava: StravaSimulator) -> StravaAthlete:
    athlete = strava.add_athlete("Ana", "Silva")
    strava.auto_approve = Consent(athlete.id)
    return athlete


@pytest.fixture
async def client(
    strava: StravaSimulator, ana: StravaAthlete, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StravalibAthlete]:
    application = strava.application
    monkeypatch.setenv("STRAVA_CLIENT_ID", str(application.client_id))
    monkeypatch.setenv("STRAVA_CLIENT_SECRET", application.client_secret)
    opened = StravalibAthlete(strava)
    assert await opened.login() == ana.id
    yield opened
    opened.session.close()


def ids(activities: list[SummaryActivity]) -> list[int | None]:
    return [activity.id for activity in activities]


async def test_stravalib_works(
    strava: StravaSimulator, ana: StravaAthlete, client: StravalibAthlete
) -> None:
    """It logs in, reads the athlete, lists activities newest first, and reads one."""
    first = strava.record(ana.id, "Ride", 42_195.0, start=int(START.timestamp()), flagged=True)
    second = strava.record(ana.id, "TrailRun", 5_000.0, manual=True)
    assert (await client.call(client.client.get_athlete)).firstname == "Ana"
    newest, oldest = await client.activities()
    assert [newest.id, oldest.id] == [second.id, first.id]
    assert (oldest.start_date, oldest.flagged, newest.manual) == (START, True, True)
    found = await client.call(client.client.get_activity, first.id)
    assert found.distance is not None
    assert float(found.distance) == 42_195
    assert found.sport_type is not None
    assert found.sport_type.root == "Ride"


@pytest.mark.judge
async def test_stravalib_reads_every_page_within_the_rate_limits(
    strava: StravaSimulator, ana: StravaAthlete, client: StravalibAthlete
) -> None:
    """450 activities take three requests; times are exclusive bounds; every response is counted."""
    first = int(START.timestamp())
    made = [strava.record(ana.id, start=first + 60 * number).id for number in range(450)]
    strava.record(strava.add_athlete("Bo").id)
    assert ids(await client.activities()) == made[::-1]
    assert [rate.short_usage for rate in client.rates] == [1, 2, 3]
    assert client.rates[-1] == RequestRate(3, 3, 100, 1000)
    later = START + timedelta(minutes=440)
    assert ids(await client.activities(after=later)) == made[441:]
    assert ids(await client.activities(before=START + timedelta(minutes=3))) == made[2::-1]
    assert ids(await client.activities(after=START, before=later, limit=250)) == made[1:251]


@pytest.mark.judge
async def test_stravalib_refreshes_tokens_and_deauthorizes(
    strava: StravaSimulator, ana: StravaAthlete, client: StravalibAthlete
) -> None:
    """An expired token is refreshed and rotated; after the deauthorization, nothing works."""
    former = client.client.access_token, client.client.refresh_token
    strava.authorizations.expire(ana.id)
    client.client.token_expires = 1
    assert (await client.call(client.client.get_athlete)).id == ana.id
    current = client.client.access_token, client.client.refresh_token
    assert set(former).isdisjoint(current)
    await client.call(client.client.deauthorize)
    with pytest.raises(exc.AccessUnauthorized, match="access_token"):
        await client.activities()
    client.client.token_expires = 1
    with pytest.raises(exc.Fault, match="RefreshToken"):
        await client.activities()


@pytest.mark.judge
async def test_stravalib_understands_every_error(
    strava: StravaSimulator, ana: StravaAthlete, client: StravalibAthlete
) -> None:
    with pytest.raises(exc.ObjectNotFound, match="Record Not Found"):
        await client.call(client.client.get_activity, 1)
    with pytest.raises(exc.Fault, match="future"):
        await client.activities(after=datetime.now(UTC) + timedelta(days=1))
    strava.faults.add(InjectedFault(path="/api/v3/athlete/activities", status=403, body=INACTIVE))
    with pytest.raises(exc.ApplicationInactive):
        await client.activities()
    strava.faults.add(InjectedFault(path="/api/v3/athlete/activities", status=503))
    with pytest.raises(exc.Fault, match="503"):
        await client.activities()
    strava.limits.reads = RateLimit(2, 1000)
    with pytest.raises(exc.Fault, match="Rate Limit Exceeded"):
        await client.activities()
    assert client.rates[-1].short_usage > client.rates[-1].short_limit
