"""A token is valid until it expires, and forged tokens are rejected."""

import base64
import json
from typing import Any

import jwt
import pytest

from tally.errors import Unauthenticated
from tally.kit.clock import ManualClock
from tally.kit.keyring import Key, Keyring
from tally.kit.token_issuer import TokenIssuer
from tally.settings import Secret

OLD, NEW = (
    Secret("the old key of at least 32 characters"),
    Secret("the new key of at least 32 characters"),
)


def issuer(
    clock: ManualClock, *secrets: Secret, audience: str = "scoreboard", name: str = "tally"
) -> TokenIssuer:
    return TokenIssuer(Keyring(secrets or (NEW, OLD)), clock, issuer=name, audience=audience)


def expect_rejected(tokens: TokenIssuer, token: str, code: str = "invalid_token") -> None:
    with pytest.raises(Unauthenticated) as caught:
        tokens.verify(token)
    assert caught.value.code == code


async def test_a_token_is_valid_until_it_expires() -> None:
    clock = ManualClock()
    tokens = issuer(clock)
    token = tokens.issue("ana", issued_at=clock.seconds(), seconds=60, jti="1")
    assert tokens.verify(token)["sub"] == "ana"
    assert tokens.verify(token)["jti"] == "1"
    await clock.advance(59)
    assert tokens.verify(token)["sub"] == "ana"
    await clock.advance(1)
    expect_rejected(tokens, token, "token_expired")


def test_a_token_of_an_older_key_is_valid_while_the_key_is_in_the_keyring() -> None:
    clock = ManualClock()
    token = issuer(clock, OLD).issue("ana", issued_at=clock.seconds(), seconds=60)
    assert issuer(clock, NEW, OLD).verify(token)["sub"] == "ana"
    expect_rejected(issuer(clock, NEW), token)


def test_a_token_of_another_issuer_or_audience_is_rejected() -> None:
    clock = ManualClock()
    tokens = issuer(clock)
    for other in (issuer(clock, audience="collect"), issuer(clock, name="other")):
        expect_rejected(tokens, other.issue("ana", issued_at=clock.seconds(), seconds=60))


def part(content: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


CLAIMS = {"iss": "tally", "aud": "scoreboard", "sub": "ana", "exp": 1e10}
KID = {"kid": Key.of(NEW).key_id}


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        "x" * 9000,
        f"{part({'alg': 'none', **KID})}.{part(CLAIMS)}.",
        f"{part({'alg': 'none'})}.{part(CLAIMS)}.",
        f"{part({'alg': 'HS256', **KID})}.{part(CLAIMS)}.",
        f"{part({'alg': 'HS256', 'kid': 3})}.{part(CLAIMS)}.x",
        jwt.encode(CLAIMS, "another key of at least 32 characters", "HS256", KID),
        jwt.encode(CLAIMS, Key.of(NEW).reveal() * 2, "HS512", KID),
        jwt.encode(CLAIMS, Key.of(NEW).reveal(), "HS256"),
        jwt.encode(CLAIMS | {"exp": "soon"}, Key.of(NEW).reveal(), "HS256", KID),
        jwt.encode(CLAIMS | {"iat": 1e11}, Key.of(NEW).reveal(), "HS256", KID),
    ],
    ids=lambda token: token[:24] or "empty",
)
def test_a_forged_token_is_rejected(token: str) -> None:
    """No signature, another algorithm or key, no key ID, or invalid times."""
    expect_rejected(issuer(ManualClock()), token)
