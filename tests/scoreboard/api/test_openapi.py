"""The OpenAPI document against the running server: what is documented is what is answered, whatever is asked.

Schemathesis makes up requests from the document, good ones and ones that break it, with and without
a credential. No answer may be a 5xx, or have a status, a content type, a header or a body that the
document does not tell.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from schemathesis import GenerationMode

from tests.openapi import Document, check_examples
from tests.scoreboard.api.harness import (
    ADMIN,
    API,
    INTERNAL,
    Json,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers

EXAMPLES = 6
NOBODY = "5ed17a11-c0de-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class Good:
    """A request that must succeed; what ends the session of the one who asks is not made up again and again."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    is_open: bool = False
    is_fuzzed: bool = True


# In the order in which they succeed.
OPERATIONS: dict[tuple[str, str], Good] = {
    ("GET", "/health"): Good(is_open=True, is_fuzzed=False),
    ("POST", "/auth/register"): Good(
        body={"username": "made_up", "email": "made@example.com", "password": "long enough"},
        status=201,
        is_open=True,
    ),
    ("POST", "/auth/login"): Good(
        body={"login": "made_up", "password": "long enough"}, is_open=True
    ),
    ("POST", "/auth/refresh"): Good(body={"refresh_token": "REFRESH"}, is_open=True),
    ("GET", "/auth/sessions"): Good(),
    ("POST", "/internal/actions/complete"): Good(
        body={
            "action_id": "level-3",
            "user_id": "USER",
            "max_score": 100,
            "metadata": {"level": 3},
        },
        status=201,
    ),
    ("PATCH", "/scores"): Good(body={"action_token": "TOKEN", "score_delta": 100}),
    ("GET", "/scores/me"): Good(),
    ("GET", "/users/me/events"): Good({"limit": 3}),
    ("GET", "/leaderboard"): Good({"limit": 3, "offset": 1}, is_open=True),
    ("GET", "/leaderboard/stream"): Good(is_open=True, is_fuzzed=False),
    ("POST", "/admin/leaderboard/rebuild"): Good(),
    ("GET", "/admin/leaderboard/drift"): Good(),
    ("DELETE", "/auth/sessions/{session_id}"): Good(status=204),
    ("POST", "/auth/logout"): Good(status=204, is_fuzzed=False),
    ("DELETE", "/users/me"): Good(status=204, is_fuzzed=False),
}
FUZZED = [entry for entry, good in OPERATIONS.items() if good.is_fuzzed]
CLOSED = [entry for entry, good in OPERATIONS.items() if not good.is_open]


@dataclass(frozen=True, slots=True)
class Documented:
    """A server, its document, and somebody who is known to it."""

    harness: ScoreboardHarness
    document: Document
    player: Player

    def credentials(self, player: Player | None = None) -> dict[str, str]:
        token = (player or self.player).token
        return {
            "Authorization": f"Bearer {token}",
            "X-Internal-API-Key": INTERNAL,
            "X-Admin-API-Key": ADMIN,
        }


@pytest.fixture(scope="session")
async def documented(
    shared_servers: SharedServers, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Documented]:
    async with run_scoreboard(
        server_settings(
            await shared_servers.allocate(redis_number=1), tmp_path_factory.mktemp("documented")
        )
    ) as harness:
        response = await harness.client.get(f"{harness.url}/openapi.json").build().send()
        player = await harness.player()
        await harness.score(player, 10)
        yield Documented(
            harness, Document.read(harness.url, "scoreboard", API, await response.json()), player
        )


def test_the_document_has_every_route(documented: Documented) -> None:
    assert documented.document.routes() == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_an_operation_is_told_with_examples(documented: Documented, method: str, path: str) -> None:
    """Of its request, of its answer where that is JSON, and of every error."""
    check_examples(documented.document.told(method, path))


# Those of the specification, and names for what it leaves to the status.
CODES = {
    "INVALID_ACTION_TOKEN",
    "SCORE_EXCEEDS_MAX",
    "VALIDATION_ERROR",
    "UNAUTHORIZED",
    "TOKEN_EXPIRED",
    "SESSION_REVOKED",
    "RATE_LIMIT_EXCEEDED",
    "SERVICE_UNAVAILABLE",
    "USER_NOT_FOUND",
    "SESSION_NOT_FOUND",
    "USERNAME_TAKEN",
    "EMAIL_TAKEN",
    "ACTION_EXISTS",
    "SCORE_TOO_GREAT",
    "REBUILD_UNDER_WAY",
    "TOO_LARGE",
    "UNSUPPORTED_MEDIA",
}


def test_the_document_tells_every_code(documented: Documented) -> None:
    assert {
        body["error"]["code"] for entry in OPERATIONS for body in documented.document.errors(*entry)
    } == CODES


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_a_good_request_is_answered_as_documented(
    documented: Documented, method: str, path: str
) -> None:
    good, harness, document = OPERATIONS[method, path], documented.harness, documented.document
    player = await harness.player()
    known = {
        "USER": player.user_id,
        "REFRESH": player.refresh_token,
        "TOKEN": await harness.complete_action(player),
    }
    [session] = (await harness.send("GET", "/auth/sessions", token=player.token)).data["sessions"]

    def ask() -> int:
        parts: Json = {"query": dict(good.query)}
        if "{session_id}" in path:
            parts["path_parameters"] = {"session_id": session["session_id"]}
        if good.body is not None:
            body = {
                name: known.get(value, value) if isinstance(value, str) else value
                for name, value in good.body.items()
            }
            parts |= {"body": body, "media_type": "application/json"}
        case = document.operation(method, path).Case(**parts)
        if path.endswith("/stream"):
            return document.head_of(case, {})
        return document.answer_of(case, documented.credentials(player))

    assert await asyncio.to_thread(ask) == good.status


@pytest.mark.judge
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("method", "path"), FUZZED)
async def test_whatever_is_asked_the_answer_is_documented(
    documented: Documented, method: str, path: str, mode: GenerationMode
) -> None:
    document = documented.document
    check = partial(
        document.check_made_up,
        document.operation(method, path),
        mode,
        documented.credentials(),
        examples=EXAMPLES,
    )
    await asyncio.to_thread(check, known={})


@pytest.mark.parametrize(("method", "path"), CLOSED)
async def test_without_a_credential_the_answer_is_documented_too(
    documented: Documented, method: str, path: str
) -> None:
    def ask() -> list[int]:
        operation, good = documented.document.operation(method, path), OPERATIONS[method, path]
        parts: Json = (
            {} if good.body is None else {"body": good.body, "media_type": "application/json"}
        )
        if "{session_id}" in path:
            parts["path_parameters"] = {"session_id": NOBODY}
        cases = [operation.Case(query=dict(good.query), **parts) for _ in range(2)]
        strange = {"X-Internal-API-Key": "x", "X-Admin-API-Key": "x", "Authorization": "Bearer x"}
        return [
            documented.document.answer_of(case, headers)
            for case, headers in zip(cases, ({}, strange), strict=True)
        ]

    assert await asyncio.to_thread(ask) == [401, 401]
