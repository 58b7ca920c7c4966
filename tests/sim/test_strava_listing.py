"""The Strava simulator lists an athlete's activities like Strava, within its read limits."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.response import Response

from tally.kit.clock import ManualClock
from tally.sim.fault_injection import InjectedFault
from tally.sim.request_parsing import with_query
from tally.sim.strava.model import StravaAthlete
from tally.sim.strava.rate_limits import RateLimit
from tally.sim.strava.simulator import StravaSimulator
from tests.sim.responses import status_and_json

NOW = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
FIRST = int(NOW.timestamp()) - 86_400
ALL = frozenset({"read", "activity:read_all"})
PUBLIC = frozenset({"read", "activity:read"})
PATH = "/api/v3/athlete/activities"


@pytest.fixture
async def http() -> AsyncIterator[Client]:
    async with ClientBuilder().build() as client:
        yield client


@pytest.fixture
async def strava() -> AsyncIterator[StravaSimulator]:
    async with StravaSimulator(ManualClock(NOW), rng=random.Random(1)).serving() as strava:
        yield strava


@pytest.fixture
def ana(strava: StravaSimulator) -> StravaAthlete:
    return strava.add_athlete("Ana", "Silva")


class Reader:
    """Reads pages with the token of one athlete."""

    def __init__(self, strava: StravaSimulator, http: Client, athlete: StravaAthlete) -> None:
        self._strava, self._http, self._athlete = strava, http, athlete
        self.scope = ALL

    async def send(self, **query: object) -> Response:
        access = self._strava.authorizations.grant(self._athlete.id, self.scope).access_token
        parameters = {name: str(value) for name, value in query.items()}
        url = with_query(f"{self._strava.url}{PATH}", parameters)
        return await self._http.get(url).bearer_auth(access).build().send()

    async def page(self, **query: object) -> list[dict[str, Any]]:
        status, body = await status_and_json(await self.send(**query))
        assert status == 200, body
        assert isinstance(body, list)
        return body

    async def ids(self, **query: object) -> list[int]:
        return [activity["id"] for activity in await self.page(**query)]

    async def error(self, **query: object) -> tuple[int, str, str]:
        status, body = await status_and_json(await self.send(**query))
        (error,) = body["errors"]
        return status, error["field"], error["code"]


@pytest.fixture
def reader(strava: StravaSimulator, http: Client, ana: StravaAthlete) -> Reader:
    return Reader(strava, http, ana)


async def test_newest_is_first_without_after_and_oldest_with_it(
    strava: StravaSimulator, ana: StravaAthlete, reader: Reader
) -> None:
    """The order is that of start times, not of uploads; both bounds are exclusive."""
    strava.record(strava.add_athlete("Bo").id)
    middle = strava.record(ana.id, start=FIRST + 60).id
    oldest = strava.record(ana.id, start=FIRST).id
    newest = strava.record(ana.id, start=FIRST + 120).id
    assert await reader.ids() == [newest, middle, oldest]
    assert await reader.ids(after=FIRST - 1) == [oldest, middle, newest]
    assert await reader.ids(after=FIRST) == [middle, newest]
    assert await reader.ids(before=FIRST + 120) == [middle, oldest]
    assert await reader.ids(after=FIRST, before=FIRST + 120) == [middle]


async def test_a_page_has_30_activities_by_default_and_200_at_most(
    strava: StravaSimulator, ana: StravaAthlete, reader: Reader
) -> None:
    """The page after the last one is empty."""
    made = [strava.record(ana.id, start=FIRST + number).id for number in range(250)]
    assert await reader.ids() == made[:219:-1]
    assert await reader.ids(page=2, per_page=200) == made[49::-1]
    assert await reader.ids(page=3, per_page=200) == []
    assert await reader.error(per_page=201) == (400, "per page", "limit exceeded")


async def test_a_page_is_short_where_private_activities_are_hidden(
    strava: StravaSimulator, ana: StravaAthlete, reader: Reader
) -> None:
    """Only an empty page is known to be the last one."""
    made = [
        strava.record(ana.id, start=FIRST + number, private=number == 1).id for number in range(4)
    ]
    reader.scope = PUBLIC
    pages = [await reader.ids(after=1, per_page=2, page=page) for page in (1, 2, 3)]
    assert pages == [[made[0]], made[2:], []]


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ({"after": int(NOW.timestamp()) + 1}, "after", "future"),
        ({"after": "yesterday"}, "after", "invalid"),
        ({"before": "1.5"}, "before", "invalid"),
        ({"page": 0}, "page", "invalid"),
        ({"per_page": 0}, "per_page", "invalid"),
        ({"page": "9" * 30}, "page", "invalid"),
    ],
)
async def test_invalid_parameters_get_400(
    reader: Reader, query: dict[str, object], field: str, code: str
) -> None:
    assert await reader.error(**query) == (400, field, code)


async def test_an_activity_in_a_list_is_a_summary(
    strava: StravaSimulator, ana: StravaAthlete, reader: Reader
) -> None:
    """It has what counts, including flagged and manual, and no details."""
    strava.record(ana.id, "GravelRide", 1000.5, flagged=True, manual=True)
    [summary] = await reader.page()
    assert (summary["resource_state"], summary["sport_type"], summary["type"]) == (
        2,
        "GravelRide",
        "Ride",
    )
    assert (summary["distance"], summary["flagged"], summary["manual"]) == (1000.5, True, True)
    assert "description" not in summary


async def test_lists_count_as_reads_and_fail_on_request(
    strava: StravaSimulator, reader: Reader
) -> None:
    """Every response has the limits; 401, 403, 429 and 5xx can be caused."""
    response = await reader.send()
    assert response.headers["x-readratelimit-usage"] == "1,1"
    for status in (401, 403, 429, 503):
        strava.faults.add(InjectedFault(path=PATH, status=status))
        assert (await reader.send()).status == status
    strava.limits.reads = RateLimit(1, 1000)
    response = await reader.send()
    assert (response.status, response.headers["x-readratelimit-usage"]) == (429, "2,2")
    reader.scope = frozenset({"read"})
    strava.limits.reads = RateLimit(100, 1000)
    assert await reader.error() == (401, "activity:read_permission", "missing")
