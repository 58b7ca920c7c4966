"""The responses of the running server match the OpenAPI document.

Schemathesis generates valid and invalid requests from the document. No response may be a 5xx or
have a status, content type, header or body that is not documented.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from schemathesis import GenerationMode

from tests.cricket.api_harness import ApiHarness, open_api_harness
from tests.openapi import Document, check_examples

EXAMPLES = 40
DEVICE = {
    "deviceToken": "8f2c1a90b48f2c1a90b4",
    "deviceId": "A1B2-C3D4",
    "platform": "ios",
    "osVersion": "17.4",
}
TOKEN = "80c1f7de80c1f7de80c1f7de"


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """A request that must succeed."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    # A stream does not end, so no request is generated for an existing one.
    is_stream: bool = False


REQUESTS: dict[tuple[str, str], ValidRequest] = {
    ("GET", "/health"): ValidRequest(),
    ("GET", "/health/ready"): ValidRequest(),
    ("GET", "/matches"): ValidRequest({"limit": 3}),
    ("GET", "/matches/live"): ValidRequest(),
    ("GET", "/matches/{match_id}"): ValidRequest(),
    ("GET", "/matches/{match_id}/display"): ValidRequest(),
    ("GET", "/matches/{match_id}/scorecard"): ValidRequest(),
    ("GET", "/matches/{match_id}/timeline"): ValidRequest(),
    ("GET", "/matches/{match_id}/events"): ValidRequest(is_stream=True),
    ("GET", "/teams"): ValidRequest(),
    ("GET", "/teams/{team_id}"): ValidRequest(),
    ("PATCH", "/teams/{team_id}"): ValidRequest(body={"color": "#102030"}),
    ("GET", "/leagues"): ValidRequest(),
    ("GET", "/leagues/{league_id}"): ValidRequest(),
    ("PATCH", "/leagues/{league_id}"): ValidRequest(body={"active": True}),
    ("GET", "/seasons/{season_id}/teams"): ValidRequest(),
    ("POST", "/user/device"): ValidRequest(body=DEVICE),
    ("GET", "/user/device"): ValidRequest(),
    ("PUT", "/user/device/push-to-start"): ValidRequest(
        body={"pushToStartToken": TOKEN, "deviceId": DEVICE["deviceId"]}
    ),
    ("POST", "/user/follow/match"): ValidRequest(body={"matchId": "KNOWN"}),
    ("GET", "/user/follows"): ValidRequest({"limit": 3}),
    ("PUT", "/user/follow/team/{team_id}"): ValidRequest(),
    ("GET", "/user/follows/teams"): ValidRequest(),
    ("GET", "/user/follow/{match_id}"): ValidRequest(),
    ("POST", "/user/follow/{match_id}"): ValidRequest(body={}),
    ("PATCH", "/user/follow/{match_id}"): ValidRequest(body={"teamId": None}),
    ("POST", "/user/activity/{match_id}"): ValidRequest(body={"pushToken": TOKEN}),
    ("DELETE", "/user/activity/{match_id}"): ValidRequest({"pushToken": TOKEN}, status=204),
    ("POST", "/matches/{match_id}/activity-token"): ValidRequest(
        body={"deviceId": DEVICE["deviceId"], "updateToken": TOKEN}
    ),
    ("POST", "/matches/{match_id}/activity-started"): ValidRequest(
        body={"deviceId": DEVICE["deviceId"]}
    ),
    ("POST", "/matches/{match_id}/activity-ended"): ValidRequest(
        body={"deviceId": DEVICE["deviceId"]}, status=204
    ),
    ("POST", "/matches/{match_id}/activity-dismissed"): ValidRequest(
        body={"deviceId": DEVICE["deviceId"]}, status=204
    ),
    ("DELETE", "/user/follow/team/{team_id}"): ValidRequest(status=204),
    ("DELETE", "/user/follow/match"): ValidRequest({"matchId": "KNOWN"}, status=204),
    ("DELETE", "/user/follow/{match_id}"): ValidRequest(status=204),
    ("DELETE", "/user/device"): ValidRequest({"deviceId": DEVICE["deviceId"]}, status=204),
    ("DELETE", "/user"): ValidRequest(status=204),
    ("GET", "/admin/fixtures"): ValidRequest({"leagueId": "KNOWN_LEAGUE"}),
    ("POST", "/admin/sync"): ValidRequest(body={"what": "leagues"}),
    ("GET", "/admin/matches/{match_id}/state"): ValidRequest(),
    ("POST", "/admin/matches/{match_id}/start"): ValidRequest(
        body={"userId": "somebody", "deviceId": DEVICE["deviceId"]}, status=404
    ),
    ("POST", "/admin/matches/{match_id}/replay"): ValidRequest(body={}, status=409),
    ("PUT", "/admin/matches/{match_id}/hold"): ValidRequest(),
    ("DELETE", "/admin/matches/{match_id}/hold"): ValidRequest(),
    ("PUT", "/admin/matches/{match_id}/result"): ValidRequest(body={"note": "Match tied"}),
    ("DELETE", "/admin/matches/{match_id}/result"): ValidRequest(),
    ("POST", "/admin/matches/{match_id}/restore-follows"): ValidRequest(),
    ("DELETE", "/leagues/{league_id}"): ValidRequest(status=204),
}


@dataclass(frozen=True, slots=True)
class DocumentedServer:
    """A server, its OpenAPI document and existing ids."""

    server: ApiHarness
    document: Document
    match_id: str
    team_id: str
    league_id: str
    season_id: str

    @property
    def credentials(self) -> dict[str, str]:
        """Return the token of an administrator, who is a user too."""
        return {"Authorization": f"Bearer {self.server.cognito.admin_token('somebody')}"}

    def known(self, path: str) -> dict[str, str]:
        known = {
            "match_id": self.match_id,
            "team_id": self.team_id,
            "league_id": self.league_id,
            "season_id": self.season_id,
        }
        return {name: value for name, value in known.items() if f"{{{name}}}" in path}

    def with_known_ids(self, values: Any) -> Any:
        names = {"KNOWN": self.match_id, "KNOWN_LEAGUE": self.league_id}
        return {
            name: names.get(value, value) if isinstance(value, str) else value
            for name, value in values.items()
        }


@pytest.fixture(scope="module")
async def documented(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DocumentedServer]:
    async with open_api_harness(tmp_path_factory.mktemp("documented")) as server:
        server.live_match(12)
        server.sportmonks.schedule(2, first=server.clock.now() + timedelta(hours=5))
        await server.sync()
        await server.poll()
        ana = server.user("ana")
        (match,) = (await ana.get_json("/matches/live"))["items"]
        url = server.url.removesuffix("/cricket")
        response = await server.client.get(f"{url}/openapi.json").build().send()
        yield DocumentedServer(
            server,
            Document.read(url, "cricket", "/cricket", await response.json()),
            match["matchId"],
            match["teams"][0]["teamId"],
            match["league"]["leagueId"],
            match["seasonId"],
        )


def test_the_document_has_every_route(documented: DocumentedServer) -> None:
    """The tests below cover every route of the document."""
    assert documented.document.routes() == set(REQUESTS)


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_an_endpoint_has_examples(documented: DocumentedServer, method: str, path: str) -> None:
    """Of its request, its JSON response and every error."""
    check_examples(documented.document.raw_operation(method, path), takes_nothing=True)


async def test_valid_requests_match_the_document(documented: DocumentedServer) -> None:
    """In an order that satisfies the preconditions of each."""
    document = documented.document

    def ask(method: str, path: str, good: ValidRequest) -> int:
        parts: dict[str, Any] = {
            "path_parameters": documented.known(path),
            "query": documented.with_known_ids(good.query),
        }
        if good.body is not None:
            parts |= {
                "body": documented.with_known_ids(good.body),
                "media_type": "application/json",
            }
        case = document.operation(method, path).Case(**parts)
        return (document.check_stream_head if good.is_stream else document.check_response)(
            case, documented.credentials
        )

    response = {
        entry: await asyncio.to_thread(ask, *entry, good) for entry, good in REQUESTS.items()
    }
    assert response == {entry: good.status for entry, good in REQUESTS.items()}


# Endpoints with a body or a query; the others cannot receive invalid input.
WITH_INPUT = {entry for entry, good in REQUESTS.items() if good.body is not None or good.query}


@pytest.mark.judge
@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        (*entry, mode)
        for entry in REQUESTS
        for mode in GenerationMode
        if mode is GenerationMode.POSITIVE or entry in WITH_INPUT
    ],
)
async def test_every_response_matches_the_document(
    documented: DocumentedServer, method: str, path: str, mode: GenerationMode
) -> None:
    document = documented.document
    known = {} if REQUESTS[method, path].is_stream else documented.known(path)
    check = partial(
        document.fuzz,
        document.operation(method, path),
        mode,
        documented.credentials,
        examples=EXAMPLES,
    )
    await asyncio.to_thread(check, known=known)
