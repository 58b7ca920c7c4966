"""Sign-in and sessions: the way in, the way out, and everything that must not get in."""

import pytest

from tally.sim.oidc.flaws import TokenFlaw
from tests.collect.club import ADMIN, Browser, Club, expect_refused, open_club

CHANGES = (
    "POST /auth/logout",
    "DELETE /strava/connection",
    "POST /milestones",
    "POST /milestones/X/recompute",
    "DELETE /account",
)


@pytest.fixture(scope="session")
async def kim(club: Club) -> Browser:
    """Somebody who is signed in, and stays so."""
    browser = club.browser()
    await club.sign_in(browser, "Kim")
    return browser


async def test_the_first_sign_in_makes_an_account_and_a_cookie_that_scripts_cannot_read(
    club: Club,
) -> None:
    """HttpOnly, Secure, SameSite=Lax, thirty days; then the person is known."""
    browser = club.browser()
    expect_refused(await browser.get("/me"), 401, "invalid_session")
    answer = await club.sign_in(browser, "Ana")
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
    events = await club.audit(f"user={me['userId']}")
    assert [event["eventType"] for event in events] == ["AUTH_REGISTERED"]
    assert events[0]["ipHash"]
    assert "127.0.0.1" not in str(events)


async def test_a_second_sign_in_is_the_same_person_with_another_session(club: Club) -> None:
    """The id changes with every sign-in, and the one before is over: nobody can be given a session in advance."""
    browser = club.browser()
    await club.sign_in(browser, "Bea")
    first, me = browser.session, (await browser.get("/me")).json
    await club.sign_in(browser, "Bea")
    assert browser.session != first
    assert (await browser.get("/me")).json == me
    old = Browser(club.client, club.url, {club.url.split("/")[2]: {"cc_session": first or ""}})
    expect_refused(await old.get("/me"), 401, "invalid_session")


async def test_a_planted_session_id_is_not_taken_over(club: Club) -> None:
    """Whoever knows the id that a browser had before the sign-in knows nothing afterwards."""
    browser = club.browser()
    browser.jar[club.url.split("/")[2]] = {"cc_session": "planted"}
    await club.sign_in(browser, "Cleo")
    assert browser.session not in {None, "planted"}
    planted = Browser(club.client, club.url, {club.url.split("/")[2]: {"cc_session": "planted"}})
    expect_refused(await planted.get("/me"), 401, "invalid_session")


async def test_signing_out_ends_the_session_here_and_there(club: Club) -> None:
    """The cookie is taken back, and a copy of it is worth nothing."""
    browser = club.browser()
    await club.sign_in(browser, "Dora")
    copy = Browser(
        club.client, club.url, {club.url.split("/")[2]: {"cc_session": browser.session or ""}}
    )
    assert (await browser.send("POST", "/auth/logout")).status == 204
    assert browser.session is None
    expect_refused(await copy.get("/me"), 401, "invalid_session")


async def test_a_session_is_over_after_thirty_days(fresh: Club) -> None:
    """To the second, whether or not anything was swept."""
    browser = fresh.browser()
    await fresh.sign_in(browser, "Eva")
    fresh.leap(30 * 86_400 - 1)
    assert (await browser.get("/me")).status == 200
    fresh.leap(1)
    expect_refused(await browser.get("/me"), 401, "invalid_session")


@pytest.mark.parametrize("flaw", list(TokenFlaw))
async def test_a_forged_id_token_lets_nobody_in(club: Club, flaw: TokenFlaw) -> None:
    """Whatever is wrong with it: key, issuer, audience, nonce, use, time or signature."""
    browser = club.browser()
    club.issuer.flaws.append(flaw)
    answer = await club.sign_in(browser, "Mallory")
    assert answer.status == 401, answer
    assert browser.session is None
    assert club.issuer.flaws == []


async def test_a_state_works_once(club: Club) -> None:
    """A replayed callback is refused, though everything in it was right the first time."""
    browser = club.browser()
    begun = await browser.get("/auth/login")
    cookies = dict(browser.jar[club.url.split("/")[2]])
    agreed = await browser.get(f"{begun.header('location')}&login_hint=Fay")
    assert (await browser.follow(agreed, club.issuer.url)).status == 303
    browser.jar[club.url.split("/")[2]] = cookies
    expect_refused(await browser.follow(agreed, club.issuer.url), 400, "invalid_state")


async def test_a_sign_in_ends_in_the_browser_that_began_it(club: Club) -> None:
    """A link to a finished sign-in, sent to somebody else, signs nobody in; and it is not spoiled for its owner."""
    attacker, victim = club.browser(), club.browser()
    begun = await attacker.get("/auth/login")
    agreed = await attacker.get(f"{begun.header('location')}&login_hint=Gil")
    expect_refused(await victim.follow(agreed, club.issuer.url), 400, "invalid_state")
    assert victim.session is None
    assert (await attacker.follow(agreed, club.issuer.url)).status == 303


async def test_a_sign_in_must_end_within_ten_minutes(fresh: Club) -> None:
    """A state that is older is worth nothing."""
    browser = fresh.browser()
    begun = await browser.get("/auth/login")
    fresh.leap(600)
    answer = await fresh.return_from_issuer(browser, begun, "Hal")
    expect_refused(answer, 400, "invalid_state")


@pytest.mark.parametrize("state", ["", "x", "x" * 5000, "%F0%9F%98%80"])
async def test_a_made_up_state_is_refused(club: Club, state: str) -> None:
    """Nothing that a client sends makes a 5xx."""
    expect_refused(
        await club.browser().get(f"/auth/callback?code=c&state={state}"), 400, "invalid_state"
    )


async def test_a_refusal_of_the_issuer_is_told(club: Club) -> None:
    """With no code there is nothing to try."""
    expect_refused(
        await club.browser().get("/auth/callback?error=access_denied&state=s"), 401, "login_refused"
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
        expect_refused(answer, 400, "invalid_field")
        assert answer.header("location") is None


async def test_a_good_path_is_where_one_ends(club: Club) -> None:
    """Query and all."""
    browser = club.browser()
    begun = await browser.get("/auth/login?return_to=/console?tab=2")
    assert (await club.return_from_issuer(browser, begun, "Jan")).header(
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
    expect_refused(await kim.send(method, path, headers=told), 403, "cross_site_request")
    assert (await kim.get("/me")).status == 200


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "same-origin"}, {"X-Requested-With": "curl"}, None]
)
async def test_the_sites_own_pages_and_programs_may_change_things(
    club: Club, headers: dict[str, str] | None
) -> None:
    """By what browsers say, or by a header that foreign pages cannot send."""
    browser = club.browser()
    await club.sign_in(browser, "Lea")
    assert (await browser.send("POST", "/auth/logout", headers=headers)).status == 204


async def test_audit_look_ups_are_for_operators(club: Club) -> None:
    """By a token of their own, and by exactly one key."""
    browser = club.browser()
    await club.sign_in(browser, "Max")
    expect_refused(await browser.get("/admin/audit?user=x"), 401, "missing_token")
    bad = {"Authorization": "Bearer nonsense"}
    expect_refused(
        await browser.send("GET", "/admin/audit?user=x", headers=bad), 401, "invalid_token"
    )
    good = {"Authorization": f"Bearer {ADMIN}"}
    for query in ("", "user=a&event=b", "user=a&month=202601", "event=a&month=2026", "user="):
        expect_refused(
            await browser.send("GET", f"/admin/audit?{query}", headers=good), 400, "invalid_field"
        )
    month = club.clock.now().strftime("%Y%m")
    events = await club.audit(f"event=AUTH_REGISTERED&month={month}&limit=2")
    assert len(events) == 2


async def test_no_issuer_and_no_strava_are_said_clearly(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A server that was not set up yet serves what it can."""
    folder = tmp_path_factory.mktemp("bare")
    async with open_club(
        folder, collect_oidc_issuer=None, collect_strava_client_secret=None
    ) as club:
        expect_refused(await club.browser().get("/auth/login"), 503, "login_not_set_up")
        assert (await club.browser().get("/models")).status == 200
        assert (await club.browser().get("/health")).status == 200
        assert (await club.browser().get("/health/ready")).status == 200
