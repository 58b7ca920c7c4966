"""Authenticates requests: API keys, bearer tokens and JSON Web Tokens.

`require_key` compares a credential with one known secret in constant time.
`TokenVerifier` verifies a JWT with the keys that its issuer publishes: signature, algorithm,
issuer, audience and times. A token that was verified before needs only the last check, until the
issuer's keys change. An invalid credential raises `Unauthenticated`. If the issuer cannot be
reached and no keys are cached, the error is `Unavailable`, because the token may be valid.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

import jwt
import msgspec
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import ResponseBodyReader
from starlette.requests import HTTPConnection

from tally.errors import Unauthenticated, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache
from tally.settings import Secret

V = TypeVar("V")
Claims: TypeAlias = Mapping[str, Any]
# Fetches the issuer's key set; raises Unavailable if it cannot.
FetchKeys: TypeAlias = Callable[[], Awaitable[bytes]]

MAX_TOKEN_LENGTH: Final = 8192
MAX_KEY_SET_BYTES: Final = 256 * 1024
MAX_CACHED_TOKENS: Final = 10_000
TOKEN_CACHE_SECONDS: Final = 3_600.0
# Asymmetric algorithms only: with a symmetric one, anyone with the public key could sign.
ALGORITHMS: Final = {"RS256": "RSA", "ES256": "EC"}
# `check_times` uses the injected clock, and `_check_audience` accepts `client_id`.
DECODE_OPTIONS: Final[Any] = {
    "require": ["exp", "iss", "sub"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
}

_NUMBERS: Final = {int, float}
_log = logs.logger()


def matches_secret(candidate: str, expected: Secret) -> bool:
    """Compare in constant time, without revealing the length of the secret."""
    return hmac.compare_digest(_digest(candidate), _digest(expected.reveal()))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def read_header(request: HTTPConnection, name: bytes) -> str | None:
    """Return the first header with this name in lower case.

    Building Starlette's mapping of headers costs more than checking a known credential.
    """
    for found, value in request.scope["headers"]:
        if found == name:
            return str(value, "latin-1")
    return None


def api_key(request: HTTPConnection, header: str = "X-API-Key") -> str:
    """Return the API key in `header`, unverified."""
    key = read_header(request, header.lower().encode())
    if not key:
        raise Unauthenticated(f"Missing {header} header", code="missing_api_key")
    return key


def require_key(request: HTTPConnection, expected: Secret, header: str = "X-API-Key") -> None:
    if not matches_secret(api_key(request, header), expected):
        raise Unauthenticated(f"Invalid API key in {header}", code="invalid_api_key")


def bearer_token(request: HTTPConnection) -> str:
    """Return the token in the Authorization header, unverified."""
    scheme, _, token = (read_header(request, b"authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated(
            "The Authorization header must have the form: Bearer <token>", code="missing_token"
        )
    return token.strip()


def invalid_token(message: str) -> Unauthenticated:
    return Unauthenticated(message, code="invalid_token")


def http_key_fetcher(client: Client, url: str) -> FetchKeys:
    """Return a function that fetches the key set at `url`."""

    async def fetch() -> bytes:
        try:
            async with client.get(url).error_for_status().build_streamed() as response:
                return await _read_bounded(response.body_reader, MAX_KEY_SET_BYTES)
        except PyreqwestError as error:
            raise Unavailable(f"Cannot fetch the issuer's keys: {type(error).__name__}") from error

    return fetch


async def _read_bounded(reader: ResponseBodyReader, limit: int) -> bytes:
    body = bytearray()
    while (chunk := await reader.read_chunk()) is not None:
        body += chunk
        if len(body) > limit:
            raise Unavailable(f"The issuer's key set exceeds {limit} bytes")
    return bytes(body)


class KeySet:
    """Caches the public keys of an issuer.

    Fetches them on first use, after `max_age` seconds and when a token names an unknown key, but at
    most once per `min_interval` seconds. A failed fetch keeps the cached keys.
    """

    def __init__(
        self, fetch: FetchKeys, clock: Clock, *, min_interval: float = 10, max_age: float = 3600
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._min_interval = min_interval
        self._max_age = max_age
        self._keys: dict[str, jwt.PyJWK] = {}
        self._attempted_at: float | None = None
        self._fetched_at: float | None = None
        self._fetch_lock = asyncio.Lock()

    async def key(self, kid: str) -> jwt.PyJWK:
        if kid not in self._keys:
            async with self._fetch_lock:
                if kid not in self._keys and self._may_fetch():
                    await self._refresh()
        elif self._is_stale() and self._may_fetch() and not self._fetch_lock.locked():
            # One caller refreshes the keys; the others continue with the cached ones.
            async with self._fetch_lock:
                await self._refresh()
        if kid in self._keys:
            return self._keys[kid]
        if self._fetched_at is None:
            raise Unavailable("The issuer's keys are unavailable", retry_after=self._min_interval)
        raise invalid_token("The token has a key ID that the issuer does not publish")

    def _is_stale(self) -> bool:
        fetched_at = self._fetched_at
        return fetched_at is None or self._clock.monotonic() - fetched_at > self._max_age

    def _may_fetch(self) -> bool:
        attempted_at = self._attempted_at
        return attempted_at is None or self._clock.monotonic() - attempted_at >= self._min_interval

    async def _refresh(self) -> None:
        self._attempted_at = self._clock.monotonic()
        try:
            keys = _usable_keys(await self._fetch())
        except (Unavailable, msgspec.DecodeError) as error:
            _log.warning(
                "Refreshing the issuer's keys failed",
                action="jwks_refresh_failed",
                error=error,
                cached=len(self._keys),
            )
            return
        self._keys = keys
        self._fetched_at = self._clock.monotonic()


class _PublishedKeys(msgspec.Struct):
    keys: list[dict[str, Any]]


def _usable_keys(body: bytes) -> dict[str, jwt.PyJWK]:
    """Return the signing keys that have an ID and an allowed algorithm, by ID."""
    usable = {}
    for published in msgspec.json.decode(body, type=_PublishedKeys).keys:
        kid, kind = published.get("kid"), published.get("kty")
        algorithm = next((name for name, key_type in ALGORITHMS.items() if key_type == kind), None)
        is_for_signing = (
            published.get("use", "sig") == "sig" and published.get("alg", algorithm) == algorithm
        )
        if not isinstance(kid, str) or algorithm is None or not is_for_signing:
            continue
        try:
            usable[kid] = jwt.PyJWK(published, algorithm)
        except jwt.PyJWTError as error:
            _log.warning(
                "Published key is unusable", action="jwks_key_skipped", kid=kid, error=error
            )
    return usable


class TokenCache(Generic[V]):
    """What is known of verified tokens, by hash: clients send the same token with each request.

    A signature took 42 % of the CPU time of such a request. The caller checks what can change: the
    expiry, and whether the key is still valid.
    """

    def __init__(self, clock: Clock) -> None:
        self._values: TTLCache[bytes, V] = TTLCache(clock, TOKEN_CACHE_SECONDS, MAX_CACHED_TOKENS)

    def get(self, token: str) -> V | None:
        return self._values.get(_digest(token))

    def put(self, token: str, value: V) -> None:
        self._values.put(_digest(token), value)


class TokenVerifier:
    """Verifies tokens of one issuer for one audience."""

    def __init__(
        self, keys: KeySet, clock: Clock, *, issuer: str, audience: str, leeway: float = 30
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._issuer = issuer
        self._audience = audience
        self._leeway = leeway
        self._verified: TokenCache[tuple[str, jwt.PyJWK, Claims]] = TokenCache(clock)

    async def verify(self, token: str) -> Claims:
        """Return the claims of `token`, or raise Unauthenticated.

        The code is `token_expired` for an expired token and `invalid_token` for any other.
        """
        key_id, verified_with, claims = self._verified.get(token) or (_key_id(token), None, {})
        key = await self._keys.key(key_id)
        # A refresh of the key set replaces all keys, so each token is verified again.
        if key is not verified_with:
            claims = self._decode(token, key)
            self._verified.put(token, (key_id, key, claims))
        check_times(claims, self._clock, self._leeway)
        return claims

    def _decode(self, token: str, key: jwt.PyJWK) -> Claims:
        """Return the claims of a token with a valid signature, expired or not."""
        try:
            claims: Claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                options=DECODE_OPTIONS,
                issuer=self._issuer,
            )
        except jwt.InvalidIssuerError as error:
            raise invalid_token("The token has an unexpected issuer") from error
        except jwt.PyJWTError as error:
            raise invalid_token("Invalid token") from error
        self._check_audience(claims)
        return claims

    def _check_audience(self, claims: Claims) -> None:
        # Cognito's access tokens have no `aud`; `client_id` names the audience.
        audience = claims.get("aud", claims.get("client_id"))
        if self._audience not in (audience if isinstance(audience, list) else [audience]):
            raise invalid_token("The token has an unexpected audience")


def check_times(claims: Claims, clock: Clock, leeway: float) -> None:
    """Raise Unauthenticated unless the token is valid now; the claims may have any type."""
    now = clock.time_ns() / 1e9
    expires, starts, issued = claims["exp"], claims.get("nbf", 0), claims.get("iat", 0)
    if not {type(expires), type(starts), type(issued)} <= _NUMBERS:
        raise invalid_token("The token has a time that is not a number")
    if not expires > now - leeway:
        raise Unauthenticated("The token has expired", code="token_expired")
    if not (starts <= now + leeway and issued <= now + leeway):
        raise invalid_token("The token is not valid yet")


def _key_id(token: str) -> str:
    header = unverified_header(token)
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or not isinstance(kid, str):
        raise invalid_token("The token has an unsupported algorithm or no key ID")
    return kid


def unverified_header(token: str) -> Claims:
    """Return the header of a token whose signature has not been verified."""
    if len(token) > MAX_TOKEN_LENGTH:
        raise invalid_token(f"The token must have at most {MAX_TOKEN_LENGTH} characters")
    try:
        return jwt.get_unverified_header(token)
    except (jwt.PyJWTError, RecursionError) as error:
        raise invalid_token("The token is not a JSON Web Token") from error
