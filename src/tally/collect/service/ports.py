"""The interfaces to external systems and to SSE subscribers that the services depend on."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from tally.collect.model.records import (
    AthleteTokens,
    Award,
    Milestone,
    OidcIdentity,
    StravaTokens,
    Workout,
)

# Deletes an identity at the OIDC provider, authorized by a refresh token.
DeleteIdentity: TypeAlias = Callable[[str], Awaitable[None]]


class Publisher(Protocol):
    """Notifies SSE subscribers of a milestone."""

    def publish(self, milestone: Milestone, awards: Sequence[Award]) -> None:
        """Publish a written change, with the awards that it minted."""


class StravaClient(Protocol):
    """The Strava API. Failures raise Unavailable or RateLimited, rejected tokens TokensRevoked."""

    def authorize_url(self, redirect_uri: str, state: str) -> str: ...

    def is_paused(self) -> bool:
        """Whether an exhausted rate limit forbids reading activities for now."""

    async def exchange(self, code: str) -> AthleteTokens: ...

    async def refresh(self, refresh_token: str) -> StravaTokens: ...

    async def deauthorize(self, access_token: str) -> None: ...

    async def activity(
        self, access_token: str, activity_id: int, athlete_id: int
    ) -> Workout | None:
        """Read an activity, without a user id; None if the athlete has no such activity."""


class IdentityProvider(Protocol):
    """The OIDC provider. An invalid code or token raises Unauthenticated."""

    async def authorize_url(
        self, redirect_uri: str, state: str, nonce: str, challenge: str
    ) -> str: ...

    async def identify(
        self, code: str, redirect_uri: str, nonce: str, verifier: str
    ) -> OidcIdentity: ...
