"""The OpenAPI document matches the running server.

Schemathesis generates valid and invalid requests from the document, with and without a session. No
response may be a 5xx, or have an undocumented status, content type, header or body.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from schemathesis import GenerationMode

from tests.collect.activity_file_factory import sample
from tests.collect.server_harness import (
    ADMIN,
    SUBSCRIPTION,
    VERIFY,
    WEBHOOK_SECRET,
    CollectServer,
    LinkedUser,
    open_server,
)
from tests.collect.test_api_imports import import_file
from tests.openapi import Document, check_examples

EXAMPLES = 40
UNKNOWN = {"milestone_id": "0" * 26}


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """A valid request and its expected status."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    media_type: str = "application/json"
    status: int = 200
    # The response does not depend on a session.
    is_public: bool = False
    # The request neither ends the session or the link, nor streams.
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
OPERATIONS: dict[tuple[str, str], ValidRequest] = {
    ("GET", "/health"): ValidRequest(is_public=True),
    ("GET", "/health/ready"): ValidRequest(is_public=True),
    ("GET", "/auth/login"): ValidRequest({"return_to": "/here"}, status=302, is_public=True),
    ("GET", "/auth/callback"): ValidRequest(
        {"state": "x", "code": "y"}, status=400, is_public=True
    ),
    ("POST", "/auth/logout"): ValidRequest(status=204, is_harmless=False),
    ("GET", "/me"): ValidRequest(),
    ("GET", "/strava/connect"): ValidRequest({"return_to": "/here"}, status=302),
    ("GET", "/strava/callback"): ValidRequest(
        {"state": "x", "code": "y", "scope": "read"}, status=400
    ),
    ("GET", "/strava/status"): ValidRequest(),
    ("POST", "/strava/sync"): ValidRequest(status=202, is_harmless=False),
    ("DELETE", "/strava/connection"): ValidRequest(status=204, is_harmless=False),
    ("GET", "/webhooks/strava/{secret}"): ValidRequest(SHAKE, is_public=True),
    ("POST", "/webhooks/strava/{secret}"): ValidRequest(
        body=EVENT | {"subscription_id": SUBSCRIPTION}, is_public=True
    ),
    ("GET", "/workouts"): ValidRequest({"limit": 2}),
    ("POST", "/workouts/import"): ValidRequest(
        {"sport": "RIDE"}, sample("GPX"), "application/octet-stream"
    ),
    ("DELETE", "/workouts/{workout_id}"): ValidRequest(status=404, is_harmless=False),
    ("PUT", "/workouts/{workout_id}/separation"): ValidRequest(status=409),
    ("DELETE", "/workouts/{workout_id}/separation"): ValidRequest(),
    ("GET", "/models"): ValidRequest(is_public=True),
    ("GET", "/models/{model_id}"): ValidRequest(is_public=True),
    ("POST", "/milestones"): ValidRequest(body=GOAL, status=201),
    ("GET", "/milestones"): ValidRequest(),
    ("GET", "/milestones/{milestone_id}"): ValidRequest(),
    ("POST", "/milestones/{milestone_id}/recompute"): ValidRequest(),
    ("PATCH", "/milestones/{milestone_id}"): ValidRequest(body={"totalTarget": 12_000}),
    ("DELETE", "/milestones/{milestone_id}"): ValidRequest(status=409),
    ("POST", "/milestones/{milestone_id}/archive"): ValidRequest(),
    ("GET", "/milestones/{milestone_id}/events"): ValidRequest(is_harmless=False),
    ("GET", "/admin/parked-events"): ValidRequest({"limit": 2}),
    ("POST", "/admin/parked-events/retry"): ValidRequest(body={"athleteId": None}),
    ("GET", "/sessions"): ValidRequest(),
    ("DELETE", "/sessions"): ValidRequest(status=204, is_harmless=False),
    ("DELETE", "/sessions/{session_id}"): ValidRequest(status=404),
    ("GET", "/account/export"): ValidRequest(),
    ("DELETE", "/account"): ValidRequest(status=202, is_harmless=False),
    ("GET", "/admin/deletions"): ValidRequest({"limit": 2}),
    ("GET", "/admin/audit"): ValidRequest({"event": "AUTH_REGISTERED", "limit": 1}),
}


@dataclass(frozen=True, slots=True)
class Documented:
    """A server, its OpenAPI document, and a user with a milestone and a workout."""

    server: CollectServer
    document: Document
    member: LinkedUser
    milestone_id: str
    workout_id: str

    def known(self, path: str) -> dict[str, str]:
        known = {
            "secret": WEBHOOK_SECRET,
            "model_id": "fox",
            "milestone_id": self.milestone_id,
            "session_id": "0" * 32,
            "workout_id": quote(self.workout_id, safe=""),
        }
        return {name: value for name, value in known.items() if f"{{{name}}}" in path}


def credentials(member: LinkedUser | None) -> dict[str, str]:
    """Build all credentials: a session, a same-site request and the operator token."""
    session = "unknown" if member is None else member.browser.session
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
        imported = await import_file(member, sample("GPX"))
        url = server.url.removesuffix("/collect")
        response = await server.browser().get(f"{url}/openapi.json")
        yield Documented(
            server,
            Document.read(url, "collect", "/collect", response.json),
            member,
            milestone["milestoneId"],
            imported.json["workoutId"],
        )


def test_the_tests_cover_every_route(documented: Documented) -> None:
    """The table above lists all routes of the document."""
    assert documented.document.routes() == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_operation_has_examples(documented: Documented, method: str, path: str) -> None:
    """For the request, a JSON response, and every error."""
    check_examples(documented.document.raw_operation(method, path))


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_a_valid_request_gets_a_documented_response(
    documented: Documented, method: str, path: str
) -> None:
    """From an authorized user."""
    document, valid = documented.document, OPERATIONS[method, path]
    ends_session = not valid.is_harmless and not path.endswith("/events")
    member = await documented.server.create_user() if ends_session else documented.member

    def send_request() -> int:
        parts: dict[str, Any] = {
            "path_parameters": documented.known(path),
            "query": dict(valid.query),
        }
        if valid.body is not None:
            parts |= {"body": valid.body, "media_type": valid.media_type}
        case = document.operation(method, path).Case(**parts)
        send = document.check_stream_head if path.endswith("/events") else document.check_response
        return send(case, credentials(member))

    assert await asyncio.to_thread(send_request) == valid.status


# Routes without parameters other than a free-text path have no invalid requests.
ALWAYS_VALID = {"/health", "/health/ready", "/models", "/models/{model_id}"}
CASES = [(*entry, mode) for entry in OPERATIONS for mode in GenerationMode]


@pytest.mark.judge
@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        entry
        for entry in CASES
        if entry[1] not in ALWAYS_VALID or entry[2] is GenerationMode.POSITIVE
    ],
)
async def test_generated_requests_get_documented_responses(
    documented: Documented, method: str, path: str, mode: GenerationMode
) -> None:
    """With a session unless the request ends it. Streams are requested for an unknown milestone."""
    document, valid = documented.document, OPERATIONS[method, path]
    is_stream = path.endswith("/events")
    known = UNKNOWN if is_stream else documented.known(path)
    member = documented.member if valid.is_harmless or is_stream else None
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
    ("method", "path"), [entry for entry, valid in OPERATIONS.items() if not valid.is_public]
)
async def test_requests_without_a_session_get_documented_responses(
    documented: Documented, method: str, path: str
) -> None:
    """Without a cookie and with an unknown one."""

    def send_requests() -> list[int]:
        operation, valid = documented.document.operation(method, path), OPERATIONS[method, path]
        body: dict[str, Any] = (
            {} if valid.body is None else {"body": valid.body, "media_type": valid.media_type}
        )
        cases = [
            operation.Case(path_parameters=documented.known(path), query=dict(valid.query), **body)
            for _ in range(2)
        ]
        page = {"X-Requested-With": "test"}
        unknown = page | {"Cookie": "cc_session=x", "Authorization": "Bearer x"}
        return [
            documented.document.check_response(case, headers)
            for case, headers in zip(cases, (page, unknown), strict=True)
        ]

    assert await asyncio.to_thread(send_requests) == [401, 401]
