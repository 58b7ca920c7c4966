"""The interfaces to external systems that the services depend on."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from tally.collect.model.files import ParsedFile
from tally.collect.model.records import (
    AthleteTokens,
    OidcIdentity,
    StravaSubscription,
    StravaTokens,
)
from tally.collect.model.workouts import Workout
from tally.settings import Secret

# Parses an activity file; raises Invalid or TooLarge with the reason.
ParseFile: TypeAlias = Callable[[bytes], Awaitable[ParsedFile]]
# Stores the refresh token that replaces one that was used.
KeepToken: TypeAlias = Callable[[str], Awaitable[None]]
# Deletes an identity at the OIDC provider, authorized by a refresh token.
DeleteIdentity: TypeAlias = Callable[[str, KeepToken], Awaitable[None]]


class StravaClient(Protocol):
    """The Strava API. Failures raise Unavailable or RateLimited, rejected tokens TokensRevoked.

    Of the failures, ApplicationInactive is permanent until the operator acts.
    """

    def authorize_url(self, redirect_uri: str, state: str) -> str: ...

    def is_paused(self) -> bool:
        """Whether an exhausted rate limit forbids reading activities for now."""

    def pause_seconds(self) -> float:
        """Return the seconds until activities may be read again; 0 if they may be read now."""

    async def exchange(self, code: str) -> AthleteTokens: ...

    async def refresh(self, refresh_token: str) -> StravaTokens: ...

    async def revoke(self, refresh_token: str) -> None:
        """Revoke an authorization with all its tokens; idempotent."""

    async def activity(
        self, access_token: str, activity_id: int, athlete_id: int
    ) -> Workout | None:
        """Read an activity, without a user id; None if the athlete has no such activity."""


class SubscriptionClient(Protocol):
    """The webhook subscription at Strava. A refusal raises Invalid with Strava's reason."""

    async def find(self) -> StravaSubscription | None: ...

    async def create(self, callback_url: str, verify_token: Secret) -> int: ...

    async def delete(self, subscription_id: int) -> None: ...


class ActivityLists(Protocol):
    """The lists of activities at Strava. Failures are those of `StravaClient`."""

    def sync_delay(self) -> float:
        """Return the seconds until a sync may read, so that events keep their share."""

    async def list_activities(
        self, access_token: str, athlete_id: int, after: int, page: int
    ) -> list[Workout]:
        """Read a page of the activities that start after `after`, oldest first."""


class IdentityProvider(Protocol):
    """The OIDC provider. An invalid code or token raises Unauthenticated."""

    async def authorize_url(
        self, redirect_uri: str, state: str, nonce: str, challenge: str
    ) -> str: ...

    async def identify(
        self, code: str, redirect_uri: str, nonce: str, verifier: str
    ) -> OidcIdentity: ...
