"""Ports through which the services reach the outside."""

from dataclasses import dataclass, field
from typing import Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail in plain text."""

    to: str
    subject: str
    text: str = field(repr=False)


class Mailer(Protocol):
    """Sends mails."""

    async def send(self, mail: Mail) -> None:
        """Send a mail; raises Unavailable."""


class RankedPlayer(msgspec.Struct, frozen=True):
    """An entry of a leaderboard update."""

    rank: int
    user_id: str
    username: str
    score: int
    avatar_url: str | None = None


class LeaderboardUpdate(msgspec.Struct, frozen=True):
    """The top of the leaderboard.

    `changed_positions` are the ranks whose player or score differs from the previous update.
    """

    leaderboard: tuple[RankedPlayer, ...]
    changed_positions: tuple[int, ...]
    total_players: int
    timestamp: str


class Publisher(Protocol):
    """Delivers leaderboard updates to the subscribers of this process."""

    def has_subscribers(self) -> bool:
        """Return whether a client is subscribed, or was until recently and may reconnect."""

    def subscriber_count(self) -> int:
        """Return the number of clients that are subscribed now."""

    def publish(self, update: LeaderboardUpdate) -> None:
        """Send the update to all subscribers."""


class BoardUpdate(msgspec.Struct, frozen=True):
    """The top of a named board in its open season, and when that season began and ends."""

    board_id: str
    season: int
    season_started_at: str
    season_ends_at: str | None
    leaderboard: tuple[RankedPlayer, ...]
    changed_positions: tuple[int, ...]
    total_players: int
    timestamp: str


class BoardPublisher(Protocol):
    """Delivers updates of named boards to the subscribers of this process."""

    def has_subscribers(self, board_id: str) -> bool:
        """Return whether a client is subscribed to the board, or was until recently."""

    def publish(self, board_id: str, update: BoardUpdate) -> None:
        """Send the update to all subscribers of the board."""


class ChangeListener(Protocol):
    """Whom the writer of a leaderboard notifies of changes."""

    def notify_rank(self, *ranks: int | None) -> None:
        """Report that the players at these ranks changed."""

    def notify_change(self) -> None:
        """Report that any part of the leaderboard may have changed."""
