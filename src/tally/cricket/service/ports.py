"""The ports of the services: what gateways and the HTTP API implement for them."""

from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from typing import Any, Protocol

from tally.cricket.model.feed import LivePoll, MatchFeed
from tally.cricket.model.push import Priority, Push, PushResult
from tally.cricket.model.records import (
    Fixture,
    League,
    Team,
    TeamSeason,
)


class ReadDisplay(Protocol):
    """Reads the display state of a match for a view: a team id, or `NEUTRAL`.

    Raises NotFound if the match does not exist and Invalid if the team does not play in it.
    """

    async def __call__(self, match_id: str, view: str) -> Mapping[str, Any]: ...


class ReferenceData(Protocol):
    """Leagues, teams and fixtures of the score service.

    Every method raises Unavailable if the service is unavailable.
    """

    async def leagues(self) -> Sequence[League]: ...

    async def teams(self) -> Sequence[Team]: ...

    async def season_teams(self, league: League) -> Sequence[TeamSeason]:
        """Return the teams of the league's current season."""

    def fixtures(
        self, leagues: Sequence[League], since: str, until: str
    ) -> AsyncGenerator[Sequence[tuple[Fixture, MatchFeed]], None]:
        """Yield pages of the leagues' matches that start on a day from `since` to `until`."""

    def fixtures_interval(self) -> float:
        """Return the seconds between syncs of fixtures that the remaining quota allows."""


class LiveScores(Protocol):
    """Current scores of the score service.

    Every method raises Unavailable or RateLimited if the service does not respond.
    """

    async def live(self) -> LivePoll:
        """Return all matches that are currently covered, with one request."""

    async def match(self, match_id: str) -> MatchFeed | None:
        """Return one match, live or past; None if it does not exist."""

    def live_interval(self) -> float:
        """Return the seconds between polls that the remaining quota allows."""


class PushGateway(Protocol):
    """Sends pushes to device tokens and broadcasts to channels.

    Sending never raises for a response of APNs or a network error: the result describes it.
    """

    @property
    def is_configured(self) -> bool:
        """Whether a signing key is configured.

        Without one, nothing is sent and every result is RETRY with the reason NotConfigured.
        """

    async def send(self, push: Push) -> PushResult:
        """Send one push, and retry transient failures with back-off for some seconds.

        Status 429, 500 and 503, broken connections and time-outs are retried. APNs may have
        accepted an attempt whose response was lost, so a device can receive a push twice, with the
        same `apns_id`, unless it is not `is_repeatable`. Pushes to one token are sent one after
        another, in call order. A push with `is_replaceable` that waits for its next attempt is
        SUPERSEDED by a newer push to its token.
        """

    def send_all(
        self, pushes: AsyncIterable[Push], concurrency: int | None = None
    ) -> AsyncGenerator[tuple[Push, PushResult], None]:
        """Send a stream of pushes; yield each with its result, in order of completion.

        `pushes` is consumed only as fast as the results are: at most `concurrency` (default: the
        capacity of the connections) are in flight, and at most twice as many are in memory. Each
        push is handled as by `send`. Close the generator (`contextlib.aclosing`) if you do not
        exhaust it. An error of `pushes` is raised after the results of the pushes in flight.
        """

    async def broadcast(
        self, channel_id: str, payload: bytes, *, priority: Priority, expiration: int = 0
    ) -> PushResult:
        """Send an update or end payload to all subscribers of a channel.

        TOKEN_INVALID means that the channel does not exist. Broadcasts to one channel are sent in
        call order; a newer one supersedes one that waits for its next attempt.
        """

    async def create_channel(self, *, stores_latest: bool = True) -> str:
        """Create a channel and return its id.

        The channel methods raise Unavailable if APNs is unavailable or not configured, and
        Conflict if it rejects the request.
        """

    async def delete_channel(self, channel_id: str) -> bool:
        """Delete a channel; return whether it existed."""

    async def list_channels(self) -> Sequence[str]:
        """Return the ids of all channels of the app, at most 10,000."""
