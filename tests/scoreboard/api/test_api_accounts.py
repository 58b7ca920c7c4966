"""Accounts and sessions: registration, login, logout, token refresh and revocation."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from tally.kit.clock import ManualClock
from tally.kit.ids import new_uuid
from tally.kit.keyring import Key
from tally.scoreboard.repository.migrations import known_tables
from tally.scoreboard.service.action_tokens import hash_token
from tally.settings import Secret
from tests.api_response import ApiResponse, expect_error
from tests.scoreboard.api.harness import (
    SESSION_KEY,
    Json,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers

PASSWORD = "correct horse battery"


def registration(name: str, **changes: Any) -> Json:
    return {"username": name, "email": f"{name}@example.com", "password": PASSWORD} | changes


async def register(harness: ScoreboardHarness) -> tuple[str, Json]:
    name = f"p_{new_uuid()[:8]}"
    response = await harness.send("POST", "/auth/register", registration(name))
    assert response.status == 201, response
    return name, response.result


async def me(harness: ScoreboardHarness, token: str) -> ApiResponse:
    return await harness.send("GET", "/scores/me", token=token)


async def test_registration_logs_in_and_adds_the_player_to_the_leaderboard(
    harness: ScoreboardHarness,
) -> None:
    name, data = await register(harness)
    assert (data["user"]["username"], data["user"]["email"], data["user"]["avatar_url"]) == (
        name,
        f"{name}@example.com",
        None,
    )
    assert data["tokens"]["token_type"] == "Bearer"
    own = (await me(harness, data["tokens"]["access_token"])).result
    assert (own["username"], own["score"]) == (name, 0)


async def test_usernames_and_emails_are_unique_regardless_of_case(
    harness: ScoreboardHarness,
) -> None:
    name, _ = await register(harness)
    other = registration(f"q_{new_uuid()[:8]}")
    taken = await harness.send("POST", "/auth/register", other | {"username": name.upper()})
    expect_error(taken, 409, "username_taken", field="username")
    taken = await harness.send(
        "POST", "/auth/register", other | {"email": f"{name.upper()}@EXAMPLE.com"}
    )
    expect_error(taken, 409, "email_taken", field="email")
    assert (await harness.send("POST", "/auth/register", other)).status == 201


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("username", "ab"),
        ("username", "x" * 51),
        ("username", "with space"),
        ("username", "line\n"),
        ("username", "ümlaut"),
        ("email", "nobody"),
        ("email", "a@b"),
        ("email", f"{'x' * 250}@example.com"),
        ("email", "a@example.com\n"),
        ("password", "short-one"),
        ("password", "x" * 129),
        ("avatar_url", "javascript:alert(1)"),
        ("avatar_url", "https://example.com/" + "x" * 500),
    ],
)
async def test_the_error_for_an_invalid_field_names_it(
    harness: ScoreboardHarness, field: str, value: str
) -> None:
    response = await harness.send(
        "POST", "/auth/register", registration(f"r_{new_uuid()[:8]}", **{field: value})
    )
    expect_error(response, 400, "invalid_field", field=field)


async def test_login_accepts_username_and_email_in_any_case(harness: ScoreboardHarness) -> None:
    name, _ = await register(harness)
    for login in (name, name.upper(), f"{name}@Example.com"):
        data = (
            await harness.send("POST", "/auth/login", {"login": login, "password": PASSWORD})
        ).result
        assert (await me(harness, data["tokens"]["access_token"])).status == 200


async def test_a_wrong_password_and_an_unknown_username_return_the_same_error(
    harness: ScoreboardHarness,
) -> None:
    """Both hash a password, so neither response nor time reveals who has an account."""
    name, _ = await register(harness)
    responses, times = [], []
    for login in (name, "nobody_at_all"):
        begun = time.perf_counter()
        responses.append(
            await harness.send(
                "POST",
                "/auth/login",
                {"login": login, "password": "wrong password"},
                headers={"X-Request-Id": "the-same"},
            )
        )
        times.append(time.perf_counter() - begun)
        expect_error(responses[-1], 401, "invalid_credentials")
    assert responses[0].body == responses[1].body
    assert min(times) > 0.005, "a hash takes longer than that"


async def test_a_refresh_revokes_the_previous_access_token(
    harness: ScoreboardHarness,
) -> None:
    player = await harness.player()
    data = (
        await harness.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token})
    ).result
    assert (await me(harness, data["access_token"])).status == 200
    expect_error(await me(harness, player.token), 401, "session_revoked")


async def test_logout_revokes_the_session_immediately(harness: ScoreboardHarness) -> None:
    """Both the access token and the refresh token become invalid."""
    player = await harness.player()
    assert (await me(harness, player.token)).status == 200
    assert (await harness.send("POST", "/auth/logout", token=player.token)).status == 204
    expect_error(await me(harness, player.token), 401, "session_revoked")
    expect_error(
        await harness.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token}),
        401,
        "invalid_token",
    )


async def test_sessions_can_be_listed_and_revoked(harness: ScoreboardHarness) -> None:
    name, first = await register(harness)
    second = (
        await harness.send("POST", "/auth/login", {"login": name, "password": PASSWORD})
    ).result
    token = second["tokens"]["access_token"]
    listed = (await harness.send("GET", "/auth/sessions", token=token)).result["items"]
    assert [(session["session_id"], session["is_current"]) for session in listed] == [
        (second["tokens"]["session_id"], True),
        (first["tokens"]["session_id"], False),
    ]
    assert {session["ip_address"] for session in listed} == {"127.0.0.1"}
    path = f"/auth/sessions/{first['tokens']['session_id']}"
    assert (await harness.send("DELETE", path, token=token)).status == 204
    expect_error(await me(harness, first["tokens"]["access_token"]), 401, "session_revoked")
    assert (await me(harness, token)).status == 200
    expect_error(await harness.send("DELETE", path, token=token), 404, "session_not_found")
    expect_error(
        await harness.send("DELETE", "/auth/sessions/x", token=token), 400, "invalid_field"
    )


async def test_a_player_cannot_revoke_the_session_of_another(harness: ScoreboardHarness) -> None:
    player, other = await harness.player(), await harness.player()
    [session] = (await harness.send("GET", "/auth/sessions", token=player.token)).result["items"]
    response = await harness.send(
        "DELETE", f"/auth/sessions/{session['session_id']}", token=other.token
    )
    expect_error(response, 404, "session_not_found")
    assert (await me(harness, player.token)).status == 200


def jwt_part(content: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


async def test_a_foreign_access_token_is_rejected(harness: ScoreboardHarness) -> None:
    """Unsigned, signed with another key, for another audience, from another issuer, or changed."""
    player = await harness.player()
    claims = jwt.decode(player.token, options={"verify_signature": False})
    head = jwt.get_unverified_header(player.token)
    signature = player.token.rpartition(".")[2]
    key, other_key = (
        Key.of(SESSION_KEY).reveal(),
        Key.of(Secret("another key of at least 32 characters")).reveal(),
    )
    invalid_tokens = {
        "alg none": f"{jwt_part(head | {'alg': 'none'})}.{jwt_part(claims)}.",
        "alg none, signed": f"{jwt_part(head | {'alg': 'none'})}.{jwt_part(claims)}.{signature}",
        "wrong key": jwt.encode(claims, other_key, "HS256", head),
        "wrong audience": jwt.encode(claims | {"aud": "collect"}, key, "HS256", head),
        "wrong issuer": jwt.encode(claims | {"iss": "other"}, key, "HS256", head),
        "another player": f"{jwt_part(head)}.{jwt_part(claims | {'sub': new_uuid()})}.{signature}",
        "an action token": await harness.complete_action(player),
        "no token": "x",
    }
    for name, token in invalid_tokens.items():
        response = await me(harness, token)
        assert (name, response.status) == (name, 401)
        expect_error(response, 401, "invalid_token")
    expect_error(await harness.send("GET", "/scores/me"), 401, "missing_token")
    assert (await me(harness, player.token)).status == 200


async def test_a_signed_token_without_a_session_is_rejected(
    harness: ScoreboardHarness,
) -> None:
    """A stolen signing key alone grants no access."""
    player = await harness.player()
    claims = jwt.decode(player.token, options={"verify_signature": False}) | {"jti": new_uuid()}
    token = jwt.encode(
        claims, Key.of(SESSION_KEY).reveal(), "HS256", jwt.get_unverified_header(player.token)
    )
    expect_error(await me(harness, token), 401, "session_revoked")


async def test_an_access_token_expires_and_can_be_refreshed(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    async with run_scoreboard(
        server_settings(await shared_servers.allocate(), tmp_path), ManualClock()
    ) as harness:
        player = await harness.player()
        harness.skip_time(899)
        assert (await me(harness, player.token)).status == 200
        harness.skip_time(1)
        expect_error(await me(harness, player.token), 401, "token_expired")
        data = (
            await harness.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token})
        ).result
        assert (await me(harness, data["access_token"])).status == 200
        harness.skip_time(30 * 86_400)
        late = await harness.send("POST", "/auth/refresh", {"refresh_token": data["refresh_token"]})
        expect_error(late, 401, "invalid_token")


async def test_deleting_an_account_keeps_its_history_anonymously(
    fresh_harness: ScoreboardHarness,
) -> None:
    """Account, score and sessions are deleted, and the leaderboard closes the gap."""
    ana, ben = await fresh_harness.player("ana"), await fresh_harness.player("ben")
    await fresh_harness.score(ana, 50)
    await fresh_harness.score(ben, 20)
    assert (await fresh_harness.send("DELETE", "/users/me", token=ana.token)).status == 204
    expect_error(await me(fresh_harness, ana.token), 401, "session_revoked")
    leaderboard = await fresh_harness.leaderboard()
    assert [(entry["rank"], entry["username"]) for entry in leaderboard["items"]] == [(1, "ben")]
    assert leaderboard["total_players"] == 1
    database = fresh_harness.scoreboard.database
    for table in ("users", "scores", "sessions"):
        assert await database.value("test", f"SELECT count(*) FROM {table}") == 1, table  # noqa: S608
    left = await database.rows(
        "test", "SELECT user_id, score_after, client_info FROM score_events ORDER BY score_after"
    )
    assert [(row["user_id"] and str(row["user_id"]), row["score_after"]) for row in left] == [
        (ben.user_id, 20),
        (None, 50),
    ]
    assert left[1]["client_info"] == {}
    assert (await fresh_harness.admin("GET", "/drift")).result["found"] == 0


async def test_no_row_leads_back_to_a_deleted_player(fresh_harness: ScoreboardHarness) -> None:
    """Neither by the id or the name, nor by an action or a token in another table."""
    ana, database = await fresh_harness.player("ana"), fresh_harness.scoreboard.database
    login = {"login": "ana", "password": "wrong"}
    expect_error(await fresh_harness.send("POST", "/auth/login", login), 401, "invalid_credentials")
    tokens = [
        await fresh_harness.complete_action(
            ana, action_id=f"level-{n}-of-ana", metadata={"n": "ana"}
        )
        for n in range(2)
    ]
    assert (await fresh_harness.update_score(ana, tokens[0], 5)).status == 200
    assert (await fresh_harness.send("DELETE", "/users/me", token=ana.token)).status == 204
    left = [
        str(row[0])
        for table in known_tables()
        for row in await database.rows("test", f"SELECT t::text FROM {table} t")  # noqa: S608
    ]
    for trace in (ana.user_id, "ana", *(hash_token(token) for token in tokens)):
        # The changes of bands, which the job adds up, have the place of a player until then.
        assert [text for text in left if trace in text and not text.startswith("(global,")] == []
    assert sum(text.startswith("(global,") for text in left) > 1
    await fresh_harness.scoreboard.services.maintain_ranks()
    assert await database.value("test", "SELECT count(*) FROM rank_changes") == 0
    assert await database.value("test", "SELECT count(*) FROM score_events") == 1


async def test_a_deleted_account_can_be_registered_again(
    harness: ScoreboardHarness,
) -> None:
    name, data = await register(harness)
    assert (
        await harness.send("DELETE", "/users/me", token=data["tokens"]["access_token"])
    ).status == 204
    assert (await harness.send("POST", "/auth/register", registration(name))).status == 201
