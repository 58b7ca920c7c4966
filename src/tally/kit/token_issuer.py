"""Issues and verifies this program's own JSON Web Tokens.

    tokens = TokenIssuer(keyring, clock, issuer="tally", audience="scoreboard")
    token = tokens.issue(user_id, seconds=900, jti=new_uuid())
    claims = tokens.verify(token)  # or Unauthenticated: token_expired, invalid_token

`tally.kit.auth` verifies tokens of other issuers. Here signer and verifier are the same program, so
the algorithm is pinned to HMAC-SHA256 and does not depend on the token's header.
"""

from typing import Final

import jwt

from tally.kit.auth import DECODE_OPTIONS, Claims, check_times, invalid_token, unverified_header
from tally.kit.clock import Clock
from tally.kit.keyring import Keyring
from tally.kit.ttl_cache import TTLCache

ALGORITHM: Final = "HS256"
# Verifying a signature takes ten times as long as the rest of the authentication, and clients send
# the same token with every request.
MAX_CACHED_TOKENS: Final = 10_000
CACHE_SECONDS: Final = 300.0


class TokenIssuer:
    """Issues and verifies tokens of one issuer for one audience."""

    def __init__(
        self, keys: Keyring, clock: Clock, *, issuer: str, audience: str, leeway: float = 0
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._issuer = issuer
        self._audience = audience
        self._leeway = leeway
        self._verified: TTLCache[str, Claims] = TTLCache(clock, CACHE_SECONDS, MAX_CACHED_TOKENS)

    def issue(self, subject: str, *, seconds: int, **claims: str) -> str:
        """Return a token for `subject` that expires after `seconds`."""
        now = self._clock.seconds()
        times = {"iat": now, "exp": now + seconds}
        payload = {"iss": self._issuer, "aud": self._audience, "sub": subject, **times, **claims}
        key = self._keys.signing
        return jwt.encode(payload, key.reveal(), ALGORITHM, {"kid": key.key_id})

    def verify(self, token: str) -> Claims:
        """Return the claims of `token`, or raise Unauthenticated.

        The code is `token_expired` for an expired token and `invalid_token` for any other.
        """
        claims = self._verified.get(token)
        if claims is None:
            claims = self._decode(token)
            self._verified.put(token, claims)
        check_times(claims, self._clock, self._leeway)
        return claims

    def _decode(self, token: str) -> Claims:
        """Return the claims of a token with a valid signature, expired or not."""
        header = unverified_header(token)
        kid = header.get("kid")
        key = self._keys.get(kid) if isinstance(kid, str) else None
        if header.get("alg") != ALGORITHM or key is None:
            raise invalid_token("The token has an unsupported algorithm or an unknown key ID")
        try:
            claims = jwt.decode(
                token, key.reveal(), [ALGORITHM], DECODE_OPTIONS, issuer=self._issuer
            )
        except jwt.PyJWTError as error:
            raise invalid_token("Invalid token") from error
        if claims.get("aud") != self._audience:
            raise invalid_token("The token has an unexpected audience")
        return claims
