"""The OIDC simulator behaves like Cognito and produces every error an application must handle."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import jwt
import pytest
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError

from tally.errors import Unauthenticated
from tally.kit.auth import KeySet, TokenVerifier, http_key_fetcher
from tally.kit.clock import ManualClock
from tally.sim.browser import Browser, query_parameters
from tally.sim.fault_injection import InjectedFault
from tally.sim.oidc.flaws import TokenFlaw
from tally.sim.oidc.grants import OAuthClient, pkce_challenge
from tally.sim.oidc.keys import SigningKeys
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.page_protection import CONTROL_HEADERS
from tally.sim.request_parsing import with_query
from tests.sim.responses import redirect_url, status_and_json

CALLBACK = "http://127.0.0.1:9/auth/callback"
VERIFIER = "a-verifier-that-only-the-application-knows-0123456789"
CLIENT_ID = "tally-collect"
SECRET = "made-up-client-secret"
AUTHORIZE_PARAMETERS = {
    "client_id": CLIENT_ID,
    "redirect_uri": CALLBACK,
    "response_type": "code",
    "scope": "openid email",
    "state": "state-1",
    "nonce": "nonce-1",
    "code_challenge": pkce_challenge(VERIFIER),
    "code_challenge_method": "S256",
}


@pytest.fixture(scope="module")
def keys() -> SigningKeys:
    return SigningKeys()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def http() -> AsyncIterator[Client]:
    async with ClientBuilder().follow_redirects(False).build() as client:
        yield client


@pytest.fixture
def browser(http: Client) -> Browser:
    return Browser(http)


@pytest.fixture
async def issuer(clock: ManualClock, keys: SigningKeys) -> AsyncIterator[OidcSimulator]:
    async with OidcSimulator(
        clock, keys=SigningKeys(keys.current), rng=random.Random(1)
    ).serving() as issuer:
        yield issuer


@pytest.fixture
def verifier(issuer: OidcSimulator, http: Client, clock: ManualClock) -> TokenVerifier:
    key_set = KeySet(
        http_key_fetcher(http, f"{issuer.issuer}/.well-known/jwks.json"), clock, min_interval=0
    )
    return TokenVerifier(key_set, clock, issuer=issuer.issuer, audience=CLIENT_ID)


async def log_in_for_code(
    issuer: OidcSimulator, browser: Browser, who: str = "Ana Silva", **parameters: str
) -> str:
    """Log in through the page as a user."""
    response = await browser.submit(
        f"{issuer.url}/login", AUTHORIZE_PARAMETERS | parameters | {"name": who}
    )
    return query_parameters(redirect_url(issuer.url, response))["code"]


async def exchange(
    issuer: OidcSimulator, http: Client, secret: str = SECRET, **sent: str
) -> tuple[int, Any]:
    form = {
        "grant_type": "authorization_code",
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
    } | sent
    request = http.post(f"{issuer.url}/oauth2/token").basic_auth(CLIENT_ID, secret).form(form)
    return await status_and_json(await request.build().send())


async def control(http: Client, url: str, body: Any) -> tuple[int, Any]:
    request = http.post(url).headers(CONTROL_HEADERS).body_json(body)
    response = await request.build().send()
    return response.status, (await response.json() if response.status != 204 else None)


async def test_discovery_document_names_all_endpoints(issuer: OidcSimulator, http: Client) -> None:
    """It is served under the issuer, and the JWKS is where it says."""
    status, document = await status_and_json(
        await http.get(f"{issuer.issuer}/.well-known/openid-configuration").build().send()
    )
    assert (status, document["issuer"]) == (200, issuer.issuer)
    assert document["authorization_endpoint"] == f"{issuer.url}/oauth2/authorize"
    assert document["token_endpoint"] == f"{issuer.url}/oauth2/token"
    _, published = await status_and_json(await http.get(document["jwks_uri"]).build().send())
    _, same = await status_and_json(
        await http.get(f"{issuer.url}/.well-known/jwks.json").build().send()
    )
    assert published == same
    assert [key["alg"] for key in published["keys"]] == ["RS256"]


async def test_user_logs_in_through_the_page(
    issuer: OidcSimulator, browser: Browser, http: Client
) -> None:
    """From authorize to the page, back to the application with the state, and to tokens."""
    response = await browser.get(with_query(f"{issuer.url}/oauth2/authorize", AUTHORIZE_PARAMETERS))
    login = redirect_url(issuer.url, response)
    page = await (await browser.get(login)).text()
    assert "Bo Lindqvist" in page
    ana = issuer.users.find("Ana Silva")
    assert ana is not None
    back = redirect_url(
        issuer.url,
        await browser.submit(f"{issuer.url}/login", AUTHORIZE_PARAMETERS | {"who": ana.sub}),
    )
    assert back.startswith(CALLBACK)
    assert query_parameters(back)["state"] == "state-1"
    status, tokens = await exchange(issuer, http, code=query_parameters(back)["code"])
    assert status == 200
    assert set(tokens) == {"id_token", "access_token", "refresh_token", "expires_in", "token_type"}


async def test_tokens_have_cognito_claims(
    issuer: OidcSimulator,
    browser: Browser,
    http: Client,
    verifier: TokenVerifier,
    clock: ManualClock,
) -> None:
    _, tokens = await exchange(
        issuer, http, code=await log_in_for_code(issuer, browser, "Dana Weiss")
    )
    person = await verifier.verify(tokens["id_token"])
    access = await verifier.verify(tokens["access_token"])
    now = clock.seconds()
    assert {
        name: person[name]
        for name in ("iss", "aud", "nonce", "email", "token_use", "cognito:groups")
    } == {
        "iss": issuer.issuer,
        "aud": CLIENT_ID,
        "nonce": "nonce-1",
        "email": "dana.weiss@example.test",
        "token_use": "id",
        "cognito:groups": ["admin"],
    }
    assert (person["iat"], person["exp"]) == (now, now + 3600)
    assert (access["client_id"], access["token_use"], access["sub"]) == (
        CLIENT_ID,
        "access",
        person["sub"],
    )
    assert "aud" not in access


async def test_session_skips_the_login_page_until_logout(
    issuer: OidcSimulator, browser: Browser
) -> None:
    authorize = with_query(f"{issuer.url}/oauth2/authorize", AUTHORIZE_PARAMETERS)
    await log_in_for_code(issuer, browser)
    assert "code" in query_parameters(redirect_url(issuer.url, await browser.get(authorize)))
    out = with_query(
        f"{issuer.url}/logout", {"client_id": CLIENT_ID, "logout_uri": "http://127.0.0.1:9/"}
    )
    assert redirect_url(issuer.url, await browser.get(out)) == "http://127.0.0.1:9/"
    assert "/login" in redirect_url(issuer.url, await browser.get(authorize))


async def test_logins_can_be_approved_automatically(
    issuer: OidcSimulator, browser: Browser, http: Client
) -> None:
    """As one user for all, or as the user of the login hint."""
    issuer.auto_approve = "Ana Silva"
    for hint, email in ((None, "ana.silva@example.test"), ("Eve Ng", "eve.ng@example.test")):
        authorize = with_query(
            f"{issuer.url}/oauth2/authorize",
            AUTHORIZE_PARAMETERS | ({"login_hint": hint} if hint else {}),
        )
        code = query_parameters(redirect_url(issuer.url, await browser.get(authorize)))["code"]
        _, tokens = await exchange(issuer, http, code=code)
        assert jwt.decode(tokens["id_token"], options={"verify_signature": False})["email"] == email


async def test_sub_is_the_same_in_another_issuer(issuer: OidcSimulator, keys: SigningKeys) -> None:
    other = OidcSimulator(ManualClock(), keys=keys)
    assert issuer.users.find_or_add("Eve Ng").sub == other.users.find_or_add("Eve Ng").sub


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"scope": "email"}, "invalid_scope"),
    ],
)
async def test_invalid_request_redirects_with_an_error(
    issuer: OidcSimulator, browser: Browser, changed: dict[str, str], error: str
) -> None:
    back = redirect_url(
        issuer.url,
        await browser.get(
            with_query(f"{issuer.url}/oauth2/authorize", AUTHORIZE_PARAMETERS | changed)
        ),
    )
    assert back.startswith(CALLBACK)
    assert (query_parameters(back)["error"], query_parameters(back)["state"]) == (error, "state-1")


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": "nobody"},
        {"redirect_uri": "https://elsewhere.test/"},
        {"redirect_uri": "ftp://127.0.0.1/"},
        {"redirect_uri": "http://["},
    ],
)
async def test_unknown_redirect_uri_is_not_followed(
    issuer: OidcSimulator, browser: Browser, changed: dict[str, str]
) -> None:
    response = await browser.get(
        with_query(f"{issuer.url}/oauth2/authorize", AUTHORIZE_PARAMETERS | changed)
    )
    assert response.status == 400
    assert "location" not in response.headers


async def test_only_registered_uris_are_allowed(issuer: OidcSimulator, browser: Browser) -> None:
    issuer.register(OAuthClient("strict", "s", redirect_uris=(CALLBACK,)))
    fine = await browser.get(
        with_query(f"{issuer.url}/oauth2/authorize", AUTHORIZE_PARAMETERS | {"client_id": "strict"})
    )
    assert fine.status == 302
    wrong = AUTHORIZE_PARAMETERS | {"client_id": "strict", "redirect_uri": CALLBACK + "/"}
    assert (await browser.get(with_query(f"{issuer.url}/oauth2/authorize", wrong))).status == 400


async def test_code_is_valid_once(issuer: OidcSimulator, browser: Browser, http: Client) -> None:
    code = await log_in_for_code(issuer, browser)
    assert (await exchange(issuer, http, code=code))[0] == 200
    assert await exchange(issuer, http, code=code) == (400, {"error": "invalid_grant"})


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({"code_verifier": "another"}, "invalid_grant"),
        ({"redirect_uri": CALLBACK + "/other"}, "invalid_grant"),
        ({"code": "made-up"}, "invalid_grant"),
        ({"secret": "wrong"}, "invalid_client"),
        ({"client_id": "other"}, "invalid_client"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
    ],
)
async def test_code_is_bound_to_its_client(
    issuer: OidcSimulator, browser: Browser, http: Client, sent: dict[str, str], error: str
) -> None:
    status, response = await exchange(
        issuer, http, **({"code": await log_in_for_code(issuer, browser)} | sent)
    )
    assert (status, response["error"]) == (400, error)


async def test_code_expires_after_five_minutes(
    issuer: OidcSimulator, browser: Browser, http: Client, clock: ManualClock
) -> None:
    first, second = await log_in_for_code(issuer, browser), await log_in_for_code(issuer, browser)
    await clock.advance(299)
    assert (await exchange(issuer, http, code=first))[0] == 200
    await clock.advance(1)
    assert (await exchange(issuer, http, code=second))[0] == 400


async def test_public_client_requires_pkce(issuer: OidcSimulator, browser: Browser) -> None:
    issuer.register(OAuthClient("phone"))
    parameters = {
        name: value for name, value in AUTHORIZE_PARAMETERS.items() if not name.startswith("code_")
    } | {"client_id": "phone"}
    back = redirect_url(
        issuer.url, await browser.get(with_query(f"{issuer.url}/oauth2/authorize", parameters))
    )
    assert query_parameters(back)["error"] == "invalid_request"


async def test_refresh_works_until_revocation(
    issuer: OidcSimulator, browser: Browser, http: Client
) -> None:
    _, tokens = await exchange(issuer, http, code=await log_in_for_code(issuer, browser))
    renewing = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    status, renewed = await exchange(issuer, http, **renewing)
    assert (status, "refresh_token" in renewed) == (200, False)
    revoking = http.post(f"{issuer.url}/oauth2/revoke").basic_auth(CLIENT_ID, SECRET)
    assert (await revoking.form({"token": tokens["refresh_token"]}).build().send()).status == 200
    assert await exchange(issuer, http, **renewing) == (400, {"error": "invalid_grant"})


async def test_user_info_requires_an_access_token(issuer: OidcSimulator, http: Client) -> None:
    issuer.users.find_or_add("Eve Ng")
    tokens = {
        issuer.token_for("Eve Ng"): 200,
        issuer.token_for("Eve Ng", use="id"): 401,
        issuer.token_for("Eve Ng", flaw=TokenFlaw.NO_SUBJECT): 401,
        issuer.token_for("Eve Ng", flaw=TokenFlaw.EXPIRED): 401,
        issuer.token_for("Eve Ng", flaw=TokenFlaw.UNKNOWN_KEY): 401,
        "no token": 401,
    }
    for token, status in tokens.items():
        response = await http.get(f"{issuer.url}/oauth2/userInfo").bearer_auth(token).build().send()
        assert response.status == status


async def test_tokens_can_be_issued_directly(
    issuer: OidcSimulator, verifier: TokenVerifier
) -> None:
    """For any user, with or without an account."""
    claims = await verifier.verify(issuer.token_for("user-7", groups=("admin",), scope="matches"))
    assert (claims["sub"], claims["cognito:groups"], claims["scope"]) == (
        "user-7",
        ["admin"],
        "matches",
    )
    identity = await verifier.verify(issuer.token_for("user-7", use="id", nonce="n"))
    assert (identity["email"], identity["nonce"]) == ("user-7@example.test", "n")


async def test_old_tokens_stay_valid_after_key_rotation(
    issuer: OidcSimulator, verifier: TokenVerifier
) -> None:
    """Until the old key is retired."""
    old = issuer.token_for("ana")
    kid = issuer.keys.rotate()
    new = issuer.token_for("ana")
    assert jwt.get_unverified_header(new)["kid"] == kid
    assert (await verifier.verify(new))["sub"] == (await verifier.verify(old))["sub"] == "ana"
    issuer.keys.retire()
    assert [key["kid"] for key in issuer.keys.jwks()["keys"]] == [kid]


SEEN_BY_THE_VERIFIER = {
    TokenFlaw.WRONG_KEY: "^Invalid token$",
    TokenFlaw.UNKNOWN_KEY: "key ID that the issuer does not publish",
    TokenFlaw.WRONG_ISSUER: "unexpected issuer",
    TokenFlaw.WRONG_AUDIENCE: "unexpected audience",
    TokenFlaw.NO_SUBJECT: "^Invalid token$",
    TokenFlaw.EXPIRED: "expired",
    TokenFlaw.NOT_YET_VALID: "not valid yet",
    TokenFlaw.ALG_NONE: "unsupported algorithm",
    TokenFlaw.HS256: "unsupported algorithm",
    TokenFlaw.TAMPERED: "^Invalid token$",
}
FOR_THE_APPLICATION = {
    TokenFlaw.WRONG_NONCE: "nonce",
    TokenFlaw.NO_NONCE: "nonce",
    TokenFlaw.WRONG_USE: "token_use",
}


@pytest.mark.parametrize("flaw", SEEN_BY_THE_VERIFIER)
@pytest.mark.parametrize("use", ["id", "access"])
async def test_flawed_token_is_rejected(
    issuer: OidcSimulator, verifier: TokenVerifier, flaw: TokenFlaw, use: Any
) -> None:
    with pytest.raises(Unauthenticated, match=SEEN_BY_THE_VERIFIER[flaw]):
        await verifier.verify(issuer.token_for("ana", use=use, flaw=flaw))
    assert (await verifier.verify(issuer.token_for("ana", use=use)))["sub"] == "ana"


@pytest.mark.parametrize("flaw", FOR_THE_APPLICATION)
async def test_application_level_flaw_is_in_the_claims(
    issuer: OidcSimulator, verifier: TokenVerifier, flaw: TokenFlaw
) -> None:
    right = await verifier.verify(issuer.token_for("ana", use="id", nonce="nonce-1"))
    wrong = await verifier.verify(issuer.token_for("ana", use="id", nonce="nonce-1", flaw=flaw))
    claim = FOR_THE_APPLICATION[flaw]
    assert wrong.get(claim) != right[claim]


def test_every_flaw_is_covered() -> None:
    assert set(SEEN_BY_THE_VERIFIER) | set(FOR_THE_APPLICATION) == set(TokenFlaw)


async def test_flaws_apply_to_the_next_token_responses(
    issuer: OidcSimulator, browser: Browser, http: Client, verifier: TokenVerifier
) -> None:
    issuer.flaws.append(TokenFlaw.WRONG_AUDIENCE)
    _, tokens = await exchange(issuer, http, code=await log_in_for_code(issuer, browser))
    with pytest.raises(Unauthenticated, match="unexpected audience"):
        await verifier.verify(tokens["id_token"])
    _, tokens = await exchange(issuer, http, code=await log_in_for_code(issuer, browser))
    assert (await verifier.verify(tokens["id_token"]))["nonce"] == "nonce-1"


async def test_fault_applies_the_given_number_of_times(issuer: OidcSimulator, http: Client) -> None:
    issuer.faults.add(InjectedFault(path="/oauth2/token", status=503, times=2))
    statuses = [
        (await http.post(f"{issuer.url}/oauth2/token").build().send()).status for _ in range(3)
    ]
    assert statuses == [503, 503, 400]
    assert issuer.faults.count("/oauth2/token", "POST") == 3


async def test_fault_without_times_lasts_until_cleared(issuer: OidcSimulator, http: Client) -> None:
    address = f"{issuer.issuer}/.well-known/openid-configuration"
    issuer.faults.add(
        InjectedFault(path=f"/{issuer.pool_id}/.well-known/", drop="before", times=None)
    )
    for _ in range(2):
        with pytest.raises(PyreqwestError):
            await http.get(address).build().send()
    issuer.faults.clear()
    assert (await http.get(address).build().send()).status == 200


async def test_response_can_be_malformed(issuer: OidcSimulator, http: Client) -> None:
    issuer.faults.add(InjectedFault(path="/oauth2/token", status=200, body='{"id_token": "ey'))
    response = await http.post(f"{issuer.url}/oauth2/token").build().send()
    with pytest.raises(PyreqwestError):
        await response.json()


async def test_response_can_be_delayed(
    issuer: OidcSimulator, http: Client, clock: ManualClock
) -> None:
    """Delays use the simulator's clock."""
    issuer.faults.add(InjectedFault(path="/.well-known/jwks.json", delay=30))
    asking = asyncio.create_task(http.get(f"{issuer.url}/.well-known/jwks.json").build().send())
    await clock.until_sleeping()
    assert not asking.done()
    await clock.advance(30)
    assert (await asking).status == 200


async def test_response_can_be_dropped_after_processing(
    issuer: OidcSimulator, browser: Browser, http: Client
) -> None:
    """The code is used, and the application never receives its tokens."""
    code = await log_in_for_code(issuer, browser)
    issuer.faults.add(InjectedFault(path="/oauth2/token", drop="after"))
    with pytest.raises(PyreqwestError):
        await exchange(issuer, http, code=code)
    assert await exchange(issuer, http, code=code) == (400, {"error": "invalid_grant"})


async def test_delete_user_with_access_token(
    issuer: OidcSimulator, browser: Browser, http: Client
) -> None:
    """It works once and revokes refresh tokens. The token needs the scope, as at Cognito."""
    scope = "openid aws.cognito.signin.user.admin"
    code = await log_in_for_code(issuer, browser, "Eve Ng", scope=scope)
    _, tokens = await exchange(issuer, http, code=code)
    _, narrow = await exchange(issuer, http, code=await log_in_for_code(issuer, browser, "Eve Ng"))

    async def delete(tokens: Mapping[str, str]) -> tuple[int, Any]:
        asking = http.post(f"{issuer.url}/").header(
            "x-amz-target", "AWSCognitoIdentityProviderService.DeleteUser"
        )
        return await status_and_json(
            await asking.body_json({"AccessToken": tokens["access_token"]}).build().send()
        )

    status, response = await delete(narrow)
    assert (status, response["__type"]) == (400, "NotAuthorizedException")
    assert "scopes" in response["message"]
    assert (await delete(tokens))[0] == 200
    assert issuer.users.find("Eve Ng") is None
    status, response = await delete(tokens)
    assert (status, response["__type"]) == (400, "NotAuthorizedException")
    renewing = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    assert (await exchange(issuer, http, **renewing))[0] == 400


async def test_admin_delete_user(issuer: OidcSimulator, http: Client) -> None:
    eve = issuer.users.find_or_add("Eve Ng")
    target_header = "AWSCognitoIdentityProviderService.AdminDeleteUser"
    responses = []
    for pool in ("other_pool", issuer.pool_id, issuer.pool_id):
        asking = http.post(f"{issuer.url}/").header("x-amz-target", target_header)
        body = {"UserPoolId": pool, "Username": eve.sub}
        responses.append(
            (await status_and_json(await asking.body_json(body).build().send()))[1].get("__type")
        )
    assert responses == ["ResourceNotFoundException", None, "UserNotFoundException"]


async def test_control_api_covers_every_function(
    issuer: OidcSimulator, browser: Browser, http: Client, verifier: TokenVerifier
) -> None:
    """The control API offers what the Python object does."""
    url = f"{issuer.url}/_sim"
    _, made = await control(http, f"{url}/tokens", {"sub": "phone-user", "groups": ["admin"]})
    assert (await verifier.verify(made["token"]))["cognito:groups"] == ["admin"]
    assert (await control(http, f"{url}/approval", {"who": "Eve Ng"}))[0] == 204
    assert "code" in query_parameters(
        redirect_url(
            issuer.url,
            await browser.get(with_query(f"{issuer.url}/oauth2/authorize", AUTHORIZE_PARAMETERS)),
        )
    )
    assert (await control(http, f"{url}/flaws", {"flaws": ["expired"]}))[0] == 204
    assert issuer.flaws == [TokenFlaw.EXPIRED]
    assert (
        await control(http, f"{url}/faults", {"path": "/logout", "status": 500, "times": None})
    )[0] == 204
    assert (await http.get(f"{issuer.url}/logout").build().send()).status == 500
    assert (
        await http.delete(f"{url}/faults").headers(CONTROL_HEADERS).build().send()
    ).status == 204
    _, rotated = await control(http, f"{url}/keys", {"retire": True})
    assert (await control(http, f"{url}/people", {"name": "Finn"}))[0] == 201
    _, state = await status_and_json(
        await http.get(f"{url}/state").headers(CONTROL_HEADERS).build().send()
    )
    assert state["keys"] == [rotated["kid"]]
    assert "Finn" in {person["name"] for person in state["people"]}


@pytest.mark.parametrize("body", [{"flaws": ["unheard of"]}, {"flaw": []}, "nothing"])
async def test_control_api_rejects_unknown_fields(
    issuer: OidcSimulator, http: Client, body: Any
) -> None:
    status, response = await control(http, f"{issuer.url}/_sim/flaws", body)
    assert (status, response["code"]) == (400, "invalid")


@pytest.mark.parametrize(
    "header", ["Basic !!!", "Basic " + base64.b64encode(b"\xff:\xff").decode(), "Bearer x"]
)
async def test_malformed_authorization_header_is_an_invalid_client(
    issuer: OidcSimulator, http: Client, header: str
) -> None:
    asking = http.post(f"{issuer.url}/oauth2/token").header("authorization", header)
    status, response = await status_and_json(
        await asking.form({"grant_type": "refresh_token"}).build().send()
    )
    assert (status, response["error"]) == (400, "invalid_client")
