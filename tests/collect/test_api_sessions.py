"""Users list their sessions and sign out of one, of all, and only of their own."""

import asyncio
from typing import Any

import pytest

from tally.collect.model.records import LAST_USE_SECONDS
from tally.collect.repository.sessions import COMMIT_COLLECT_SESSIONS
from tally.collect.repository.table import COMMIT_COLLECT, PROFILE, item_key, user_pk
from tally.store.api import Update
from tally.store.expressions import F
from tests.collect.server_harness import Browser, CollectServer, assert_error

UNKNOWN_IDS = ("0" * 32, "x", "%00", "a" * 5000, "..%2F..")


async def signed_in(server: CollectServer, name: str) -> Browser:
    browser = server.browser()
    assert (await server.sign_in(browser, name)).status == 303
    return browser


async def listed(browser: Browser) -> list[dict[str, Any]]:
    response = await browser.get("/sessions")
    assert response.status == 200, response
    assert response.header("cache-control") == "no-store"
    return list(response.json["items"])


async def own_id(browser: Browser) -> str:
    (current,) = [session for session in await listed(browser) if session["current"]]
    return str(current["sessionId"])


async def test_the_list_has_all_sessions_of_the_user_and_no_secret(server: CollectServer) -> None:
    """The one of the request is marked; those of others are absent."""
    phone, laptop = [await signed_in(server, "Sol") for _ in range(2)]
    await signed_in(server, "Tom")
    sessions = await listed(phone)
    assert len(sessions) == 2
    assert [session["current"] for session in sessions].count(True) == 1
    assert {session["sessionId"] for session in await listed(laptop)} == {
        session["sessionId"] for session in sessions
    }
    assert await own_id(phone) != await own_id(laptop)
    for session in sessions:
        assert session["createdAtUtc"] < session["expiresAtUtc"]
        assert session["lastUsedAtUtc"] == session["createdAtUtc"]
    stored = str(await server.scan_table(COMMIT_COLLECT_SESSIONS))
    for session in sessions:  # neither the cookie nor the key of the item
        assert session["sessionId"] not in stored
        assert session["sessionId"] not in {phone.session, laptop.session}


async def test_the_id_of_a_session_does_not_sign_in(server: CollectServer) -> None:
    browser = await signed_in(server, "Uma")
    other = server.browser()
    other.jar[server.url.split("/")[2]] = {"cc_session": await own_id(browser)}
    assert_error(await other.get("/me"), 401, "invalid_session")


async def test_signing_out_of_one_session_leaves_the_others(server: CollectServer) -> None:
    phone, laptop = [await signed_in(server, "Vic") for _ in range(2)]
    assert (await laptop.send("DELETE", f"/sessions/{await own_id(phone)}")).status == 204
    assert_error(await phone.get("/me"), 401, "invalid_session")
    assert (await laptop.get("/me")).status == 200
    assert laptop.session is not None
    assert len(await listed(laptop)) == 1


async def test_signing_out_of_the_current_session_clears_the_cookie(server: CollectServer) -> None:
    phone = await signed_in(server, "Wes")
    assert (await phone.send("DELETE", f"/sessions/{await own_id(phone)}")).status == 204
    assert phone.session is None


async def test_sessions_of_other_users_do_not_exist(server: CollectServer) -> None:
    """Neither do unknown, malformed and ended ones, whatever the id contains."""
    ann, bob = await signed_in(server, "Xia"), await signed_in(server, "Yul")
    foreign = await own_id(bob)
    for session_id in (foreign, *UNKNOWN_IDS):
        response = await ann.send("DELETE", f"/sessions/{session_id}")
        assert_error(response, 404, "not_found" if "%2F" in session_id else "session_not_found")
    assert (await bob.get("/me")).status == 200
    second = await signed_in(server, "Yul")
    assert (await second.send("DELETE", f"/sessions/{foreign}")).status == 204
    assert_error(await second.send("DELETE", f"/sessions/{foreign}"), 404, "session_not_found")


async def test_signing_out_everywhere_ends_every_session(server: CollectServer) -> None:
    """Of this user only. A later sign-in works."""
    browsers = [await signed_in(server, "Zed") for _ in range(3)]
    bystander = await signed_in(server, "Amy")
    assert (await browsers[0].send("DELETE", "/sessions")).status == 204
    assert browsers[0].session is None
    for browser in browsers[1:]:
        assert_error(await browser.get("/me"), 401, "invalid_session")
    assert (await bystander.get("/me")).status == 200
    again = await signed_in(server, "Zed")
    assert len(await listed(again)) == 1
    me = (await again.get("/me")).json
    kinds = [event["eventType"] for event in await server.audit(f"user={me['userId']}")]
    assert "AUTH_ALL_SESSIONS_ENDED" in kinds


async def test_a_session_that_the_index_missed_ends_with_the_others(
    server: CollectServer,
) -> None:
    """The index of DynamoDB is eventually consistent; the epoch of the profile is not."""
    browser, other = [await signed_in(server, "Bo") for _ in range(2)]
    services = server.collect.services
    missed = await services.sign_in.resolve(other.session)
    assert (await browser.send("DELETE", "/sessions")).status == 204
    await services.sessions.sessions.create(missed)
    assert_error(await other.get("/me"), 401, "invalid_session")
    assert await services.sign_in.find_active([missed.session_hash]) == set()
    again = await signed_in(server, "Bo")
    assert len(await listed(again)) == 1


async def test_the_last_use_is_recorded_once_an_hour(fresh_server: CollectServer) -> None:
    browser = await signed_in(fresh_server, "Cy")
    (first,) = await listed(browser)
    fresh_server.skip_time(LAST_USE_SECONDS - 1)
    (second,) = await listed(browser)
    assert second == first
    fresh_server.skip_time(1)
    await browser.get("/me")
    (third,) = await listed(browser)
    assert third["lastUsedAtUtc"] > first["lastUsedAtUtc"]
    assert third["expiresAtUtc"] == first["expiresAtUtc"]
    assert (await fresh_server.patterns())["Record use of session"]["calls"] == 1


async def test_expired_sessions_are_not_listed(fresh_server: CollectServer) -> None:
    await signed_in(fresh_server, "Di")
    fresh_server.skip_time(29 * 86_400)
    later = await signed_in(fresh_server, "Di")
    fresh_server.skip_time(2 * 86_400)
    assert len(await listed(later)) == 1


async def test_sessions_and_profiles_of_the_former_format_stay_valid(
    server: CollectServer,
) -> None:
    """They have neither an epoch nor a time of use; signing out everywhere ends them too."""
    browser, other = [await signed_in(server, "Ed") for _ in range(2)]
    engine = server.application.engine
    user_id = (await browser.get("/me")).json["userId"]
    await engine.update(
        Update(COMMIT_COLLECT, item_key(user_pk(user_id), PROFILE), (F("sessionEpoch").remove(),))
    )
    for item in await server.scan_table(COMMIT_COLLECT_SESSIONS):
        if item.get("userId") == user_id:
            actions = (F("sessionEpoch").remove(), F("lastUsedAt").remove())
            key = {"PK": item["PK"], "SK": item["SK"]}
            await engine.update(Update(COMMIT_COLLECT_SESSIONS, key, actions))
    assert len(await listed(browser)) == 2
    assert (await other.get("/me")).status == 200
    assert (await browser.send("DELETE", "/sessions")).status == 204
    assert_error(await other.get("/me"), 401, "invalid_session")


async def test_a_session_that_ends_while_it_is_used_does_not_return(
    fresh_server: CollectServer,
) -> None:
    """Recording the use of a session must not create its item again."""
    browser = await signed_in(fresh_server, "Flo")
    copy = Browser(
        browser.client, browser.url, {key: dict(jar) for key, jar in browser.jar.items()}
    )
    fresh_server.skip_time(LAST_USE_SECONDS)
    await asyncio.gather(
        copy.send("POST", "/auth/logout"), *(browser.get("/me") for _ in range(10))
    )
    assert_error(await browser.get("/me"), 401, "invalid_session")
    assert await fresh_server.scan_table(COMMIT_COLLECT_SESSIONS) == [
        item
        for item in await fresh_server.scan_table(COMMIT_COLLECT_SESSIONS)
        if str(item["PK"]).startswith("STATE#")
    ]


@pytest.mark.parametrize("path", ["/sessions", "/account/export"])
async def test_reading_requires_a_session(server: CollectServer, path: str) -> None:
    assert_error(await server.browser().get(path), 401, "invalid_session")
