"""Who is asking: API keys, bearer tokens and JSON Web Tokens, checked so that neither time nor wording gives anything away.

`require_key` and `require_bearer` compare with one known secret. `TokenVerifier` checks a JWT
against the keys that an issuer publishes: signature, algorithm, issuer, audience and times. What
does not hold is `Unauthenticated`; issuer out of reach with no keys known is `Unavailable`, since
it says nothing about the caller.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import jwt
import msgspec
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import ResponseBodyReader
from starlette.requests import HTTPConnection

from tally.errors import Unauthenticated, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.settings import Secret

Claims: TypeAlias = Mapping[str, Any]
# The port to the issuer: the bytes of its key set, or Unavailable.
FetchKeys: TypeAlias = Callable[[], Awaitable[bytes]]

MAX_TOKEN: Final = 8192
MAX_KEY_SET: Final = 256 * 1024
# Asymmetric ones alone: with a symmetric one, whoever knows the public key could sign.
ALGORITHMS: Final = {"RS256": "RSA", "ES256": "EC"}
# The times are checked on our own clock, and the audience by our own rule.
OPTIONS: Final[Any] = {
    "require": ["exp", "iss", "sub"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
}

_log = logs.logger()


def matches_secret(given: str, expected: Secret) -> bool:
    """Whether they are equal; how long this takes tells neither where they differ nor how long the secret is."""
    return hmac.compare_digest(_digest(given), _digest(expected.reveal()))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def api_key(request: HTTPConnection, header: str = "X-API-Key") -> str:
    """The key that the client sent; whether it holds is for the caller to find out."""
    key = request.headers.get(header)
    if not key:
        raise Unauthenticated(f"The {header} header is missing", code="missing_api_key")
    return key


def require_key(request: HTTPConnection, expected: Secret, header: str = "X-API-Key") -> None:
    if not matches_secret(api_key(request, header), expected):
        raise Unauthenticated(f"Invalid API key in {header}", code="invalid_api_key")


def bearer_token(request: HTTPConnection) -> str:
    """The token in the Authorization header; whether it holds is for the caller to find out."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated(
            "The Authorization header must be: Bearer, a space, the token", code="missing_token"
        )
    return token.strip()


def require_bearer(request: HTTPConnection, expected: Secret) -> None:
    if not matches_secret(bearer_token(request), expected):
        raise invalid_token("Invalid token")


def invalid_token(message: str) -> Unauthenticated:
    return Unauthenticated(message, code="invalid_token")


def http_keys(client: Client, url: str) -> FetchKeys:
    """The key set at `url`, through pyreqwest."""

    async def fetch() -> bytes:
        try:
            async with client.get(url).error_for_status().build_streamed() as response:
                return await _read_at_most(response.body_reader, MAX_KEY_SET)
        except PyreqwestError as error:
            raise Unavailable(
                f"The issuer's keys cannot be read: {type(error).__name__}"
            ) from error

    return fetch


async def _read_at_most(reader: ResponseBodyReader, limit: int) -> bytes:
    body = bytearray()
    while (chunk := await reader.read_chunk()) is not None:
        body += chunk
        if len(body) > limit:
            raise Unavailable(f"The issuer's keys are longer than {limit} bytes")
    return bytes(body)


class KeySet:
    """The public keys of an issuer, read when first needed and again when one is asked for that is not known.

    Reads are at least `pause` seconds apart, whoever asks for what. A read that fails leaves the
    keys as they are.
    """

    def __init__(
        self, fetch: FetchKeys, clock: Clock, *, pause: float = 10, max_age: float = 3600
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._pause = pause
        self._max_age = max_age
        self._keys: dict[str, jwt.PyJWK] = {}
        self._tried_at: float | None = None
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def key(self, kid: str) -> jwt.PyJWK:
        if kid not in self._keys:
            async with self._reading:
                if kid not in self._keys and self._may_try():
                    await self._read()
        elif self._is_old() and self._may_try() and not self._reading.locked():
            # One caller looks for newer keys; the others go on with those they have.
            async with self._reading:
                await self._read()
        if kid in self._keys:
            return self._keys[kid]
        if self._read_at is None:
            raise Unavailable("The issuer's keys are out of reach", retry_after=self._pause)
        raise invalid_token("The token is signed with a key that its issuer does not have")

    def _is_old(self) -> bool:
        return self._read_at is None or self._clock.monotonic() - self._read_at > self._max_age

    def _may_try(self) -> bool:
        return self._tried_at is None or self._clock.monotonic() - self._tried_at >= self._pause

    async def _read(self) -> None:
        self._tried_at = self._clock.monotonic()
        try:
            keys = _usable_keys(await self._fetch())
        except (Unavailable, msgspec.DecodeError) as error:
            _log.warning(
                "The issuer's keys could not be read",
                action="jwks_refresh",
                error=error,
                known=len(self._keys),
            )
            return
        self._keys = keys
        self._read_at = self._clock.monotonic()


class _PublishedKeys(msgspec.Struct):
    keys: list[dict[str, Any]]


def _usable_keys(body: bytes) -> dict[str, jwt.PyJWK]:
    """Those with an id that sign with an algorithm we allow; others are none of our business."""
    usable = {}
    for published in msgspec.json.decode(body, type=_PublishedKeys).keys:
        kid, kind = published.get("kid"), published.get("kty")
        algorithm = next((name for name, its_kind in ALGORITHMS.items() if its_kind == kind), None)
        is_for_signing = (
            published.get("use", "sig") == "sig" and published.get("alg", algorithm) == algorithm
        )
        if not isinstance(kid, str) or algorithm is None or not is_for_signing:
            continue
        try:
            usable[kid] = jwt.PyJWK(published, algorithm)
        except jwt.PyJWTError as error:
            _log.warning(
                "A published key cannot be used", action="jwks_refresh", kid=kid, error=error
            )
    return usable


class TokenVerifier:
    """Checks tokens of one issuer for one audience."""

    def __init__(
        self, keys: KeySet, clock: Clock, *, issuer: str, audience: str, leeway: float = 30
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._issuer = issuer
        self._audience = audience
        self._leeway = leeway

    async def verify(self, token: str) -> Claims:
        """The claims of `token`, or Unauthenticated: `token_expired` where its time is over, else `invalid_token`."""
        key = await self._keys.key(_key_id(token))
        try:
            claims = jwt.decode(
                token, key, algorithms=[key.algorithm_name], options=OPTIONS, issuer=self._issuer
            )
        except jwt.InvalidIssuerError as error:
            raise invalid_token("The token is another issuer's") from error
        except jwt.PyJWTError as error:
            raise invalid_token("Invalid token") from error
        self._check_audience(claims)
        check_times(claims, self._clock, self._leeway)
        return claims

    def _check_audience(self, claims: Claims) -> None:
        # An access token of Cognito's has no `aud`; what it was made for is its `client_id`.
        audience = claims.get("aud", claims.get("client_id"))
        if self._audience not in (audience if isinstance(audience, list) else [audience]):
            raise invalid_token("The token was made for another audience")


def check_times(claims: Claims, clock: Clock, leeway: float) -> None:
    """Whether a token with these claims is valid at this moment; its numbers are somebody else's, and may be anything."""
    now = clock.time_ns() / 1e9
    times = [claims["exp"], claims.get("nbf", 0), claims.get("iat", 0)]
    if any(isinstance(moment, bool) or not isinstance(moment, (int, float)) for moment in times):
        raise invalid_token("The token's times are not numbers")
    expires, *starts = times
    if not expires > now - leeway:
        raise Unauthenticated("The token has expired", code="token_expired")
    if not all(moment <= now + leeway for moment in starts):
        raise invalid_token("The token is not valid yet")


def _key_id(token: str) -> str:
    header = unverified_header(token)
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or not isinstance(kid, str):
        raise invalid_token("The token is not signed in a way that is accepted here")
    return kid


def unverified_header(token: str) -> Claims:
    """What a token says of itself, which nobody has signed for yet."""
    if len(token) > MAX_TOKEN:
        raise invalid_token("The token is too long")
    try:
        return jwt.get_unverified_header(token)
    except (jwt.PyJWTError, RecursionError) as error:
        raise invalid_token("The token is not a JSON Web Token") from error
