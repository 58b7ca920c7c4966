"""Sign-in, sessions, CSRF protection and the audit search."""

from pathlib import Path

import pytest

from tally.sim.oidc.flaws import TokenFlaw
from tests.collect.server_harness import ADMIN, Browser, CollectServer, assert_error, open_server

CHANGES = (
    "POST /auth/logout",
    "DELETE /strava/connection",
    "POST /milestones",
    "POST /milestones/X/recompute",
    "DELETE /account",
    "DELETE /sessions",
    "DELETE /sessions/X",
)


@pytest.fixture(scope="session")
async def kim(server: CollectServer) -> Browser:
    """A user who stays signed in."""
    browser = server.browser()
    await server.sign_in(browser, "Kim")
    return browser


async def test_the_first_sign_in_creates_an_account_and_an_http_only_cookie(
    server: CollectServer,
) -> None:
    """The cookie is HttpOnly, Secure, SameSite=Lax and valid for 30 days."""
    browser = server.browser()
    assert_error(await browser.get("/me"), 401, "invalid_session")
    response = await server.sign_in(browser, "Ana")
    assert response.status == 303
    assert response.header("location") == "/collect/me"
    cookie = response.cookies["cc_session"].lower()
    for attribute in ("httponly", "secure", "samesite=lax", "max-age=2592000", "path=/"):
        assert attribute in cookie
    me = (await browser.get("/me")).json
    assert me["email"].startswith("ana")
    assert me["plan"] == "free"
    assert me["strava"] == {
        "connected": False,
        "athleteId": None,
        "scope": None,
        "connectedAtUtc": None,
        "needsRelink": False,
        "lastSyncedAtUtc": None,
        "isSyncing": False,
    }
    assert me["counts"] == {"workouts": 0, "milestones": 0, "awards": 0, "hasMoreWorkouts": False}
    events = await server.audit(f"user={me['userId']}")
    assert [event["eventType"] for event in events] == ["AUTH_REGISTERED"]
    assert events[0]["ipHash"]
    assert "127.0.0.1" not in str(events)


async def test_a_second_sign_in_creates_a_new_session_for_the_same_user(
    server: CollectServer,
) -> None:
    """The former session ends, which prevents session fixation."""
    browser = server.browser()
    await server.sign_in(browser, "Bea")
    first, me = browser.session, (await browser.get("/me")).json
    await server.sign_in(browser, "Bea")
    assert browser.session != first
    assert (await browser.get("/me")).json == me
    old = Browser(
        server.client, server.url, {server.url.split("/")[2]: {"cc_session": first or ""}}
    )
    assert_error(await old.get("/me"), 401, "invalid_session")


async def test_a_planted_session_id_is_not_adopted(server: CollectServer) -> None:
    """A session id from before the sign-in is useless afterwards."""
    browser = server.browser()
    browser.jar[server.url.split("/")[2]] = {"cc_session": "planted"}
    await server.sign_in(browser, "Cleo")
    assert browser.session not in {None, "planted"}
    planted = Browser(
        server.client, server.url, {server.url.split("/")[2]: {"cc_session": "planted"}}
    )
    assert_error(await planted.get("/me"), 401, "invalid_session")


async def test_signing_out_ends_the_session(server: CollectServer) -> None:
    """The cookie is cleared, and a copy of it is invalid."""
    browser = server.browser()
    await server.sign_in(browser, "Dora")
    copy = Browser(
        server.client, server.url, {server.url.split("/")[2]: {"cc_session": browser.session or ""}}
    )
    assert (await browser.send("POST", "/auth/logout")).status == 204
    assert browser.session is None
    assert_error(await copy.get("/me"), 401, "invalid_session")


async def test_a_session_expires_after_thirty_days(fresh_server: CollectServer) -> None:
    """To the second, whether or not TTL has deleted the item."""
    browser = fresh_server.browser()
    await fresh_server.sign_in(browser, "Eva")
    fresh_server.skip_time(30 * 86_400 - 1)
    assert (await browser.get("/me")).status == 200
    fresh_server.skip_time(1)
    assert_error(await browser.get("/me"), 401, "invalid_session")


@pytest.mark.parametrize("flaw", list(TokenFlaw))
async def test_a_forged_id_token_is_rejected(server: CollectServer, flaw: TokenFlaw) -> None:
    """Flaws in key, issuer, audience, nonce, use, times and signature are detected."""
    browser = server.browser()
    server.oidc.flaws.append(flaw)
    response = await server.sign_in(browser, "Mallory")
    assert response.status == 401, response
    assert browser.session is None
    assert server.oidc.flaws == []


async def test_a_state_is_valid_once(server: CollectServer) -> None:
    """A replayed callback is rejected."""
    browser = server.browser()
    begun = await browser.get("/auth/login")
    cookies = dict(browser.jar[server.url.split("/")[2]])
    agreed = await browser.get(f"{begun.header('location')}&login_hint=Fay")
    assert (await browser.follow(agreed, server.oidc.url)).status == 303
    browser.jar[server.url.split("/")[2]] = cookies
    assert_error(await browser.follow(agreed, server.oidc.url), 400, "invalid_state")


async def test_a_sign_in_is_bound_to_the_browser_that_started_it(server: CollectServer) -> None:
    """A callback URL does not work in another browser, and remains valid in the first one."""
    attacker, victim = server.browser(), server.browser()
    begun = await attacker.get("/auth/login")
    agreed = await attacker.get(f"{begun.header('location')}&login_hint=Gil")
    assert_error(await victim.follow(agreed, server.oidc.url), 400, "invalid_state")
    assert victim.session is None
    assert (await attacker.follow(agreed, server.oidc.url)).status == 303


async def test_a_state_expires_after_ten_minutes(fresh_server: CollectServer) -> None:
    """The callback is then rejected."""
    browser = fresh_server.browser()
    begun = await browser.get("/auth/login")
    fresh_server.skip_time(600)
    response = await fresh_server.return_from_provider(browser, begun, "Hal")
    assert_error(response, 400, "invalid_state")


@pytest.mark.parametrize("state", ["", "x", "x" * 5000, "%F0%9F%98%80"])
async def test_an_unknown_state_is_rejected(server: CollectServer, state: str) -> None:
    """No input causes a 5xx."""
    assert_error(
        await server.browser().get(f"/auth/callback?code=c&state={state}"), 400, "invalid_state"
    )


async def test_a_rejection_by_the_provider_is_reported(server: CollectServer) -> None:
    """A callback without a code fails with 401."""
    assert_error(
        await server.browser().get("/auth/callback?error=access_denied&state=s"),
        401,
        "login_refused",
    )


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/%5Cevil",
        "evil",
        "/a%0d%0ab",
        "javascript:alert(1)",
        "/%09/x",
    ],
)
async def test_open_redirects_are_rejected(kim: Browser, path: str) -> None:
    """return_to must be a path of this site."""
    for path_to_start in ("/auth/login", "/strava/connect"):
        response = await kim.get(f"{path_to_start}?return_to={path}")
        assert_error(response, 400, "invalid_field")
        assert response.header("location") is None


async def test_sign_in_redirects_to_return_to(server: CollectServer) -> None:
    """Including its query."""
    browser = server.browser()
    begun = await browser.get("/auth/login?return_to=/console?tab=2")
    assert (await server.return_from_provider(browser, begun, "Jan")).header(
        "location"
    ) == "/console?tab=2"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "X-Requested-With": "x"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "{own}"},
    ],
)
async def test_cross_site_requests_are_rejected(
    kim: Browser, change: str, headers: dict[str, str]
) -> None:
    """Every state-changing route rejects them, even with a valid cookie."""
    method, path = change.split()
    own = kim.url.removesuffix("/collect")
    sent = {name: value.replace("{own}", own) for name, value in headers.items()}
    assert_error(await kim.send(method, path, headers=sent), 403, "cross_site_request")
    assert (await kim.get("/me")).status == 200


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "same-origin"}, {"X-Requested-With": "curl"}, None]
)
async def test_same_site_pages_and_programs_may_change_state(
    server: CollectServer, headers: dict[str, str] | None
) -> None:
    """Proven by fetch metadata, Origin or X-Requested-With."""
    browser = server.browser()
    await server.sign_in(browser, "Lea")
    assert (await browser.send("POST", "/auth/logout", headers=headers)).status == 204


async def test_the_audit_search_requires_the_operator_token(server: CollectServer) -> None:
    """And exactly one search key."""
    browser = server.browser()
    await server.sign_in(browser, "Max")
    assert_error(await browser.get("/admin/audit?user=x"), 401, "missing_token")
    bad = {"Authorization": "Bearer nonsense"}
    assert_error(
        await browser.send("GET", "/admin/audit?user=x", headers=bad), 401, "invalid_token"
    )
    good = {"Authorization": f"Bearer {ADMIN}"}
    for query in ("", "user=a&event=b", "user=a&month=202601", "event=a&month=2026", "user="):
        assert_error(
            await browser.send("GET", f"/admin/audit?{query}", headers=good), 400, "invalid_field"
        )
    month = server.clock.now().strftime("%Y%m")
    events = await server.audit(f"event=AUTH_REGISTERED&month={month}&limit=2")
    assert len(events) == 2


async def test_missing_configuration_is_reported(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The remaining routes work without an OIDC provider and Strava."""
    folder = tmp_path_factory.mktemp("bare")
    async with open_server(
        folder, collect_oidc_issuer=None, collect_strava_client_secret=None
    ) as server:
        assert_error(await server.browser().get("/auth/login"), 503, "login_not_set_up")
        assert (await server.browser().get("/models")).status == 200
        assert (await server.browser().get("/health")).status == 200
        assert (await server.browser().get("/health/ready")).status == 200


async def test_an_address_starts_a_limited_number_of_sign_ins_and_links(tmp_path: Path) -> None:
    """Each stores a state, and anybody can start a sign-in."""
    async with open_server(tmp_path, collect_sign_in_limit=4) as server:
        ann = await server.create_user()  # a sign-in and a link
        assert (await ann.browser.get("/strava/connect")).status == 302
        last = await server.browser().get("/auth/login")
        assert (last.status, last.header("ratelimit-remaining")) == (302, "0")
        for path in ("/auth/login", "/strava/connect"):
            refused = await ann.browser.get(path)
            assert_error(refused, 429, "rate_limit_exceeded")
            assert refused.header("retry-after") == "15"
        server.skip_time(15)
        assert (await server.browser().get("/auth/login")).status == 302
