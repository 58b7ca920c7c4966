"""JSON Web Tokens that this program makes for itself: signed with the keys of a keyring, checked against them.

    tokens = TokenIssuer(keyring, clock, issuer="tally", audience="scoreboard")
    token = tokens.issue(user_id, seconds=900, jti=new_uuid())
    claims = tokens.verify(token)  # or Unauthenticated: token_expired, invalid_token

Tokens of others are checked by `tally.kit.auth`. Here signer and verifier are the same, so one
algorithm is pinned, HMAC-SHA256, whatever a token says of itself.
"""

from typing import Final

import jwt

from tally.kit.auth import OPTIONS, Claims, check_times, invalid_token, unverified_header
from tally.kit.clock import Clock
from tally.kit.keyring import Keyring
from tally.kit.ttl_cache import TTLCache

ALGORITHM: Final = "HS256"
# To read a token and check its signature takes ten times as long as anything else that is done with
# it, and clients send the same one with every request.
REMEMBERED: Final = 10_000
REMEMBERED_SECONDS: Final = 300.0


class TokenIssuer:
    """Makes and checks tokens of one issuer for one audience."""

    def __init__(
        self, keys: Keyring, clock: Clock, *, issuer: str, audience: str, leeway: float = 0
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._issuer = issuer
        self._audience = audience
        self._leeway = leeway
        self._verified: TTLCache[str, Claims] = TTLCache(clock, REMEMBERED_SECONDS, REMEMBERED)

    def issue(self, subject: str, *, seconds: int, **claims: str) -> str:
        """A token for `subject` that is good for so many seconds."""
        now = self._clock.seconds()
        times = {"iat": now, "exp": now + seconds}
        told = {"iss": self._issuer, "aud": self._audience, "sub": subject, **times, **claims}
        key = self._keys.signing
        return jwt.encode(told, key.reveal(), ALGORITHM, {"kid": key.key_id})

    def verify(self, token: str) -> Claims:
        """The claims of `token`, or Unauthenticated: `token_expired` where its time is over, else `invalid_token`."""
        claims = self._verified.get(token)
        if claims is None:
            claims = self._read(token)
            self._verified.put(token, claims)
        check_times(claims, self._clock, self._leeway)
        return claims

    def _read(self, token: str) -> Claims:
        """The claims of a token that is ours, whether or not its time is over."""
        header = unverified_header(token)
        kid = header.get("kid")
        key = self._keys.get(kid) if isinstance(kid, str) else None
        if header.get("alg") != ALGORITHM or key is None:
            raise invalid_token("The token is not signed in a way that is accepted here")
        try:
            claims = jwt.decode(token, key.reveal(), [ALGORITHM], OPTIONS, issuer=self._issuer)
        except jwt.PyJWTError as error:
            raise invalid_token("Invalid token") from error
        if claims.get("aud") != self._audience:
            raise invalid_token("The token was made for another audience")
        return claims
