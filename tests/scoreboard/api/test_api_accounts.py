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
    Answer,
    Arena,
    Json,
    expect_refused,
    running,
    settings_of,
)
from tests.scoreboard.api.servers import Ground

PASSWORD = "correct horse battery"


def registration(name: str, **changes: Any) -> Json:
    return {"username": name, "email": f"{name}@example.com", "password": PASSWORD} | changes


async def signed_up(arena: Arena) -> tuple[str, Json]:
    name = f"p_{new_uuid()[:8]}"
    answer = await arena.send("POST", "/auth/register", registration(name))
    assert answer.status == 201, answer
    return name, answer.data


async def me(arena: Arena, token: str) -> Answer:
    return await arena.send("GET", "/scores/me", token=token)


async def test_who_signs_up_is_signed_in_and_on_the_board(arena: Arena) -> None:
    name, told = await signed_up(arena)
    assert (told["user"]["username"], told["user"]["email"], told["user"]["avatar_url"]) == (
        name,
        f"{name}@example.com",
        None,
    )
    assert told["tokens"]["token_type"] == "Bearer"
    mine = (await me(arena, told["tokens"]["access_token"])).data
    assert (mine["username"], mine["score"]) == (name, 0)


async def test_names_and_addresses_are_taken_without_regard_to_case(arena: Arena) -> None:
    name, _ = await signed_up(arena)
    other = registration(f"q_{new_uuid()[:8]}")
    taken = await arena.send("POST", "/auth/register", other | {"username": name.upper()})
    expect_refused(taken, 409, "USERNAME_TAKEN", field="username")
    taken = await arena.send(
        "POST", "/auth/register", other | {"email": f"{name.upper()}@EXAMPLE.com"}
    )
    expect_refused(taken, 409, "EMAIL_TAKEN", field="email")
    assert (await arena.send("POST", "/auth/register", other)).status == 201


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
    arena: Arena, field: str, value: str
) -> None:
    answer = await arena.send(
        "POST", "/auth/register", registration(f"r_{new_uuid()[:8]}", **{field: value})
    )
    expect_refused(answer, 400, "VALIDATION_ERROR", field=field)


async def test_signing_in_is_by_name_or_address_in_any_case(arena: Arena) -> None:
    name, _ = await signed_up(arena)
    for login in (name, name.upper(), f"{name}@Example.com"):
        told = (
            await arena.send("POST", "/auth/login", {"login": login, "password": PASSWORD})
        ).data
        assert (await me(arena, told["tokens"]["access_token"])).status == 200


async def test_a_wrong_password_and_an_unknown_name_get_the_same_answer(arena: Arena) -> None:
    """The same words, and a password is hashed for both, so that neither tells who has an account."""
    name, _ = await signed_up(arena)
    answers, times = [], []
    for login in (name, "nobody_at_all"):
        begun = time.perf_counter()
        answers.append(
            await arena.send("POST", "/auth/login", {"login": login, "password": "wrong password"})
        )
        times.append(time.perf_counter() - begun)
        expect_refused(answers[-1], 401, "UNAUTHORIZED")
    assert answers[0].body == answers[1].body
    assert min(times) > 0.005, "a hash takes longer than that"


async def test_a_refresh_token_works_once_and_the_old_access_token_ends_with_it(
    arena: Arena,
) -> None:
    player = await arena.player()
    told = (await arena.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token})).data
    assert (await me(arena, told["access_token"])).status == 200
    expect_refused(await me(arena, player.token), 401, "SESSION_REVOKED")


async def test_a_refresh_token_that_comes_twice_ends_the_session_for_both(arena: Arena) -> None:
    """One of the two has stolen it, and nobody knows which."""
    player = await arena.player()
    told = (await arena.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token})).data
    expect_refused(
        await arena.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token}),
        401,
        "UNAUTHORIZED",
    )
    expect_refused(await me(arena, told["access_token"]), 401, "SESSION_REVOKED")
    expect_refused(
        await arena.send("POST", "/auth/refresh", {"refresh_token": told["refresh_token"]}),
        401,
        "UNAUTHORIZED",
    )


async def test_of_many_who_refresh_at_once_at_most_one_gets_tokens(arena: Arena) -> None:
    player = await arena.player()
    body = {"refresh_token": player.refresh_token}
    answers = await asyncio.gather(*(arena.send("POST", "/auth/refresh", body) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [200] + [401] * 19


async def test_signing_out_ends_the_session_at_once(arena: Arena) -> None:
    """The access token and the refresh token both, though the first would have held for minutes."""
    player = await arena.player()
    assert (await me(arena, player.token)).status == 200
    assert (await arena.send("POST", "/auth/logout", token=player.token)).status == 204
    expect_refused(await me(arena, player.token), 401, "SESSION_REVOKED")
    expect_refused(
        await arena.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token}),
        401,
        "UNAUTHORIZED",
    )


async def test_sessions_are_listed_and_ended_one_by_one(arena: Arena) -> None:
    name, first = await signed_up(arena)
    second = (await arena.send("POST", "/auth/login", {"login": name, "password": PASSWORD})).data
    token = second["tokens"]["access_token"]
    listed = (await arena.send("GET", "/auth/sessions", token=token)).data["sessions"]
    assert [(each["session_id"], each["is_current"]) for each in listed] == [
        (second["tokens"]["session_id"], True),
        (first["tokens"]["session_id"], False),
    ]
    assert {each["ip_address"] for each in listed} == {"127.0.0.1"}
    gone = f"/auth/sessions/{first['tokens']['session_id']}"
    assert (await arena.send("DELETE", gone, token=token)).status == 204
    expect_refused(await me(arena, first["tokens"]["access_token"]), 401, "SESSION_REVOKED")
    assert (await me(arena, token)).status == 200
    expect_refused(await arena.send("DELETE", gone, token=token), 404, "SESSION_NOT_FOUND")
    expect_refused(
        await arena.send("DELETE", "/auth/sessions/x", token=token), 400, "VALIDATION_ERROR"
    )


async def test_nobody_ends_the_session_of_another(arena: Arena) -> None:
    player, other = await arena.player(), await arena.player()
    [session] = (await arena.send("GET", "/auth/sessions", token=player.token)).data["sessions"]
    answer = await arena.send(
        "DELETE", f"/auth/sessions/{session['session_id']}", token=other.token
    )
    expect_refused(answer, 404, "SESSION_NOT_FOUND")
    assert (await me(arena, player.token)).status == 200


def part(content: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


async def test_an_access_token_that_is_not_ours_is_refused(arena: Arena) -> None:
    """Without a signature, of another key, for another audience, of another issuer, changed, or none at all."""
    player = await arena.player()
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
        "an action token": await arena.vouch(player),
        "no token": "x",
    }
    for what, token in wrong.items():
        answer = await me(arena, token)
        assert (what, answer.status) == (what, 401)
        expect_refused(answer, 401, "UNAUTHORIZED")
    expect_refused(await arena.send("GET", "/scores/me"), 401, "UNAUTHORIZED")
    assert (await me(arena, player.token)).status == 200


async def test_a_token_that_we_signed_without_a_session_is_refused(arena: Arena) -> None:
    """A signature alone opens nothing: who has stolen the key still has no session."""
    player = await arena.player()
    claims = jwt.decode(player.token, options={"verify_signature": False}) | {"jti": new_uuid()}
    made = jwt.encode(
        claims, Key.of(SESSION_KEY).reveal(), "HS256", jwt.get_unverified_header(player.token)
    )
    expect_refused(await me(arena, made), 401, "SESSION_REVOKED")


async def test_an_access_token_expires_and_is_renewed(ground: Ground, tmp_path: Path) -> None:
    async with running(settings_of(await ground.place(), tmp_path), ManualClock()) as arena:
        player = await arena.player()
        arena.leap(899)
        assert (await me(arena, player.token)).status == 200
        arena.leap(1)
        expect_refused(await me(arena, player.token), 401, "TOKEN_EXPIRED")
        told = (
            await arena.send("POST", "/auth/refresh", {"refresh_token": player.refresh_token})
        ).data
        assert (await me(arena, told["access_token"])).status == 200
        arena.leap(30 * 86_400)
        late = await arena.send("POST", "/auth/refresh", {"refresh_token": told["refresh_token"]})
        expect_refused(late, 401, "UNAUTHORIZED")


async def test_who_leaves_is_gone_and_the_history_stays_without_a_name(fresh: Arena) -> None:
    """Account, score and sessions are deleted, the board closes the gap, and the events belong to nobody."""
    ana, ben = await fresh.player("ana"), await fresh.player("ben")
    await fresh.score(ana, 50)
    await fresh.score(ben, 20)
    assert (await fresh.send("DELETE", "/users/me", token=ana.token)).status == 204
    expect_refused(await me(fresh, ana.token), 401, "SESSION_REVOKED")
    shown = await fresh.board()
    assert [(place["rank"], place["username"]) for place in shown["leaderboard"]] == [(1, "ben")]
    assert shown["total_players"] == 1
    database = fresh.scoreboard.database
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
    assert (await fresh.admin("GET", "/drift")).data["found"] == 0


async def test_an_account_can_be_made_again_after_it_was_deleted(arena: Arena) -> None:
    name, told = await signed_up(arena)
    assert (
        await arena.send("DELETE", "/users/me", token=told["tokens"]["access_token"])
    ).status == 204
    assert (await arena.send("POST", "/auth/register", registration(name))).status == 201
