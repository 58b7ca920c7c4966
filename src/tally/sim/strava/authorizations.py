"""Which athlete allowed the application what: codes, access tokens of six hours, refresh tokens that rotate.

The rules are Strava's: a refresh with more than an hour left gives back what is there; later, it
gives a new access token and, where `rotates` is on, a new refresh token, whereupon the old one is
worth nothing after `grace` seconds. Older access tokens hold until they expire. Whoever takes back
the permission takes back everything.
"""

import random
from typing import Final

import msgspec

from tally.kit.clock import Clock
from tally.sim.strava.model import bad_request, unauthorized

CODE_SECONDS: Final = 600
ACCESS_SECONDS: Final = 6 * 3600
# With more than this left, a refresh brings nothing new.
FRESH_SECONDS: Final = 3600
SCOPES: Final = frozenset(
    {
        "read",
        "read_all",
        "profile:read_all",
        "profile:write",
        "activity:read",
        "activity:read_all",
        "activity:write",
    }
)


class StravaGrant(msgspec.Struct, frozen=True):
    """What an athlete allowed, and the newest tokens for it."""

    athlete_id: int
    scope: frozenset[str]
    access_token: str
    refresh_token: str
    expires_at: int


class AccessTokenInfo(msgspec.Struct, frozen=True):
    athlete_id: int
    scope: frozenset[str]
    expires_at: int

    @property
    def reads_activities(self) -> bool:
        return bool(self.scope & {"activity:read", "activity:read_all"})

    @property
    def reads_private_activities(self) -> bool:
        return "activity:read_all" in self.scope


class AuthorizationStore:
    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self.rotates = True
        self.grace = 0.0
        self._codes: dict[str, tuple[int, frozenset[str], int]] = {}
        self._grants: dict[int, StravaGrant] = {}
        self._access: dict[str, AccessTokenInfo] = {}
        # To whom a refresh token belongs, and from when on it is worth nothing.
        self._refresh: dict[str, tuple[int, float]] = {}

    def issue_code(self, athlete_id: int, scope: frozenset[str]) -> str:
        code = self._secret()
        self._codes[code] = athlete_id, scope, self._clock.seconds() + CODE_SECONDS
        return code

    def redeem(self, code: str) -> StravaGrant:
        athlete_id, scope, expires_at = self._codes.pop(code, (0, frozenset[str](), 0))
        if expires_at <= self._clock.seconds():
            raise bad_request("AuthorizationCode", "code")
        return self.grant(athlete_id, scope)

    def grant(self, athlete_id: int, scope: frozenset[str]) -> StravaGrant:
        """Allow it; who had allowed just this before keeps the tokens there are, as far as they are fresh."""
        before = self._grants.get(athlete_id)
        if before is not None and before.scope == scope:
            return (
                before if self._left(before) > FRESH_SECONDS else self._renew(before, rotates=False)
            )
        if before is not None:
            self._outdate(before.refresh_token)
        return self._keep(athlete_id, scope, self._new_refresh_token(athlete_id))

    def refresh(self, refresh_token: str) -> StravaGrant:
        athlete_id, dead_from = self._refresh.get(refresh_token, (0, 0.0))
        grant = self._grants.get(athlete_id)
        if grant is None or self._clock.monotonic() >= dead_from:
            raise bad_request("RefreshToken", "refresh_token")
        return grant if self._left(grant) > FRESH_SECONDS else self._renew(grant, self.rotates)

    def check(self, access_token: str) -> AccessTokenInfo:
        access = self._access.get(access_token)
        if access is None or access.expires_at <= self._clock.seconds():
            raise unauthorized("Athlete", "access_token")
        return access

    def granted(self, athlete_id: int) -> AccessTokenInfo | None:
        """What the athlete allows now."""
        grant = self._grants.get(athlete_id)
        return (
            None
            if grant is None
            else AccessTokenInfo(grant.athlete_id, grant.scope, grant.expires_at)
        )

    def grants(self) -> list[StravaGrant]:
        return list(self._grants.values())

    def readmit(self, grant: StravaGrant) -> None:
        """Let a grant count that was made before a restart."""
        self._grants[grant.athlete_id] = grant
        self._access[grant.access_token] = AccessTokenInfo(
            grant.athlete_id, grant.scope, grant.expires_at
        )
        self._refresh[grant.refresh_token] = grant.athlete_id, float("inf")

    def revoke(self, athlete_id: int) -> bool:
        """Take back everything; whether there was anything."""
        self._access = {
            token: access
            for token, access in self._access.items()
            if access.athlete_id != athlete_id
        }
        self._refresh = {
            token: kept for token, kept in self._refresh.items() if kept[0] != athlete_id
        }
        return self._grants.pop(athlete_id, None) is not None

    def expire(self, athlete_id: int) -> None:
        """Let the access tokens of an athlete be over now, whatever they said."""
        now = self._clock.seconds()
        for token, access in self._access.items():
            if access.athlete_id == athlete_id:
                self._access[token] = msgspec.structs.replace(access, expires_at=now)
        if athlete_id in self._grants:
            self._grants[athlete_id] = msgspec.structs.replace(
                self._grants[athlete_id], expires_at=now
            )

    def _renew(self, grant: StravaGrant, rotates: bool) -> StravaGrant:
        refresh_token = grant.refresh_token
        if rotates:
            self._outdate(refresh_token)
            refresh_token = self._new_refresh_token(grant.athlete_id)
        return self._keep(grant.athlete_id, grant.scope, refresh_token)

    def _keep(self, athlete_id: int, scope: frozenset[str], refresh_token: str) -> StravaGrant:
        before = self._grants.get(athlete_id)
        if before is not None and self._left(before) <= 0:
            del self._access[before.access_token]
        expires_at = self._clock.seconds() + ACCESS_SECONDS
        grant = StravaGrant(athlete_id, scope, self._secret(), refresh_token, expires_at)
        self._grants[athlete_id] = grant
        self._access[grant.access_token] = AccessTokenInfo(athlete_id, scope, expires_at)
        return grant

    def _outdate(self, refresh_token: str) -> None:
        athlete_id, dead_from = self._refresh[refresh_token]
        self._refresh[refresh_token] = (
            athlete_id,
            min(dead_from, self._clock.monotonic() + self.grace),
        )

    def _new_refresh_token(self, athlete_id: int) -> str:
        token = self._secret()
        self._refresh[token] = athlete_id, float("inf")
        return token

    def _left(self, grant: StravaGrant) -> int:
        return grant.expires_at - self._clock.seconds()

    def _secret(self) -> str:
        return f"{self._rng.getrandbits(160):040x}"
