"""Ports through which the services reach the outside."""

from typing import Protocol

import msgspec


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
