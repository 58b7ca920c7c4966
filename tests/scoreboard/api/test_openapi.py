"""The OpenAPI document matches the running server.

Schemathesis generates valid and invalid requests from the document, with and without credentials.
No response may be a 5xx, or have a status, content type, header or body that the document does
not describe.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from schemathesis import GenerationMode

from tally.kit.ids import new_uuid
from tally.scoreboard.model.boards import BoardRules, ResetSchedule
from tally.scoreboard.service.action_tokens import hash_token
from tally.settings import Secret
from tests.openapi import Document, check_examples
from tests.scoreboard.api.harness import (
    ADMIN,
    API,
    INTERNAL,
    PLAYER_PASSWORD,
    Json,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers

EXAMPLES = 40
UNKNOWN_ID = "5ed17a11-c0de-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """A request that must succeed; one that revokes the caller's session is not fuzzed."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    is_open: bool = False
    is_fuzzed: bool = True


# In the order in which they succeed.
OPERATIONS: dict[tuple[str, str], ValidRequest] = {
    ("GET", "/health"): ValidRequest(is_open=True, is_fuzzed=False),
    ("GET", "/health/ready"): ValidRequest(is_open=True, is_fuzzed=False),
    ("POST", "/auth/register"): ValidRequest(
        body={
            "username": "generated",
            "email": "generated@example.com",
            "password": "long enough to keep",
        },
        status=201,
        is_open=True,
    ),
    ("POST", "/auth/login"): ValidRequest(
        body={"login": "NAME", "password": PLAYER_PASSWORD}, is_open=True
    ),
    ("POST", "/auth/refresh"): ValidRequest(body={"refresh_token": "REFRESH"}, is_open=True),
    ("GET", "/auth/sessions"): ValidRequest(),
    ("POST", "/auth/password"): ValidRequest(
        body={"current_password": PLAYER_PASSWORD, "new_password": "another long password"},
        status=204,
    ),
    ("POST", "/auth/password/forgot"): ValidRequest(
        body={"email": "ana@example.com"}, status=202, is_open=True
    ),
    ("POST", "/auth/password/reset"): ValidRequest(
        body={"token": "RESET", "new_password": "yet another long password"},
        status=204,
        is_open=True,
    ),
    ("POST", "/internal/actions/complete"): ValidRequest(
        body={
            "action_id": "level-3",
            "user_id": "USER",
            "max_score": 100,
            "metadata": {"level": 3},
        },
        status=201,
    ),
    ("PATCH", "/scores"): ValidRequest(body={"action_token": "TOKEN", "score_delta": 100}),
    ("GET", "/scores/me"): ValidRequest(),
    ("GET", "/users/me"): ValidRequest(),
    ("PATCH", "/users/me"): ValidRequest(body={"avatar_url": "https://example.com/a.png"}),
    ("GET", "/users/me/events"): ValidRequest({"limit": 3}),
    ("GET", "/leaderboard"): ValidRequest({"limit": 3, "offset": 1}, is_open=True),
    ("GET", "/leaderboard/stream"): ValidRequest(is_open=True, is_fuzzed=False),
    ("POST", "/admin/leaderboard/rebuild"): ValidRequest(),
    ("GET", "/admin/leaderboard/drift"): ValidRequest(),
    ("POST", "/admin/players/{user_id}/adjust"): ValidRequest(
        body={"score_delta": 5, "reason": "a test", "adjustment_id": "one"}
    ),
    ("POST", "/admin/players/{user_id}/ban"): ValidRequest(status=204),
    ("POST", "/admin/players/{user_id}/unban"): ValidRequest(status=204),
    ("POST", "/admin/boards"): ValidRequest(
        body={"id": "monthly", "name": "Monthly", "reset": {"cron": "0 0 1 * *"}}, status=201
    ),
    ("GET", "/boards"): ValidRequest({"limit": 3}, is_open=True),
    ("GET", "/boards/{board_id}"): ValidRequest({"limit": 3, "offset": 1}, is_open=True),
    ("GET", "/boards/{board_id}/me"): ValidRequest(),
    ("GET", "/boards/{board_id}/stream"): ValidRequest(is_open=True, is_fuzzed=False),
    ("GET", "/boards/{board_id}/seasons"): ValidRequest({"limit": 3}, is_open=True),
    ("GET", "/boards/{board_id}/seasons/{number}"): ValidRequest({"limit": 3}, is_open=True),
    ("DELETE", "/auth/sessions/{session_id}"): ValidRequest(status=204),
    ("DELETE", "/auth/sessions"): ValidRequest(status=204, is_fuzzed=False),
    ("POST", "/auth/logout"): ValidRequest(status=204, is_fuzzed=False),
    ("DELETE", "/users/me"): ValidRequest(status=204, is_fuzzed=False),
}
FUZZED = [entry for entry, request in OPERATIONS.items() if request.is_fuzzed]
CLOSED = [entry for entry, request in OPERATIONS.items() if not request.is_open]


@dataclass(frozen=True, slots=True)
class DocumentedServer:
    """A server, its OpenAPI document and an authenticated player."""

    harness: ScoreboardHarness
    document: Document
    player: Player

    def credentials(self, path: str, player: Player | None = None) -> dict[str, str]:
        token = ADMIN if "/admin/" in path else (player or self.player).token
        return {"Authorization": f"Bearer {token}", "X-Internal-API-Key": INTERNAL}


@pytest.fixture(scope="session")
async def documented(
    shared_servers: SharedServers, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DocumentedServer]:
    async with run_scoreboard(
        server_settings(
            await shared_servers.allocate(redis_number=1),
            tmp_path_factory.mktemp("documented"),
            scoreboard_smtp_url=Secret("smtp://127.0.0.1:9"),
        )
    ) as harness:
        response = await harness.client.get(f"{harness.url}/openapi.json").build().send()
        player = await harness.player()
        await harness.score(player, 10)
        await create_board(harness, player)
        yield DocumentedServer(
            harness, Document.read(harness.url, "scoreboard", API, await response.json()), player
        )


async def create_board(harness: ScoreboardHarness, player: Player) -> None:
    """Create a board with a closed season, in which the player has a score."""
    boards = harness.scoreboard.services.boards
    rules = BoardRules("Weekly", reset=ResetSchedule("0 0 * * MON", "UTC"))
    await boards.create("weekly", rules)
    await score_on_board(harness, player)
    await harness.scoreboard.database.value(
        "test", "UPDATE boards SET season_ends_at = season_started_at WHERE id = 'weekly'"
    )
    await boards.seasons.refresh("weekly")


async def score_on_board(harness: ScoreboardHarness, player: Player) -> None:
    token = await harness.complete_action(player, boards=["weekly"])
    assert (await harness.update_score(player, token, 5)).status == 200


def test_the_document_has_every_route(documented: DocumentedServer) -> None:
    assert documented.document.routes() == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_operation_has_examples(documented: DocumentedServer, method: str, path: str) -> None:
    """Of its request, its JSON response and every error."""
    check_examples(documented.document.raw_operation(method, path))


# The codes of the backend, and those of the kit.
CODES = {
    "invalid_action_token",
    "score_exceeds_max",
    "missing_field",
    "invalid_field",
    "missing_token",
    "invalid_token",
    "invalid_api_key",
    "invalid_credentials",
    "read_only_operator",
    "token_expired",
    "session_revoked",
    "rate_limit_exceeded",
    "too_many_sign_ins",
    "too_many_streams",
    "weak_password",
    "wrong_password",
    "password_changed",
    "unavailable",
    "user_not_found",
    "session_not_found",
    "username_taken",
    "email_taken",
    "action_exists",
    "board_exists",
    "board_not_found",
    "no_board_score",
    "season_not_found",
    "invalid_reset_token",
    "password_reset_disabled",
    "too_many_resets",
    "score_too_great",
    "score_too_small",
    "player_banned",
    "rebuild_under_way",
    "too_large",
    "unsupported_media",
}


def test_the_document_lists_every_error_code(documented: DocumentedServer) -> None:
    assert {
        body["code"] for operation in OPERATIONS for body in documented.document.errors(*operation)
    } == CODES


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_a_valid_request_returns_the_documented_response(
    documented: DocumentedServer, method: str, path: str
) -> None:
    request, harness, document = OPERATIONS[method, path], documented.harness, documented.document
    player = await harness.player()
    placeholders = {
        "USER": player.user_id,
        "NAME": player.username,
        "REFRESH": player.refresh_token,
        "TOKEN": await harness.complete_action(player),
        "RESET": new_uuid(),
    }
    await harness.scoreboard.services.password_resets.resets.add_token(
        f"{player.username}@example.com",
        hash_token(placeholders["RESET"]),
        harness.clock.now() + timedelta(minutes=5),
    )
    await score_on_board(harness, player)
    [session] = (await harness.send("GET", "/auth/sessions", token=player.token)).result["items"]

    def send() -> int:
        parts: Json = {"query": dict(request.query)}
        if "{session_id}" in path:
            parts["path_parameters"] = {"session_id": session["session_id"]}
        if "{board_id}" in path:
            parts["path_parameters"] = {"board_id": "weekly"}
        if "{number}" in path:
            parts["path_parameters"]["number"] = 1
        if "{user_id}" in path:
            parts["path_parameters"] = {"user_id": player.user_id}
        if request.body is not None:
            body = {
                name: placeholders.get(value, value) if isinstance(value, str) else value
                for name, value in request.body.items()
            }
            parts |= {"body": body, "media_type": "application/json"}
        case = document.operation(method, path).Case(**parts)
        if path.endswith("/stream"):
            return document.check_stream_head(case, {})
        return document.check_response(case, documented.credentials(path, player))

    assert await asyncio.to_thread(send) == request.status


@pytest.mark.judge
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("method", "path"), FUZZED)
async def test_generated_requests_return_documented_responses(
    documented: DocumentedServer, method: str, path: str, mode: GenerationMode
) -> None:
    document = documented.document
    check = partial(
        document.fuzz,
        document.operation(method, path),
        mode,
        documented.credentials(path),
        examples=EXAMPLES,
    )
    await asyncio.to_thread(check, known={})


@pytest.mark.parametrize(("method", "path"), CLOSED)
async def test_requests_without_credentials_return_documented_responses(
    documented: DocumentedServer, method: str, path: str
) -> None:
    def send() -> list[int]:
        operation, request = documented.document.operation(method, path), OPERATIONS[method, path]
        parts: Json = (
            {} if request.body is None else {"body": request.body, "media_type": "application/json"}
        )
        if "{session_id}" in path:
            parts["path_parameters"] = {"session_id": UNKNOWN_ID}
        if "{user_id}" in path:
            parts["path_parameters"] = {"user_id": UNKNOWN_ID}
        if "{board_id}" in path:
            parts["path_parameters"] = {"board_id": "weekly"}
        cases = [operation.Case(query=dict(request.query), **parts) for _ in range(2)]
        invalid_headers = {
            "X-Internal-API-Key": "x",
            "Authorization": "Bearer x",
        }
        return [
            documented.document.check_response(case, headers)
            for case, headers in zip(cases, ({}, invalid_headers), strict=True)
        ]

    assert await asyncio.to_thread(send) == [401, 401]
