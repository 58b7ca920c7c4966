"""What the services ask of the world outside: Strava, the issuer of identities, and those who watch."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from tally.collect.model import Award, Grant, Identity, Milestone, Tokens, Workout

# Tells those who watch a milestone what has just been written.
Announce: TypeAlias = Callable[[Milestone, Sequence[Award]], None]
# Deletes an identity at its issuer, with the refresh token that came with a sign-in.
DeleteIdentity: TypeAlias = Callable[[str], Awaitable[None]]


class Revoked(Exception):
    """Strava no longer accepts the tokens of a link."""


class Strava(Protocol):
    """Strava, with tokens in the clear.

    Trouble is Unavailable or RateLimited; tokens that do not hold are Revoked.
    """

    def authorize_url(self, redirect_uri: str, state: str) -> str: ...

    def is_resting(self) -> bool:
        """Whether activities are not to be asked for now, since a limit is used up."""

    async def exchange(self, code: str) -> Grant: ...

    async def refresh(self, refresh_token: str) -> Tokens: ...

    async def deauthorize(self, access_token: str) -> None: ...

    async def activity(
        self, access_token: str, activity_id: int, athlete_id: int
    ) -> Workout | None:
        """The activity as it is now, of nobody yet; None where this athlete has none like it."""


class Issuer(Protocol):
    """The OIDC issuer. A code or token that does not hold is Unauthenticated."""

    async def authorize_url(
        self, redirect_uri: str, state: str, nonce: str, challenge: str
    ) -> str: ...

    async def identify(
        self, code: str, redirect_uri: str, nonce: str, verifier: str
    ) -> Identity: ...
