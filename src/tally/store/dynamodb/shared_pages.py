"""Sharing the pages of shards between processes: one reads a shard, the others read its pages.

DynamoDB allows two readers per shard. With a `PageExchange`, the process that holds the lock of a
shard polls the service and publishes what it finds; without one, or while it is unavailable, every
process polls.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct

# How often a process looks for pages of another one.
SHARED_POLL_SECONDS: Final = 0.25


class SharedPage(Struct, frozen=True, array_like=True):
    """Records that follow the number `lower`, and the service's iterator after them.

    `iterator` is None at the end of a closed shard.
    """

    lower: str
    records: Sequence[Mapping[str, Any]]
    iterator: str | None


class ExchangeUnavailable(Exception):
    """Pages cannot be shared at the moment."""


class PageExchange(Protocol):
    """Shares pages; a shard is named by the ARN of its stream and its id."""

    async def lead(self, shard: str) -> bool:
        """Return whether this process polls the service for the shard; renews its lock."""

    async def publish(self, shard: str, page: SharedPage) -> None:
        """Give a page to the other processes, if this process still holds the lock."""

    async def pages(self, shard: str) -> list[SharedPage]:
        """Return the pages that were published since the last call."""
