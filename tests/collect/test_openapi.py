"""The OpenAPI document against the running server: what is documented is what is answered, whatever is asked.

Schemathesis makes up requests from the document, good ones and ones that break it, with a session and without. No answer may be
a 5xx, or have a status, a content type, a header or a body that the document does not tell.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
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

from tests.collect.club import ADMIN, SUBSCRIPTION, VERIFY, Club, Member, open_club

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 6
NOBODYS = {"milestone_id": "0" * 26}


@dataclass(frozen=True, slots=True)
class Good:
    """A request that must succeed, by a member of its own."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    # Without a session, or with one, the answer is the same: it is for everyone, or for nobody who comes like this.
    is_open: bool = False
    # What would end the session or the link, or never end, is made up for nobody's session and nobody's milestone alone.
    is_harmless: bool = True


EVENT = {"object_type": "activity", "object_id": 1, "aspect_type": "create", "owner_id": 1, "event_time": 1}
GOAL = {"modelId": "fox", "sport": "RUN", "metric": "DISTANCE_METERS", "totalTarget": 500}
SHAKE = {"hub.mode": "subscribe", "hub.verify_token": VERIFY, "hub.challenge": "x"}
OPERATIONS: dict[tuple[str, str], Good] = {
    ("GET", "/health"): Good(is_open=True),
    ("GET", "/health/ready"): Good(is_open=True),
    ("GET", "/auth/login"): Good({"return_to": "/here"}, status=302, is_open=True),
    ("GET", "/auth/callback"): Good({"state": "x", "code": "y"}, status=400, is_open=True),
    ("POST", "/auth/logout"): Good(status=204, is_harmless=False),
    ("GET", "/me"): Good(),
    ("GET", "/strava/connect"): Good({"return_to": "/here"}, status=302),
    ("GET", "/strava/callback"): Good({"state": "x", "code": "y", "scope": "read"}, status=400),
    ("GET", "/strava/status"): Good(),
    ("DELETE", "/strava/connection"): Good(status=204, is_harmless=False),
    ("GET", "/webhooks/strava"): Good(SHAKE, is_open=True),
    ("POST", "/webhooks/strava"): Good(body=EVENT | {"subscription_id": SUBSCRIPTION}, is_open=True),
    ("GET", "/workouts"): Good({"limit": 2}),
    ("GET", "/models"): Good(is_open=True),
    ("GET", "/models/{model_id}"): Good(is_open=True),
    ("POST", "/milestones"): Good(body=GOAL, status=201),
    ("GET", "/milestones"): Good(),
    ("GET", "/milestones/{milestone_id}"): Good(),
    ("POST", "/milestones/{milestone_id}/recompute"): Good(),
    ("GET", "/milestones/{milestone_id}/events"): Good(is_harmless=False),
    ("DELETE", "/account"): Good(status=204, is_harmless=False),
    ("GET", "/admin/audit"): Good({"event": "AUTH_REGISTERED", "limit": 1}),
}


@dataclass(frozen=True, slots=True)
class Documented:
    """A club, its document, and somebody in it with a milestone and a workout."""

    club: Club
    schema: Any
    member: Member
    milestone_id: str

    @property
    def url(self) -> str:
        return self.club.url.removesuffix("/collect")

    def operation(self, method: str, path: str) -> Any:
        return self.schema[f"/collect{path}"][method]

    def known(self, path: str) -> dict[str, str]:
        known = {"model_id": "fox", "milestone_id": self.milestone_id}
        return {name: value for name, value in known.items() if f"{{{name}}}" in path}


def credentials(member: Member | None) -> dict[str, str]:
    """All that anybody can have: a session, a page of our own, and the operators' token."""
    session = "nobodys" if member is None else member.browser.session
    return {"Cookie": f"cc_session={session}", "X-Requested-With": "test", "Authorization": f"Bearer {ADMIN}"}


@pytest.fixture(scope="module")
async def documented(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Documented]:
    async with open_club(tmp_path_factory.mktemp("documented")) as club:
        member = await club.member()
        milestone = await member.milestone()
        club.strava.record(member.athlete_id, "Ride", 5000)
        await club.apply()
        told = await club.browser().get(f"{club.url.removesuffix('/collect')}/openapi.json")
        yield Documented(club, schemathesis.openapi.from_dict(told.json), member, milestone["milestoneId"])


def test_the_document_has_every_route(documented: Documented) -> None:
    """And the tests below have every route of the document."""
    told = documented.schema.raw_schema["paths"]
    ours = {path for path, methods in told.items() if any("collect" in each["tags"] for each in methods.values())}
    assert {(method.upper(), path.removeprefix("/collect")) for path in ours for method in told[path]} == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_an_operation_is_told_with_examples(documented: Documented, method: str, path: str) -> None:
    """Of its request, of its answer where that is JSON, and of every error."""
    told = documented.schema.raw_schema["paths"][f"/collect{path}"][method.lower()]
    assert told["summary"]
    if "requestBody" in told:
        assert told["requestBody"]["content"]["application/json"]["example"]
    for status, answer in told["responses"].items():
        content = answer.get("content", {}).get("application/json", {})
        assert not content or "example" in content or content["examples"], (status, content)


def answer_of(case: Any, documented: Documented, headers: dict[str, str]) -> int:
    """The status of the answer, which must be a documented one."""
    answer = case.call(base_url=documented.url, headers=headers, allow_redirects=False)
    case.validate_response(answer, checks=CHECKS)
    assert answer.headers["x-request-id"]
    return int(answer.status_code)


def head_of(case: Any, documented: Documented, headers: dict[str, str]) -> int:
    """The same for a stream, which has no end: what its head says is all there is to check."""
    told = case.operation.definition.raw["responses"]["200"]["content"]
    with requests.get(documented.url + case.formatted_path, headers=headers, timeout=30, stream=True) as answer:
        assert answer.headers["content-type"].partition(";")[0] in told
        return answer.status_code


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_a_good_request_is_answered_as_documented(documented: Documented, method: str, path: str) -> None:
    """By somebody who may ask."""
    good = OPERATIONS[method, path]
    ends_it = not good.is_harmless and not path.endswith("/events")
    member = await documented.club.member() if ends_it else documented.member

    def ask() -> int:
        parts: dict[str, Any] = {"path_parameters": documented.known(path), "query": dict(good.query)}
        if good.body is not None:
            parts |= {"body": good.body, "media_type": "application/json"}
        case = documented.operation(method, path).Case(**parts)
        send = head_of if path.endswith("/events") else answer_of
        return send(case, documented, credentials(member))

    assert await asyncio.to_thread(ask) == good.status


def made_up(operation: Any, mode: GenerationMode, documented: Documented, known: dict[str, str], member: Member | None) -> None:
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
        answer_of(case, documented, credentials(member))

    ask()


# What takes nothing but a path, which may be any text, cannot be asked for wrongly.
ALWAYS_RIGHT = {"/health", "/health/ready", "/models", "/models/{model_id}"}
ASKED = [(*entry, mode) for entry in OPERATIONS for mode in GenerationMode]


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [entry for entry in ASKED if entry[1] not in ALWAYS_RIGHT or entry[2] is GenerationMode.POSITIVE],
)
async def test_whatever_is_asked_the_answer_is_documented(
    documented: Documented, method: str, path: str, mode: GenerationMode
) -> None:
    """With a session, except where that would end it; a stream is asked for where there is none."""
    operation, good = documented.operation(method, path), OPERATIONS[method, path]
    is_stream = path.endswith("/events")
    known = NOBODYS if is_stream else documented.known(path)
    member = documented.member if good.is_harmless or is_stream else None
    await asyncio.to_thread(made_up, operation, mode, documented, known, member)
    if known and mode is GenerationMode.POSITIVE:
        await asyncio.to_thread(made_up, operation, mode, documented, {}, member)


@pytest.mark.parametrize(("method", "path"), [entry for entry, good in OPERATIONS.items() if not good.is_open])
async def test_without_a_session_the_answer_is_documented_too(documented: Documented, method: str, path: str) -> None:
    """From a page of our own, with no cookie and with one of nobody's."""

    def ask() -> list[int]:
        operation, good = documented.operation(method, path), OPERATIONS[method, path]
        body: dict[str, Any] = {} if good.body is None else {"body": good.body, "media_type": "application/json"}
        cases = [operation.Case(path_parameters=documented.known(path), query=dict(good.query), **body) for _ in range(2)]
        page = {"X-Requested-With": "test"}
        strange = page | {"Cookie": "cc_session=x", "Authorization": "Bearer x"}
        return [answer_of(case, documented, headers) for case, headers in zip(cases, (page, strange), strict=True)]

    assert await asyncio.to_thread(ask) == [401, 401]
