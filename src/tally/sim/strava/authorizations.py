"""Authorizations of athletes: codes, access tokens and rotating refresh tokens.

The rules are Strava's. Access tokens expire after six hours. A refresh with more than an hour left
returns the current tokens. Later it issues a new access token and, with `rotates`, a new refresh
token; the old one expires after `grace` seconds. Older access tokens stay valid until they expire.
Revoking an authorization revokes all of its tokens.
"""

import random
from typing import Final

import msgspec

from tally.kit.clock import Clock
from tally.sim.strava.model import bad_request, unauthorized

CODE_SECONDS: Final = 600
ACCESS_SECONDS: Final = 6 * 3600
# A refresh returns the current tokens if they are valid for longer than this.
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
    """An athlete's authorization and its current tokens."""

    athlete_id: int
    scope: frozenset[str]
    access_token: str
    refresh_token: str
    expires_at: int


class AccessTokenInfo(msgspec.Struct, frozen=True):
    """Owner, scope and expiry of an access token."""

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
    """The codes, tokens and authorizations of the application."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self.rotates = True
        self.grace = 0.0
        self._codes: dict[str, tuple[int, frozenset[str], int]] = {}
        self._grants: dict[int, StravaGrant] = {}
        self._access: dict[str, AccessTokenInfo] = {}
        # The athlete and the monotonic expiry of each refresh token.
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
        """Authorize the application; an unchanged authorization keeps its current tokens."""
        previous = self._grants.get(athlete_id)
        if previous is not None and previous.scope == scope:
            return (
                previous
                if self._remaining(previous) > FRESH_SECONDS
                else self._renew(previous, rotates=False)
            )
        if previous is not None:
            self._expire_refresh_token(previous.refresh_token)
        return self._issue(athlete_id, scope, self._new_refresh_token(athlete_id))

    def refresh(self, refresh_token: str) -> StravaGrant:
        athlete_id, expires_at_monotonic = self._refresh.get(refresh_token, (0, 0.0))
        grant = self._grants.get(athlete_id)
        if grant is None or self._clock.monotonic() >= expires_at_monotonic:
            raise bad_request("RefreshToken", "refresh_token")
        return grant if self._remaining(grant) > FRESH_SECONDS else self._renew(grant, self.rotates)

    def check(self, access_token: str) -> AccessTokenInfo:
        access = self._access.get(access_token)
        if access is None or access.expires_at <= self._clock.seconds():
            raise unauthorized("Athlete", "access_token")
        return access

    def athlete_of(self, token: str) -> int | None:
        """The athlete of an access or refresh token; None for an unknown token."""
        if token in self._access:
            return self._access[token].athlete_id
        return self._refresh[token][0] if token in self._refresh else None

    def access_token_for(self, athlete_id: int) -> AccessTokenInfo | None:
        """What the athlete authorizes now; None if nothing."""
        grant = self._grants.get(athlete_id)
        return (
            None
            if grant is None
            else AccessTokenInfo(grant.athlete_id, grant.scope, grant.expires_at)
        )

    def grants(self) -> list[StravaGrant]:
        return list(self._grants.values())

    def restore(self, grant: StravaGrant) -> None:
        """Restore a grant from a snapshot."""
        self._grants[grant.athlete_id] = grant
        self._access[grant.access_token] = AccessTokenInfo(
            grant.athlete_id, grant.scope, grant.expires_at
        )
        self._refresh[grant.refresh_token] = grant.athlete_id, float("inf")

    def revoke(self, athlete_id: int) -> bool:
        """Revoke all tokens of an athlete; whether there were any."""
        self._access = {
            token: access
            for token, access in self._access.items()
            if access.athlete_id != athlete_id
        }
        self._refresh = {
            token: entry for token, entry in self._refresh.items() if entry[0] != athlete_id
        }
        return self._grants.pop(athlete_id, None) is not None

    def expire(self, athlete_id: int) -> None:
        """Expire the access tokens of an athlete now."""
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
            self._expire_refresh_token(refresh_token)
            refresh_token = self._new_refresh_token(grant.athlete_id)
        return self._issue(grant.athlete_id, grant.scope, refresh_token)

    def _issue(self, athlete_id: int, scope: frozenset[str], refresh_token: str) -> StravaGrant:
        previous = self._grants.get(athlete_id)
        if previous is not None and self._remaining(previous) <= 0:
            del self._access[previous.access_token]
        expires_at = self._clock.seconds() + ACCESS_SECONDS
        grant = StravaGrant(athlete_id, scope, self._secret(), refresh_token, expires_at)
        self._grants[athlete_id] = grant
        self._access[grant.access_token] = AccessTokenInfo(athlete_id, scope, expires_at)
        return grant

    def _expire_refresh_token(self, refresh_token: str) -> None:
        athlete_id, expires_at_monotonic = self._refresh[refresh_token]
        self._refresh[refresh_token] = (
            athlete_id,
            min(expires_at_monotonic, self._clock.monotonic() + self.grace),
        )

    def _new_refresh_token(self, athlete_id: int) -> str:
        token = self._secret()
        self._refresh[token] = athlete_id, float("inf")
        return token

    def _remaining(self, grant: StravaGrant) -> int:
        return grant.expires_at - self._clock.seconds()

    def _secret(self) -> str:
        return f"{self._rng.getrandbits(160):040x}"
