"""Invalid credentials are rejected, and a failing issuer does not lock out valid tokens."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from pyreqwest.client import Client, ClientBuilder
from starlette.requests import HTTPConnection

from tally.errors import Unauthenticated, Unavailable
from tally.kit.auth import (
    KeySet,
    TokenVerifier,
    bearer_token,
    http_key_fetcher,
    matches_secret,
    require_key,
)
from tally.kit.clock import ManualClock
from tally.settings import Secret
from tests.kit.conftest import LogLines
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer, rsa_key

SECRET = Secret("s3cret-admin-token")


def make_request(**headers: str) -> HTTPConnection:
    raw = [
        (name.replace("_", "-").lower().encode(), value.encode("latin-1"))
        for name, value in headers.items()
    ]
    return HTTPConnection({"type": "http", "headers": raw})


def make_claims(clock: ManualClock, **changes: Any) -> dict[str, Any]:
    now = clock.seconds()
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "user-1",
        "iat": now,
        "exp": now + 3600,
        **changes,
    }
    return {name: value for name, value in claims.items() if value is not ...}


@pytest.fixture(scope="module")
async def shared_issuer() -> AsyncIterator[Issuer]:
    async with Issuer().running() as issuer:
        yield issuer


@pytest.fixture
def issuer(shared_issuer: Issuer) -> Issuer:
    """Return the issuer in its initial state: one key, working, never read."""
    shared_issuer.keys = {"k1": shared_issuer.keys["k1"]}
    shared_issuer.extra = []
    shared_issuer.status, shared_issuer.body, shared_issuer.reads = 200, None, 0
    return shared_issuer


@pytest.fixture
def verifier(issuer: Issuer, client: Client, clock: ManualClock) -> TokenVerifier:
    keys = KeySet(http_key_fetcher(client, issuer.url), clock, min_interval=10, max_age=3600)
    return TokenVerifier(keys, clock, issuer=ISSUER, audience=AUDIENCE, leeway=30)


async def rejection_code(verifier: TokenVerifier, token: str) -> str:
    """Return the error code for the token."""
    with pytest.raises(Unauthenticated) as caught:
        await verifier.verify(token)
    return caught.value.code


# Keys and bearer tokens


@given(st.text(), st.text())
def test_secrets_match_only_if_equal(candidate: str, expected: str) -> None:
    assert matches_secret(candidate, Secret(expected)) == (candidate == expected)


def is_allowed(check: Callable[..., None], request: HTTPConnection, *arguments: object) -> bool:
    try:
        check(request, *arguments)
    except Unauthenticated:
        return False
    return True


def test_a_valid_key_is_accepted() -> None:
    assert is_allowed(require_key, make_request(x_api_key=SECRET.reveal()), SECRET)
    assert is_allowed(
        require_key, make_request(x_internal_key=SECRET.reveal()), SECRET, "X-Internal-Key"
    )


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "missing_api_key"),
        ({"x_api_key": ""}, "missing_api_key"),
        ({"x_api_key": "wröng"}, "invalid_api_key"),
    ],
)
def test_an_invalid_key_is_rejected(headers: dict[str, str], code: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        require_key(make_request(**headers), SECRET)
    assert caught.value.code == code
    assert SECRET.reveal() not in str(caught.value)


@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer ", f"Basic {SECRET.reveal()}", SECRET.reveal()]
)
def test_a_request_without_a_bearer_token_is_rejected(header: str | None) -> None:
    with pytest.raises(Unauthenticated) as caught:
        bearer_token(make_request(**({} if header is None else {"authorization": header})))
    assert caught.value.code == "missing_token"


def test_a_bearer_token_is_returned_unverified() -> None:
    assert bearer_token(make_request(authorization="Bearer a.b.c")) == "a.b.c"
    assert bearer_token(make_request(authorization="bearer  a.b.c")) == "a.b.c"


# Tokens


async def test_a_valid_token_returns_its_claims(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    token = issuer.sign(make_claims(clock, **{"cognito:groups": ["admin"]}))
    claims = await verifier.verify(token)
    assert (claims["sub"], claims["cognito:groups"]) == ("user-1", ["admin"])


async def test_an_elliptic_curve_key_is_accepted(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    issuer.keys["e1"] = ec.generate_private_key(ec.SECP256R1())
    assert (await verifier.verify(issuer.sign(make_claims(clock), "e1")))["sub"] == "user-1"


@pytest.mark.parametrize("audience", [[AUDIENCE, "other"], AUDIENCE])
async def test_one_of_several_audiences_is_enough(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock, audience: object
) -> None:
    assert (await verifier.verify(issuer.sign(make_claims(clock, aud=audience))))["aud"] == audience


async def test_an_access_token_may_name_its_client_instead_of_an_audience(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    """Cognito's access tokens have no audience."""
    token = issuer.sign(make_claims(clock, aud=..., client_id=AUDIENCE))
    assert (await verifier.verify(token))["client_id"] == AUDIENCE
    assert (
        await rejection_code(
            verifier, issuer.sign(make_claims(clock, aud="other", client_id=AUDIENCE))
        )
        == "invalid_token"
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"iss": "https://other.test"}, "invalid_token"),
        ({"iss": ...}, "invalid_token"),
        ({"aud": "client-2"}, "invalid_token"),
        ({"aud": ["client-2"]}, "invalid_token"),
        ({"aud": []}, "invalid_token"),
        ({"aud": ...}, "invalid_token"),
        ({"sub": ...}, "invalid_token"),
        ({"exp": ...}, "invalid_token"),
        ({"exp": "soon"}, "invalid_token"),
        ({"exp": True}, "invalid_token"),
        ({"exp": float("nan")}, "token_expired"),
        ({"nbf": float("nan")}, "invalid_token"),
        ({"nbf": "now"}, "invalid_token"),
    ],
)
async def test_an_invalid_claim_is_rejected(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock, changes: dict[str, Any], code: str
) -> None:
    assert await rejection_code(verifier, issuer.sign(make_claims(clock, **changes))) == code


async def test_times_are_checked_with_leeway(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    """A difference of 30 seconds between clocks is tolerated."""
    now = clock.seconds()
    assert await verifier.verify(issuer.sign(make_claims(clock, exp=now - 29)))
    assert await verifier.verify(issuer.sign(make_claims(clock, nbf=now + 30, iat=now + 30)))
    assert (
        await rejection_code(verifier, issuer.sign(make_claims(clock, exp=now - 30)))
        == "token_expired"
    )
    assert (
        await rejection_code(verifier, issuer.sign(make_claims(clock, nbf=now + 31)))
        == "invalid_token"
    )
    assert (
        await rejection_code(verifier, issuer.sign(make_claims(clock, iat=now + 31)))
        == "invalid_token"
    )
    token = issuer.sign(make_claims(clock, exp=now + 60))
    assert await verifier.verify(token)
    await clock.advance(91)
    assert await rejection_code(verifier, token) == "token_expired"


async def test_a_token_of_another_key_is_rejected(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    """Even if it names a known key ID."""
    forged = jwt.encode(make_claims(clock), rsa_key(), "RS256", {"kid": "k1"})
    assert await rejection_code(verifier, forged) == "invalid_token"


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


async def test_a_token_without_a_signature_is_rejected(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    algorithms: list[Any] = ["none", "None", "", None, [], {"a": 1}, 7]
    for algorithm in algorithms:
        unsigned = f"{encoded({'alg': algorithm, 'kid': 'k1'})}.{encoded(make_claims(clock))}."
        assert await rejection_code(verifier, unsigned) == "invalid_token"


async def test_symmetric_algorithms_are_rejected(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    """The public key and published symmetric keys are no shared secrets."""
    public = issuer.keys["k1"].public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signing_input = (
        f"{encoded({'alg': 'HS256', 'typ': 'JWT', 'kid': 'k1'})}.{encoded(make_claims(clock))}"
    )
    signature = jwt.get_algorithm_by_name("HS256").sign(signing_input.encode(), pem)
    confused = f"{signing_input}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert await rejection_code(verifier, confused) == "invalid_token"
    key = b"0123456789abcdef0123456789abcdef"
    issuer.extra = [{"kty": "oct", "kid": "s1", "k": base64.urlsafe_b64encode(key).decode()}]
    assert (
        await rejection_code(verifier, jwt.encode(make_claims(clock), key, "HS256", {"kid": "s1"}))
        == "invalid_token"
    )


async def test_the_key_determines_the_algorithm(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    key = issuer.keys["k1"]
    assert (
        await rejection_code(verifier, jwt.encode(make_claims(clock), key, "RS512", {"kid": "k1"}))
        == "invalid_token"
    )
    assert (
        await rejection_code(verifier, jwt.encode(make_claims(clock), key, "PS256", {"kid": "k1"}))
        == "invalid_token"
    )
    head, payload, signature = issuer.sign(make_claims(clock)).split(".")
    assert head
    swapped = f"{encoded({'alg': 'ES256', 'kid': 'k1'})}.{payload}.{signature}"
    assert await rejection_code(verifier, swapped) == "invalid_token"


async def test_a_modified_token_is_rejected(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    head, payload, signature = issuer.sign(make_claims(clock)).split(".")
    richer = encoded(make_claims(clock, **{"cognito:groups": ["admin"]}))
    changed = "A" if signature[10] != "A" else "B"
    for token in (
        f"{head}.{richer}.{signature}",
        f"{head}.{payload}.{signature[:10]}{changed}{signature[11:]}",
        f"{head}.{payload}.",
        f"{head}.{payload}",
        f"{head}.{payload}.{signature}.{signature}",
    ):
        assert await rejection_code(verifier, token) == "invalid_token"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        "...",
        "é.é.é",
        "\x00",
        "eyJhbGciOiJSUzI1NiJ9..",
        "A" * 9000,
        f"{encoded({'alg': 'RS256'})}.e30.c2ln",
        f"{encoded({'alg': 'RS256', 'kid': 7})}.e30.c2ln",
        f"{encoded([])}.e30.c2ln",
        base64.urlsafe_b64encode(b"[" * 5000).decode().rstrip("=") + ".e30.c2ln",
        base64.urlsafe_b64encode(b'{"kid":' + b"1" * 5000 + b"}").decode().rstrip("=")
        + ".e30.c2ln",
    ],
)
async def test_malformed_tokens_are_rejected_without_fetching_keys(
    verifier: TokenVerifier, issuer: Issuer, token: str
) -> None:
    assert await rejection_code(verifier, token) == "invalid_token"
    assert issuer.reads == 0


# The issuer's keys


async def test_keys_are_fetched_once(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    """Concurrent callers share one fetch."""
    token = issuer.sign(make_claims(clock))
    await asyncio.gather(*(verifier.verify(token) for _ in range(20)))
    await clock.advance(600)
    await verifier.verify(token)
    assert issuer.reads == 1


async def test_a_new_key_is_fetched_on_first_use(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    await verifier.verify(issuer.sign(make_claims(clock)))
    issuer.keys["k2"] = rsa_key()
    await clock.advance(10)
    assert await verifier.verify(issuer.sign(make_claims(clock), "k2"))
    assert issuer.reads == 2


async def test_unknown_key_ids_do_not_cause_repeated_fetches(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    await verifier.verify(issuer.sign(make_claims(clock)))
    _, payload, signature = issuer.sign(make_claims(clock)).split(".")
    made_up = [
        f"{encoded({'alg': 'RS256', 'kid': f'unknown-{n}'})}.{payload}.{signature}"
        for n in range(50)
    ]
    for token in made_up:
        assert await rejection_code(verifier, token) == "invalid_token"
    assert issuer.reads == 1
    await clock.advance(10)
    for token in made_up:
        assert await rejection_code(verifier, token) == "invalid_token"
    assert issuer.reads == 2


@pytest.mark.parametrize(
    "response",
    [
        (500, b""),
        (404, b"{}"),
        (200, b"not json"),
        (200, b'{"keys": 7}'),
        (200, b"[]"),
        (200, b'{"keys": [], "padding": "' + b"x" * 300_000 + b'"}'),
    ],
)
async def test_keys_stay_cached_while_the_issuer_fails(
    verifier: TokenVerifier,
    issuer: Issuer,
    clock: ManualClock,
    log_lines: LogLines,
    response: tuple[int, bytes],
) -> None:
    token = issuer.sign(make_claims(clock, exp=clock.seconds() + 100_000))
    await verifier.verify(token)
    issuer.status, issuer.body = response
    await clock.advance(3601)
    assert await verifier.verify(token)
    assert await verifier.verify(token)
    assert issuer.reads == 2
    assert [line["level"] for line in log_lines() if line["action"] == "jwks_refresh_failed"] == [
        "warning"
    ]


async def test_a_verified_token_is_verified_again_when_its_key_is_replaced(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    """The new key has the same ID."""
    token = issuer.sign(make_claims(clock, exp=clock.seconds() + 100_000))
    await verifier.verify(token)
    replaced, issuer.keys["k1"] = issuer.keys["k1"], rsa_key()
    try:
        assert await verifier.verify(token)
        await clock.advance(3601)
        assert await rejection_code(verifier, token) == "invalid_token"
    finally:
        issuer.keys["k1"] = replaced


async def test_a_verified_token_vouches_for_no_other(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    token = issuer.sign(make_claims(clock))
    await verifier.verify(token)
    for other in (token[:-2], f"{token}A", token.swapcase()):
        assert await rejection_code(verifier, other) == "invalid_token"


async def test_stale_keys_are_refreshed_and_withdrawn_keys_removed(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    token = issuer.sign(make_claims(clock, exp=clock.seconds() + 100_000))
    await verifier.verify(token)
    issuer.body = json.dumps({"keys": []}).encode()
    await clock.advance(3601)
    assert await rejection_code(verifier, token) == "invalid_token"


async def test_without_keys_the_error_is_unavailable(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    """An issuer that cannot be reached says nothing about the token; a later retry succeeds."""
    issuer.status = 503
    token = issuer.sign(make_claims(clock))
    for _ in range(3):
        with pytest.raises(Unavailable, match="are unavailable") as caught:
            await verifier.verify(token)
        assert caught.value.retry_after == 10
    assert issuer.reads == 1
    issuer.status = 200
    await clock.advance(10)
    assert await verifier.verify(token)


async def test_a_refused_connection_is_unavailable(clock: ManualClock, issuer: Issuer) -> None:
    async with ClientBuilder().timeout(timedelta(seconds=5)).build() as client:
        keys = KeySet(http_key_fetcher(client, "http://127.0.0.1:1/jwks.json"), clock)
        with pytest.raises(Unavailable):
            await keys.key("k1")


async def test_an_unusable_published_key_does_not_affect_others(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    issuer.extra = [
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        {"kty": "RSA", "kid": "encrypts", "use": "enc"},
        {"kty": "OKP", "kid": "other", "crv": "Ed25519"},
        {"kty": "RSA", "kid": 7},
        {"kty": ["RSA"], "kid": "odd"},
        {},
    ]
    assert await verifier.verify(issuer.sign(make_claims(clock)))
