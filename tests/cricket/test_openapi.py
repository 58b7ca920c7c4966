"""The OpenAPI document against the running server: what is documented is what is answered, whatever is asked.

Schemathesis makes up requests from the document, good ones and ones that break it. No answer may be
a 5xx, or have a status, a content type, a header or a body that the document does not tell.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from schemathesis import GenerationMode

from tests.cricket.api_harness import ADMIN, ApiHarness, open_api_harness
from tests.openapi import Document, check_examples

EXAMPLES = 8
DEVICE = {
    "deviceToken": "8f2c1a90b48f2c1a90b4",
    "deviceId": "A1B2-C3D4",
    "platform": "ios",
    "osVersion": "17.4",
}
TOKEN = "80c1f7de80c1f7de80c1f7de"


@dataclass(frozen=True, slots=True)
class Good:
    """A request that must succeed."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    # A stream has no end, so nothing is made up for one that is there.
    is_stream: bool = False


OPERATIONS: dict[tuple[str, str], Good] = {
    ("GET", "/health"): Good(),
    ("GET", "/health/ready"): Good(),
    ("GET", "/matches"): Good({"limit": 3}),
    ("GET", "/matches/live"): Good(),
    ("GET", "/matches/{match_id}"): Good(),
    ("GET", "/matches/{match_id}/display"): Good(),
    ("GET", "/matches/{match_id}/events"): Good(is_stream=True),
    ("GET", "/teams"): Good(),
    ("GET", "/teams/{team_id}"): Good(),
    ("PATCH", "/teams/{team_id}"): Good(body={"color": "#102030"}),
    ("GET", "/leagues"): Good(),
    ("GET", "/leagues/{league_id}"): Good(),
    ("PATCH", "/leagues/{league_id}"): Good(body={"active": True}),
    ("GET", "/seasons/{season_id}/teams"): Good(),
    ("POST", "/user/device"): Good(body=DEVICE),
    ("GET", "/user/device"): Good(),
    ("PUT", "/user/device/push-to-start"): Good(
        body={"pushToStartToken": TOKEN, "deviceId": DEVICE["deviceId"]}
    ),
    ("POST", "/user/follow/match"): Good(body={"matchId": "KNOWN"}),
    ("GET", "/user/follows"): Good({"limit": 3}),
    ("GET", "/user/follow/{match_id}"): Good(),
    ("POST", "/user/follow/{match_id}"): Good(body={}),
    ("PATCH", "/user/follow/{match_id}"): Good(body={"teamId": None}),
    ("POST", "/user/activity/{match_id}"): Good(body={"pushToken": TOKEN}),
    ("DELETE", "/user/activity/{match_id}"): Good({"pushToken": TOKEN}, status=204),
    ("POST", "/matches/{match_id}/activity-token"): Good(
        body={"deviceId": DEVICE["deviceId"], "updateToken": TOKEN}
    ),
    ("POST", "/matches/{match_id}/activity-dismissed"): Good(
        body={"deviceId": DEVICE["deviceId"]}, status=204
    ),
    ("DELETE", "/user/follow/match"): Good({"matchId": "KNOWN"}, status=204),
    ("DELETE", "/user/follow/{match_id}"): Good(status=204),
    ("DELETE", "/user/device"): Good({"deviceId": DEVICE["deviceId"]}, status=204),
    ("GET", "/admin/fixtures"): Good({"leagueId": "KNOWN_LEAGUE"}),
    ("POST", "/admin/sync"): Good(body={"what": "leagues"}),
    ("GET", "/admin/matches/{match_id}/state"): Good(),
    ("POST", "/admin/matches/{match_id}/replay"): Good(body={}, status=409),
    ("DELETE", "/leagues/{league_id}"): Good(status=204),
}


@dataclass(frozen=True, slots=True)
class Documented:
    """A server, its document, and what is known to it."""

    ground: ApiHarness
    document: Document
    match_id: str
    team_id: str
    league_id: str
    season_id: str

    @property
    def credentials(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.ground.cognito.user_token('somebody')}",
            "X-Admin-Key": ADMIN,
        }

    def known(self, path: str) -> dict[str, str]:
        known = {
            "match_id": self.match_id,
            "team_id": self.team_id,
            "league_id": self.league_id,
            "season_id": self.season_id,
        }
        return {name: value for name, value in known.items() if f"{{{name}}}" in path}

    def filled(self, told: Any) -> Any:
        names = {"KNOWN": self.match_id, "KNOWN_LEAGUE": self.league_id}
        return {
            name: names.get(value, value) if isinstance(value, str) else value
            for name, value in told.items()
        }


@pytest.fixture(scope="module")
async def documented(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Documented]:
    async with open_api_harness(tmp_path_factory.mktemp("documented")) as ground:
        ground.live_match(12)
        ground.sportmonks.schedule(2, first=ground.clock.now() + timedelta(hours=5))
        await ground.sync()
        await ground.poll()
        ana = ground.person("ana")
        (match,) = (await ana.found("/matches/live"))["matches"]
        url = ground.url.removesuffix("/cricket")
        told = await ground.client.get(f"{url}/openapi.json").build().send()
        yield Documented(
            ground,
            Document.read(url, "cricket", "/cricket", await told.json()),
            match["matchId"],
            match["teams"][0]["teamId"],
            match["league"]["leagueId"],
            match["seasonId"],
        )


def test_the_document_has_every_route(documented: Documented) -> None:
    """And the tests below have every route of the document."""
    assert documented.document.routes() == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_an_operation_is_told_with_examples(documented: Documented, method: str, path: str) -> None:
    """Of its request, of its answer where that is JSON, and of every error."""
    check_examples(documented.document.raw_operation(method, path), takes_nothing=True)


async def test_good_requests_are_answered_as_documented(documented: Documented) -> None:
    """In an order in which each has what it needs."""
    document = documented.document

    def ask(method: str, path: str, good: Good) -> int:
        parts: dict[str, Any] = {
            "path_parameters": documented.known(path),
            "query": documented.filled(good.query),
        }
        if good.body is not None:
            parts |= {"body": documented.filled(good.body), "media_type": "application/json"}
        case = document.operation(method, path).Case(**parts)
        return (document.check_stream_head if good.is_stream else document.check_response)(
            case, documented.credentials
        )

    answered = {
        entry: await asyncio.to_thread(ask, *entry, good) for entry, good in OPERATIONS.items()
    }
    assert answered == {entry: good.status for entry, good in OPERATIONS.items()}


# Takes a body or a query: what takes nothing but a path cannot be asked for wrongly.
BREAKABLE = {entry for entry, good in OPERATIONS.items() if good.body is not None or good.query}


@pytest.mark.judge
@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        (*entry, mode)
        for entry in OPERATIONS
        for mode in GenerationMode
        if mode is GenerationMode.POSITIVE or entry in BREAKABLE
    ],
)
async def test_whatever_is_asked_the_answer_is_documented(
    documented: Documented, method: str, path: str, mode: GenerationMode
) -> None:
    document = documented.document
    known = {} if OPERATIONS[method, path].is_stream else documented.known(path)
    check = partial(
        document.fuzz,
        document.operation(method, path),
        mode,
        documented.credentials,
        examples=EXAMPLES,
    )
    await asyncio.to_thread(check, known=known)
