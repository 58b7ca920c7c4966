"""The OpenAPI document against the running server: what is documented is what is answered, whatever is asked.

Schemathesis makes up requests from the document, good ones and ones that break it. No answer may be a 5xx, or have a status, a
content type, a header or a body that the document does not tell.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    CheckFunction,
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.cricket.ground import ADMIN, Ground, open_ground

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 8
DEVICE = {"deviceToken": "8f2c1a90b48f2c1a90b4", "deviceId": "A1B2-C3D4", "platform": "ios", "osVersion": "17.4"}
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
    ("PUT", "/user/device/push-to-start"): Good(body={"pushToStartToken": TOKEN, "deviceId": DEVICE["deviceId"]}),
    ("POST", "/user/follow/match"): Good(body={"matchId": "KNOWN"}),
    ("GET", "/user/follows"): Good({"limit": 3}),
    ("GET", "/user/follow/{match_id}"): Good(),
    ("POST", "/user/follow/{match_id}"): Good(body={}),
    ("PATCH", "/user/follow/{match_id}"): Good(body={"teamId": None}),
    ("POST", "/user/activity/{match_id}"): Good(body={"pushToken": TOKEN}),
    ("DELETE", "/user/activity/{match_id}"): Good({"pushToken": TOKEN}, status=204),
    ("POST", "/matches/{match_id}/activity-token"): Good(body={"deviceId": DEVICE["deviceId"], "updateToken": TOKEN}),
    ("POST", "/matches/{match_id}/activity-dismissed"): Good(body={"deviceId": DEVICE["deviceId"]}, status=204),
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

    ground: Ground
    schema: Any
    match_id: str
    team_id: str
    league_id: str
    season_id: str

    @property
    def url(self) -> str:
        return self.ground.url.removesuffix("/cricket")

    @property
    def credentials(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.ground.cognito.user('somebody')}", "X-Admin-Key": ADMIN}

    def operation(self, method: str, path: str) -> Any:
        return self.schema[f"/cricket{path}"][method]

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
        return {name: names.get(value, value) if isinstance(value, str) else value for name, value in told.items()}


@pytest.fixture(scope="module")
async def documented(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Documented]:
    async with open_ground(tmp_path_factory.mktemp("documented")) as ground:
        ground.live_match(12)
        ground.sportmonks.schedule(2, first=ground.clock.now() + timedelta(hours=5))
        await ground.sync()
        await ground.poll()
        ana = ground.person("ana")
        (match,) = (await ana.found("/matches/live"))["matches"]
        told = await ground.client.get(f"{ground.url.removesuffix('/cricket')}/openapi.json").build().send()
        yield Documented(
            ground,
            schemathesis.openapi.from_dict(await told.json()),
            match["matchId"],
            match["teams"][0]["teamId"],
            match["league"]["leagueId"],
            match["seasonId"],
        )


def test_the_document_has_every_route(documented: Documented) -> None:
    """And the tests below have every route of the document."""
    told = documented.schema.raw_schema["paths"]
    ours = {path for path, methods in told.items() if any("cricket" in each["tags"] for each in methods.values())}
    assert {(method.upper(), path.removeprefix("/cricket")) for path in ours for method in told[path]} == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_an_operation_is_told_with_examples(documented: Documented, method: str, path: str) -> None:
    """Of its request, of its answer where that is JSON, and of every error."""
    told = documented.schema.raw_schema["paths"][f"/cricket{path}"][method.lower()]
    assert told["summary"]
    if "requestBody" in told:
        assert told["requestBody"]["content"]["application/json"]["example"] is not None
    for status, answer in told["responses"].items():
        content = answer.get("content", {}).get("application/json", {})
        assert not content or "example" in content or content["examples"], (status, content)


def answer_of(case: Any, documented: Documented) -> int:
    """The status of the answer, which must be a documented one."""
    answer = case.call(base_url=documented.url, headers=documented.credentials, allow_redirects=False)
    case.validate_response(answer, checks=CHECKS)
    assert answer.headers["x-request-id"]
    return int(answer.status_code)


def head_of(case: Any, documented: Documented) -> int:
    """The same for a stream: what its head says is all there is to check."""
    address = documented.url + case.formatted_path
    with requests.get(address, headers=documented.credentials, timeout=30, stream=True) as answer:
        assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
        return answer.status_code


async def test_good_requests_are_answered_as_documented(documented: Documented) -> None:
    """In an order in which each has what it needs."""

    def ask(method: str, path: str, good: Good) -> int:
        parts: dict[str, Any] = {"path_parameters": documented.known(path), "query": documented.filled(good.query)}
        if good.body is not None:
            parts |= {"body": documented.filled(good.body), "media_type": "application/json"}
        case = documented.operation(method, path).Case(**parts)
        return (head_of if good.is_stream else answer_of)(case, documented)

    answered = {entry: await asyncio.to_thread(ask, *entry, good) for entry, good in OPERATIONS.items()}
    assert answered == {entry: good.status for entry, good in OPERATIONS.items()}


def made_up(operation: Any, mode: GenerationMode, documented: Documented, known: dict[str, str]) -> None:
    """Requests to an operation; the parameters of its path are made up too, unless they are known."""
    strategy = operation.as_strategy(mode, path_parameters=known) if known else operation.as_strategy(mode)

    @settings(
        max_examples=EXAMPLES,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(strategy)
    def ask(case: Any) -> None:
        answer_of(case, documented)

    ask()


# Takes a body or a query: what takes nothing but a path cannot be asked for wrongly.
BREAKABLE = {entry for entry, good in OPERATIONS.items() if good.body is not None or good.query}


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [(*entry, mode) for entry in OPERATIONS for mode in GenerationMode if mode is GenerationMode.POSITIVE or entry in BREAKABLE],
)
async def test_whatever_is_asked_the_answer_is_documented(
    documented: Documented, method: str, path: str, mode: GenerationMode
) -> None:
    operation = documented.operation(method, path)
    is_stream = OPERATIONS[method, path].is_stream
    known = {} if is_stream else documented.known(path)
    await asyncio.to_thread(made_up, operation, mode, documented, known)
