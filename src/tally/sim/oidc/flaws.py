"""Makes tokens that must be rejected: each has exactly one flaw."""

import base64
import enum
import hashlib
import hmac
import json
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tally.sim.oidc.keys import SigningKeys, signing_key_id

HOUR_SECONDS: Final = 3600


class TokenFlaw(enum.StrEnum):
    """The flaw of a token; the values are used by the control API."""

    WRONG_KEY = "wrong_key"  # another key with the key id of the current one
    UNKNOWN_KEY = "unknown_key"  # a key that is not in the JWKS
    WRONG_ISSUER = "wrong_issuer"
    WRONG_AUDIENCE = "wrong_audience"
    WRONG_NONCE = "wrong_nonce"
    NO_NONCE = "no_nonce"
    WRONG_USE = "wrong_use"  # an access token instead of an ID token, and vice versa
    NO_SUBJECT = "no_subject"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    ALG_NONE = "alg_none"
    HS256 = "hs256"  # signed with the public key as an HMAC secret
    TAMPERED = "tampered"  # the subject was changed after signing


def flawed_claims(claims: dict[str, Any], flaw: TokenFlaw | None) -> dict[str, Any]:
    """Apply the flaw to the claims; signature flaws leave them unchanged."""
    if flaw is TokenFlaw.WRONG_ISSUER:
        return claims | {"iss": claims["iss"] + "_other"}
    if flaw is TokenFlaw.WRONG_AUDIENCE:
        return claims | {name: "another-client" for name in ("aud", "client_id") if name in claims}
    if flaw is TokenFlaw.WRONG_NONCE:
        return claims | {"nonce": "another-nonce"}
    if flaw is TokenFlaw.WRONG_USE:
        return claims | {"token_use": {"id": "access", "access": "id"}[claims["token_use"]]}
    if flaw is TokenFlaw.EXPIRED:
        return claims | {
            name: claims[name] - 2 * HOUR_SECONDS - (claims["exp"] - claims["iat"])
            for name in ("iat", "exp")
        }
    if flaw is TokenFlaw.NOT_YET_VALID:
        return claims | {name: claims[name] + HOUR_SECONDS for name in ("iat", "exp")}
    missing = {TokenFlaw.NO_NONCE: "nonce", TokenFlaw.NO_SUBJECT: "sub"}.get(flaw) if flaw else None
    return {name: value for name, value in claims.items() if name != missing}


def sign_token(keys: SigningKeys, claims: dict[str, Any], flaw: TokenFlaw | None = None) -> str:
    """Sign the claims, optionally with a flaw."""
    claims = flawed_claims(claims, flaw)
    if flaw is TokenFlaw.WRONG_KEY:
        return keys.sign(claims, keys.foreign, signing_key_id(keys.current))
    if flaw is TokenFlaw.UNKNOWN_KEY:
        return keys.sign(claims, keys.foreign)
    if flaw is TokenFlaw.ALG_NONE:
        return f"{_unsigned(keys, claims, 'none')}."
    if flaw is TokenFlaw.HS256:
        return _signed_with_public_key(keys, claims)
    token = keys.sign(claims)
    if flaw is TokenFlaw.TAMPERED:
        header, _, signature = token.split(".")
        return ".".join((header, _encode(claims | {"sub": "another-user"}), signature))
    return token


def _signed_with_public_key(keys: SigningKeys, claims: dict[str, Any]) -> str:
    # Signed manually, because PyJWT rejects public keys as HMAC secrets.
    unsigned = _unsigned(keys, claims, "HS256")
    public = keys.current.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return f"{unsigned}.{_base64(hmac.digest(public, unsigned.encode(), hashlib.sha256))}"


def _unsigned(keys: SigningKeys, claims: dict[str, Any], algorithm: str) -> str:
    header = {"alg": algorithm, "typ": "JWT", "kid": signing_key_id(keys.current)}
    return f"{_encode(header)}.{_encode(claims)}"


def _encode(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
