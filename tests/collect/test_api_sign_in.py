"""Sign-in and sessions: the way in, the way out, and everything that must not get in."""

import pytest

from tally.sim.oidc.flaws import TokenFlaw
from tests.collect.server_harness import ADMIN, Browser, CollectServer, assert_error, open_server

CHANGES = (
    "POST /auth/logout",
    "DELETE /strava/connection",
    "POST /milestones",
    "POST /milestones/X/recompute",
    "DELETE /account",
)


@pytest.fixture(scope="session")
async def kim(server: CollectServer) -> Browser:
    """Somebody who is signed in, and stays so."""
    browser = server.browser()
    await server.sign_in(browser, "Kim")
    return browser


async def test_the_first_sign_in_makes_an_account_and_a_cookie_that_scripts_cannot_read(
    server: CollectServer,
) -> None:
    """HttpOnly, Secure, SameSite=Lax, thirty days; then the person is known."""
    browser = server.browser()
    assert_error(await browser.get("/me"), 401, "invalid_session")
    answer = await server.sign_in(browser, "Ana")
    assert answer.status == 303
    assert answer.header("location") == "/collect/me"
    line = answer.cookies["cc_session"].lower()
    for word in ("httponly", "secure", "samesite=lax", "max-age=2592000", "path=/"):
        assert word in line
    me = (await browser.get("/me")).json
    assert me["email"].startswith("ana")
    assert me["plan"] == "free"
    assert me["strava"] == {
        "connected": False,
        "athleteId": None,
        "scope": None,
        "connectedAtUtc": None,
    }
    assert me["counts"] == {"workouts": 0, "milestones": 0, "awards": 0}
    events = await server.audit(f"user={me['userId']}")
    assert [event["eventType"] for event in events] == ["AUTH_REGISTERED"]
    assert events[0]["ipHash"]
    assert "127.0.0.1" not in str(events)


async def test_a_second_sign_in_is_the_same_person_with_another_session(
    server: CollectServer,
) -> None:
    """The id changes with every sign-in, and the one before is over: nobody can be given a session in advance."""
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


async def test_a_planted_session_id_is_not_taken_over(server: CollectServer) -> None:
    """Whoever knows the id that a browser had before the sign-in knows nothing afterwards."""
    browser = server.browser()
    browser.jar[server.url.split("/")[2]] = {"cc_session": "planted"}
    await server.sign_in(browser, "Cleo")
    assert browser.session not in {None, "planted"}
    planted = Browser(
        server.client, server.url, {server.url.split("/")[2]: {"cc_session": "planted"}}
    )
    assert_error(await planted.get("/me"), 401, "invalid_session")


async def test_signing_out_ends_the_session_here_and_there(server: CollectServer) -> None:
    """The cookie is taken back, and a copy of it is worth nothing."""
    browser = server.browser()
    await server.sign_in(browser, "Dora")
    copy = Browser(
        server.client, server.url, {server.url.split("/")[2]: {"cc_session": browser.session or ""}}
    )
    assert (await browser.send("POST", "/auth/logout")).status == 204
    assert browser.session is None
    assert_error(await copy.get("/me"), 401, "invalid_session")


async def test_a_session_is_over_after_thirty_days(fresh_server: CollectServer) -> None:
    """To the second, whether or not anything was swept."""
    browser = fresh_server.browser()
    await fresh_server.sign_in(browser, "Eva")
    fresh_server.skip_time(30 * 86_400 - 1)
    assert (await browser.get("/me")).status == 200
    fresh_server.skip_time(1)
    assert_error(await browser.get("/me"), 401, "invalid_session")


@pytest.mark.parametrize("flaw", list(TokenFlaw))
async def test_a_forged_id_token_lets_nobody_in(server: CollectServer, flaw: TokenFlaw) -> None:
    """Whatever is wrong with it: key, issuer, audience, nonce, use, time or signature."""
    browser = server.browser()
    server.oidc.flaws.append(flaw)
    answer = await server.sign_in(browser, "Mallory")
    assert answer.status == 401, answer
    assert browser.session is None
    assert server.oidc.flaws == []


async def test_a_state_works_once(server: CollectServer) -> None:
    """A replayed callback is refused, though everything in it was right the first time."""
    browser = server.browser()
    begun = await browser.get("/auth/login")
    cookies = dict(browser.jar[server.url.split("/")[2]])
    agreed = await browser.get(f"{begun.header('location')}&login_hint=Fay")
    assert (await browser.follow(agreed, server.oidc.url)).status == 303
    browser.jar[server.url.split("/")[2]] = cookies
    assert_error(await browser.follow(agreed, server.oidc.url), 400, "invalid_state")


async def test_a_sign_in_ends_in_the_browser_that_began_it(server: CollectServer) -> None:
    """A link to a finished sign-in, sent to somebody else, signs nobody in; and it is not spoiled for its owner."""
    attacker, victim = server.browser(), server.browser()
    begun = await attacker.get("/auth/login")
    agreed = await attacker.get(f"{begun.header('location')}&login_hint=Gil")
    assert_error(await victim.follow(agreed, server.oidc.url), 400, "invalid_state")
    assert victim.session is None
    assert (await attacker.follow(agreed, server.oidc.url)).status == 303


async def test_a_sign_in_must_end_within_ten_minutes(fresh_server: CollectServer) -> None:
    """A state that is older is worth nothing."""
    browser = fresh_server.browser()
    begun = await browser.get("/auth/login")
    fresh_server.skip_time(600)
    answer = await fresh_server.return_from_provider(browser, begun, "Hal")
    assert_error(answer, 400, "invalid_state")


@pytest.mark.parametrize("state", ["", "x", "x" * 5000, "%F0%9F%98%80"])
async def test_a_made_up_state_is_refused(server: CollectServer, state: str) -> None:
    """Nothing that a client sends makes a 5xx."""
    assert_error(
        await server.browser().get(f"/auth/callback?code=c&state={state}"), 400, "invalid_state"
    )


async def test_a_refusal_of_the_issuer_is_told(server: CollectServer) -> None:
    """With no code there is nothing to try."""
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
async def test_nobody_is_sent_to_another_site(kim: Browser, path: str) -> None:
    """return_to is a path of this site, or nothing happens."""
    for begun in ("/auth/login", "/strava/connect"):
        answer = await kim.get(f"{begun}?return_to={path}")
        assert_error(answer, 400, "invalid_field")
        assert answer.header("location") is None


async def test_a_good_path_is_where_one_ends(server: CollectServer) -> None:
    """Query and all."""
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
async def test_another_sites_page_changes_nothing(
    kim: Browser, change: str, headers: dict[str, str]
) -> None:
    """Every route that changes something refuses it, with the cookie and all."""
    method, path = change.split()
    own = kim.url.removesuffix("/collect")
    told = {name: value.replace("{own}", own) for name, value in headers.items()}
    assert_error(await kim.send(method, path, headers=told), 403, "cross_site_request")
    assert (await kim.get("/me")).status == 200


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "same-origin"}, {"X-Requested-With": "curl"}, None]
)
async def test_the_sites_own_pages_and_programs_may_change_things(
    server: CollectServer, headers: dict[str, str] | None
) -> None:
    """By what browsers say, or by a header that foreign pages cannot send."""
    browser = server.browser()
    await server.sign_in(browser, "Lea")
    assert (await browser.send("POST", "/auth/logout", headers=headers)).status == 204


async def test_audit_look_ups_are_for_operators(server: CollectServer) -> None:
    """By a token of their own, and by exactly one key."""
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


async def test_no_issuer_and_no_strava_are_said_clearly(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A server that was not set up yet serves what it can."""
    folder = tmp_path_factory.mktemp("bare")
    async with open_server(
        folder, collect_oidc_issuer=None, collect_strava_client_secret=None
    ) as server:
        assert_error(await server.browser().get("/auth/login"), 503, "login_not_set_up")
        assert (await server.browser().get("/models")).status == 200
        assert (await server.browser().get("/health")).status == 200
        assert (await server.browser().get("/health/ready")).status == 200
