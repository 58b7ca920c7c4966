"""The OpenAPI document against the running server: what is documented is what is answered, whatever is asked.

Schemathesis makes up requests from the document, good ones and ones that break it, with a session
and without. No answer may be a 5xx, or have a status, a content type, a header or a body that the
document does not tell.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from schemathesis import GenerationMode

from tests.collect.server_harness import (
    ADMIN,
    SUBSCRIPTION,
    VERIFY,
    CollectServer,
    LinkedUser,
    open_server,
)
from tests.openapi import Document, check_examples

EXAMPLES = 6
NOBODYS = {"milestone_id": "0" * 26}


@dataclass(frozen=True, slots=True)
class Good:
    """A request that must succeed, by a member of its own."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    # Without a session, or with one, the answer is the same: it is for everyone, or for nobody who
    # comes like this.
    is_open: bool = False
    # What would end the session or the link, or never end, is made up for nobody's session and
    # nobody's milestone alone.
    is_harmless: bool = True


EVENT = {
    "object_type": "activity",
    "object_id": 1,
    "aspect_type": "create",
    "owner_id": 1,
    "event_time": 1,
}
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
    ("POST", "/webhooks/strava"): Good(
        body=EVENT | {"subscription_id": SUBSCRIPTION}, is_open=True
    ),
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

    server: CollectServer
    document: Document
    member: LinkedUser
    milestone_id: str

    def known(self, path: str) -> dict[str, str]:
        known = {"model_id": "fox", "milestone_id": self.milestone_id}
        return {name: value for name, value in known.items() if f"{{{name}}}" in path}


def credentials(member: LinkedUser | None) -> dict[str, str]:
    """All that anybody can have: a session, a page of our own, and the operators' token."""
    session = "nobodys" if member is None else member.browser.session
    return {
        "Cookie": f"cc_session={session}",
        "X-Requested-With": "test",
        "Authorization": f"Bearer {ADMIN}",
    }


@pytest.fixture(scope="module")
async def documented(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Documented]:
    async with open_server(tmp_path_factory.mktemp("documented")) as server:
        member = await server.create_user()
        milestone = await member.create_milestone()
        server.strava.record(member.athlete_id, "Ride", 5000)
        await server.process_inbox()
        url = server.url.removesuffix("/collect")
        told = await server.browser().get(f"{url}/openapi.json")
        yield Documented(
            server,
            Document.read(url, "collect", "/collect", told.json),
            member,
            milestone["milestoneId"],
        )


def test_the_document_has_every_route(documented: Documented) -> None:
    """And the tests below have every route of the document."""
    assert documented.document.routes() == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_an_operation_is_told_with_examples(documented: Documented, method: str, path: str) -> None:
    """Of its request, of its answer where that is JSON, and of every error."""
    check_examples(documented.document.raw_operation(method, path))


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_a_good_request_is_answered_as_documented(
    documented: Documented, method: str, path: str
) -> None:
    """By somebody who may ask."""
    document, good = documented.document, OPERATIONS[method, path]
    ends_it = not good.is_harmless and not path.endswith("/events")
    member = await documented.server.create_user() if ends_it else documented.member

    def ask() -> int:
        parts: dict[str, Any] = {
            "path_parameters": documented.known(path),
            "query": dict(good.query),
        }
        if good.body is not None:
            parts |= {"body": good.body, "media_type": "application/json"}
        case = document.operation(method, path).Case(**parts)
        send = document.check_stream_head if path.endswith("/events") else document.check_response
        return send(case, credentials(member))

    assert await asyncio.to_thread(ask) == good.status


# What takes nothing but a path, which may be any text, cannot be asked for wrongly.
ALWAYS_RIGHT = {"/health", "/health/ready", "/models", "/models/{model_id}"}
ASKED = [(*entry, mode) for entry in OPERATIONS for mode in GenerationMode]


@pytest.mark.judge
@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        entry
        for entry in ASKED
        if entry[1] not in ALWAYS_RIGHT or entry[2] is GenerationMode.POSITIVE
    ],
)
async def test_whatever_is_asked_the_answer_is_documented(
    documented: Documented, method: str, path: str, mode: GenerationMode
) -> None:
    """With a session, except where that would end it; a stream is asked for where there is none."""
    document, good = documented.document, OPERATIONS[method, path]
    is_stream = path.endswith("/events")
    known = NOBODYS if is_stream else documented.known(path)
    member = documented.member if good.is_harmless or is_stream else None
    check = partial(
        document.fuzz,
        document.operation(method, path),
        mode,
        credentials(member),
        examples=EXAMPLES,
    )
    await asyncio.to_thread(check, known=known)
    if known and mode is GenerationMode.POSITIVE:
        await asyncio.to_thread(check, known={})


@pytest.mark.parametrize(
    ("method", "path"), [entry for entry, good in OPERATIONS.items() if not good.is_open]
)
async def test_without_a_session_the_answer_is_documented_too(
    documented: Documented, method: str, path: str
) -> None:
    """From a page of our own, with no cookie and with one of nobody's."""

    def ask() -> list[int]:
        operation, good = documented.document.operation(method, path), OPERATIONS[method, path]
        body: dict[str, Any] = (
            {} if good.body is None else {"body": good.body, "media_type": "application/json"}
        )
        cases = [
            operation.Case(path_parameters=documented.known(path), query=dict(good.query), **body)
            for _ in range(2)
        ]
        page = {"X-Requested-With": "test"}
        strange = page | {"Cookie": "cc_session=x", "Authorization": "Bearer x"}
        return [
            documented.document.check_response(case, headers)
            for case, headers in zip(cases, (page, strange), strict=True)
        ]

    assert await asyncio.to_thread(ask) == [401, 401]
