"""PlayerAccounts and sessions: signing up, in and out, tokens that are renewed once, and sessions that end at once."""

import asyncio
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
from tally.settings import Secret
from tests.scoreboard.api.harness import (
    SESSION_KEY,
    ApiResponse,
    Json,
    ScoreboardHarness,
    expect_error,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers

PASSWORD = "correct horse battery"


def registration(name: str, **changes: Any) -> Json:
    return {"username": name, "email": f"{name}@example.com", "password": PASSWORD} | changes


async def signed_up(harness: ScoreboardHarness) -> tuple[str, Json]:
    name = f"p_{new_uuid()[:8]}"
    answer = await harness.send("POST", "/auth/register", registration(name))
    assert answer.status == 201, answer
    return name, answer.data


async def me(harness: ScoreboardHarness, token: str) -> ApiResponse:
    return await harness.send("GET", "/scores/me", token=token)


async def test_who_signs_up_is_signed_in_and_on_the_board(harness: ScoreboardHarness) -> None:
    name, told = await signed_up(harness)
    assert (told["user"]["username"], told["user"]["email"], told["user"]["avatar_url"]) == (
        name,
        f"{name}@example.com",
        None,
    )
    assert told["tokens"]["token_type"] == "Bearer"
    mine = (await me(harness, told["tokens"]["access_token"])).data
    assert (mine["username"], mine["score"]) == (name, 0)


async def test_names_and_addresses_are_taken_without_regard_to_case(
    harness: ScoreboardHarness,
) -> None:
    name, _ = await signed_up(harness)
    other = registration(f"q_{new_uuid()[:8]}")
    taken = await harness.send("POST", "/auth/register", other | {"username": name.upper()})
    expect_error(taken, 409, "USERNAME_TAKEN", field="username")
    taken = await harness.send(
        "POST", "/auth/register", other | {"email": f"{name.upper()}@EXAMPLE.com"}
    )
    expect_error(taken, 409, "EMAIL_TAKEN", field="email")
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
        ("password", "short"),
        ("password", "x" * 129),
        ("avatar_url", "javascript:alert(1)"),
        ("avatar_url", "https://example.com/" + "x" * 500),
    ],
)
async def test_what_breaks_a_rule_is_refused_by_its_field(
    harness: ScoreboardHarness, field: str, value: str
) -> None:
    answer = await harness.send(
        "POST", "/auth/register", registration(f"r_{new_uuid()[:8]}", **{field: value})
    )
    expect_error(answer, 400, "VALIDATION_ERROR", field=field)


async def test_signing_in_is_by_name_or_address_in_any_case(harness: ScoreboardHarness) -> None:
    name, _ = await signed_up(harness)
    for login in (name, name.upper(), f"{name}@Example.com"):
        told = (
            await harness.send("POST", "/auth/login", {"login": login, "password": PASSWORD})
        ).data
        assert (await me(harness, told["tokens"]["access_token"])).status == 200


async def test_a_wrong_password_and_an_unknown_name_get_the_same_answer(
    harness: ScoreboardHarness,
) -> None:
    """The same words, and a password is hashed for both, so that neither tells who has an account."""
    name, _ = await signed_up(harness)
    answers, times = [], []
    for login in (name, "nobody_at_all"):
        begun = time.perf_counter()
        answers.append(
            await harness.send(
                "POST", "/auth/login", {"login": login, "password": "wrong password"}
            )
        )
        times.append(time.perf_counter() - begun)
        expect_error(answers[-1], 401, "UNAUTHORIZED")
    assert answers[0].body == answers[1].body
    assert min(times) > 0.005, "a hash takes longer than that"


async def test_a_refresh_token_works_once_and_the_old_access_token_ends_with_it(
    harness: ScoreboardHarness,
) -> None:
    player = await harness.player()
    told = (
        await harness.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token})
    ).data
    assert (await me(harness, told["access_token"])).status == 200
    expect_error(await me(harness, player.token), 401, "SESSION_REVOKED")


async def test_a_refresh_token_that_comes_twice_ends_the_session_for_both(
    harness: ScoreboardHarness,
) -> None:
    """One of the two has stolen it, and nobody knows which."""
    player = await harness.player()
    told = (
        await harness.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token})
    ).data
    expect_error(
        await harness.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token}),
        401,
        "UNAUTHORIZED",
    )
    expect_error(await me(harness, told["access_token"]), 401, "SESSION_REVOKED")
    expect_error(
        await harness.send("POST", "/auth/refresh", {"refresh_token": told["refresh_token"]}),
        401,
        "UNAUTHORIZED",
    )


async def test_of_many_who_refresh_at_once_at_most_one_gets_tokens(
    harness: ScoreboardHarness,
) -> None:
    player = await harness.player()
    body = {"refresh_token": player.refresh_token}
    answers = await asyncio.gather(
        *(harness.send("POST", "/auth/refresh", body) for _ in range(20))
    )
    assert sorted(answer.status for answer in answers) == [200] + [401] * 19


async def test_signing_out_ends_the_session_at_once(harness: ScoreboardHarness) -> None:
    """The access token and the refresh token both, though the first would have held for minutes."""
    player = await harness.player()
    assert (await me(harness, player.token)).status == 200
    assert (await harness.send("POST", "/auth/logout", token=player.token)).status == 204
    expect_error(await me(harness, player.token), 401, "SESSION_REVOKED")
    expect_error(
        await harness.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token}),
        401,
        "UNAUTHORIZED",
    )


async def test_sessions_are_listed_and_ended_one_by_one(harness: ScoreboardHarness) -> None:
    name, first = await signed_up(harness)
    second = (await harness.send("POST", "/auth/login", {"login": name, "password": PASSWORD})).data
    token = second["tokens"]["access_token"]
    listed = (await harness.send("GET", "/auth/sessions", token=token)).data["sessions"]
    assert [(each["session_id"], each["is_current"]) for each in listed] == [
        (second["tokens"]["session_id"], True),
        (first["tokens"]["session_id"], False),
    ]
    assert {each["ip_address"] for each in listed} == {"127.0.0.1"}
    gone = f"/auth/sessions/{first['tokens']['session_id']}"
    assert (await harness.send("DELETE", gone, token=token)).status == 204
    expect_error(await me(harness, first["tokens"]["access_token"]), 401, "SESSION_REVOKED")
    assert (await me(harness, token)).status == 200
    expect_error(await harness.send("DELETE", gone, token=token), 404, "SESSION_NOT_FOUND")
    expect_error(
        await harness.send("DELETE", "/auth/sessions/x", token=token), 400, "VALIDATION_ERROR"
    )


async def test_nobody_ends_the_session_of_another(harness: ScoreboardHarness) -> None:
    player, other = await harness.player(), await harness.player()
    [session] = (await harness.send("GET", "/auth/sessions", token=player.token)).data["sessions"]
    answer = await harness.send(
        "DELETE", f"/auth/sessions/{session['session_id']}", token=other.token
    )
    expect_error(answer, 404, "SESSION_NOT_FOUND")
    assert (await me(harness, player.token)).status == 200


def part(content: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


async def test_an_access_token_that_is_not_ours_is_refused(harness: ScoreboardHarness) -> None:
    """Without a signature, of another key, for another audience, of another issuer, changed, or none at all."""
    player = await harness.player()
    claims = jwt.decode(player.token, options={"verify_signature": False})
    head = jwt.get_unverified_header(player.token)
    key, stranger = (
        Key.of(SESSION_KEY).reveal(),
        Key.of(Secret("a key of somebody else, of 32 characters")).reveal(),
    )
    wrong = {
        "alg none": f"{part(head | {'alg': 'none'})}.{part(claims)}.",
        "alg none, signed": f"{part(head | {'alg': 'none'})}.{part(claims)}.{player.token.rpartition('.')[2]}",
        "wrong key": jwt.encode(claims, stranger, "HS256", head),
        "wrong audience": jwt.encode(claims | {"aud": "collect"}, key, "HS256", head),
        "wrong issuer": jwt.encode(claims | {"iss": "somebody"}, key, "HS256", head),
        "another person": f"{part(head)}.{part(claims | {'sub': new_uuid()})}.{player.token.rpartition('.')[2]}",
        "an action token": await harness.complete_action(player),
        "no token": "x",
    }
    for what, token in wrong.items():
        answer = await me(harness, token)
        assert (what, answer.status) == (what, 401)
        expect_error(answer, 401, "UNAUTHORIZED")
    expect_error(await harness.send("GET", "/scores/me"), 401, "UNAUTHORIZED")
    assert (await me(harness, player.token)).status == 200


async def test_a_token_that_we_signed_without_a_session_is_refused(
    harness: ScoreboardHarness,
) -> None:
    """A signature alone opens nothing: who has stolen the key still has no session."""
    player = await harness.player()
    claims = jwt.decode(player.token, options={"verify_signature": False}) | {"jti": new_uuid()}
    made = jwt.encode(
        claims, Key.of(SESSION_KEY).reveal(), "HS256", jwt.get_unverified_header(player.token)
    )
    expect_error(await me(harness, made), 401, "SESSION_REVOKED")


async def test_an_access_token_expires_and_is_renewed(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    async with run_scoreboard(
        server_settings(await shared_servers.allocate(), tmp_path), ManualClock()
    ) as harness:
        player = await harness.player()
        harness.skip_time(899)
        assert (await me(harness, player.token)).status == 200
        harness.skip_time(1)
        expect_error(await me(harness, player.token), 401, "TOKEN_EXPIRED")
        told = (
            await harness.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token})
        ).data
        assert (await me(harness, told["access_token"])).status == 200
        harness.skip_time(30 * 86_400)
        late = await harness.send("POST", "/auth/refresh", {"refresh_token": told["refresh_token"]})
        expect_error(late, 401, "UNAUTHORIZED")


async def test_who_leaves_is_gone_and_the_history_stays_without_a_name(
    fresh_harness: ScoreboardHarness,
) -> None:
    """Account, score and sessions are deleted, the board closes the gap, and the events belong to nobody."""
    ana, ben = await fresh_harness.player("ana"), await fresh_harness.player("ben")
    await fresh_harness.score(ana, 50)
    await fresh_harness.score(ben, 20)
    assert (await fresh_harness.send("DELETE", "/users/me", token=ana.token)).status == 204
    expect_error(await me(fresh_harness, ana.token), 401, "SESSION_REVOKED")
    shown = await fresh_harness.leaderboard()
    assert [(place["rank"], place["username"]) for place in shown["leaderboard"]] == [(1, "ben")]
    assert shown["total_players"] == 1
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
    assert (await fresh_harness.admin("GET", "/drift")).data["found"] == 0


async def test_an_account_can_be_made_again_after_it_was_deleted(
    harness: ScoreboardHarness,
) -> None:
    name, told = await signed_up(harness)
    assert (
        await harness.send("DELETE", "/users/me", token=told["tokens"]["access_token"])
    ).status == 204
    assert (await harness.send("POST", "/auth/register", registration(name))).status == 201
