"""Issues and verifies this program's own JSON Web Tokens.

    tokens = TokenIssuer(keyring, clock, issuer="tally", audience="scoreboard")
    token = tokens.issue(user_id, issued_at=clock.seconds(), seconds=900, jti=new_uuid())
    claims = tokens.verify(token)  # or Unauthenticated: token_expired, invalid_token

`tally.kit.auth` verifies tokens of other issuers. Here signer and verifier are the same program, so
the algorithm is pinned to HMAC-SHA256 and does not depend on the token's header.
"""

from typing import Final

import jwt

from tally.kit.auth import (
    DECODE_OPTIONS,
    Claims,
    TokenCache,
    check_times,
    invalid_token,
    unverified_header,
)
from tally.kit.clock import Clock
from tally.kit.keyring import Keyring

ALGORITHM: Final = "HS256"


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
        self._verified: TokenCache[Claims] = TokenCache(clock)

    def issue(self, subject: str, *, issued_at: int, seconds: int, **claims: str) -> str:
        """Return a token for `subject` that expires `seconds` after `issued_at`.

        The same arguments and signing key return the same token.
        """
        times = {"iat": issued_at, "exp": issued_at + seconds}
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
