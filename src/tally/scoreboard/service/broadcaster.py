"""Publishes changes of the leaderboard's top to other processes and to SSE subscribers.

Two loops coalesce notifications, so a burst costs one read and the latest state wins. The first
publishes the top on a Redis channel after a change in this process. The second reads the top after
a change here or a message from another process, and passes it to the `Publisher`, at most ten times
a second. A channel message only triggers a read, so the order in which processes publish does not
matter. While Redis is unavailable, this process delivers its own changes immediately and polls
PostgreSQL for those of others.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

import msgspec

from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.tasks import running_loops
from tally.scoreboard.model.scores import LeaderboardPage
from tally.scoreboard.repository.channel import UpdateChannel
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.ports import LeaderboardUpdate, Publisher, RankedPlayer
from tally.scoreboard.service.redis_breaker import RedisBreaker

PUBLISHED_RANKS: Final = 10
# Minimum interval between two updates to subscribers, and between two channel messages. The second
# is shorter because the receiving processes coalesce too.
DELIVERY_INTERVAL_SECONDS: Final = 0.1
CHANNEL_INTERVAL_SECONDS: Final = 0.02
# How often to poll PostgreSQL for changes of other processes while Redis is unavailable.
POLL_SECONDS: Final = 2.0

_log = logs.logger()


def changed_positions(
    before: Sequence[RankedPlayer], after: Sequence[RankedPlayer]
) -> tuple[int, ...]:
    """Return the ranks that differ, including those that no longer exist."""
    length = max(len(before), len(after))
    return tuple(
        index + 1
        for index in range(length)
        if index >= len(before) or index >= len(after) or before[index] != after[index]
    )


class LeaderboardBroadcaster:
    """Distributes leaderboard changes; one per process."""

    def __init__(
        self,
        leaderboard: Leaderboard,
        channel: UpdateChannel,
        breaker: RedisBreaker,
        publisher: Publisher,
        clock: Clock,
    ) -> None:
        self._leaderboard = leaderboard
        self._channel = channel
        self._breaker = breaker
        self._publisher = publisher
        self._clock = clock
        self._channel_due = asyncio.Event()
        self._delivery_due = asyncio.Event()
        self._last_on_channel: LeaderboardUpdate | None = None
        self._last_delivered: LeaderboardUpdate | None = None
        # The changes that were reported, and those that `_last_delivered` includes.
        self._reported_changes = 0
        self._delivered_changes = 0
        # One read at a time, so that no delivery has an older state than an earlier snapshot.
        self._reading = asyncio.Lock()

    @property
    def viewer_count(self) -> int:
        """The number of clients of this process that watch the leaderboard."""
        return self._publisher.subscriber_count()

    def notify_rank(self, *ranks: int | None) -> None:
        """Report that the players at these ranks changed; only published ranks matter."""
        if any(rank is not None and rank <= PUBLISHED_RANKS for rank in ranks):
            self.notify_change()

    def notify_change(self) -> None:
        """Report that the top of the leaderboard or the number of players may have changed."""
        self._channel_due.set()
        self._require_delivery()

    def _require_delivery(self) -> None:
        self._reported_changes += 1
        self._delivery_due.set()

    async def snapshot(self) -> LeaderboardUpdate:
        """Return the current top for a new subscriber.

        That is the last delivered one, or a fresh read if a change after it was reported.
        """
        async with self._reading:
            latest, changes = self._last_delivered, self._reported_changes
            if latest is None or self._delivered_changes != changes:
                latest = self._build_update(await self._leaderboard.top(PUBLISHED_RANKS), ())
                if self._last_delivered is None:
                    self._last_delivered, self._delivered_changes = latest, changes
        return msgspec.structs.replace(latest, changed_positions=())

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run the loops inside the context."""
        return running_loops(
            self._publish_to_channel(),
            self._deliver_to_subscribers(),
            self._channel.listen(self._on_message, self._on_subscribed),
            self._poll_while_redis_fails(),
        )

    async def _on_message(self, _: bytes) -> None:
        self._require_delivery()

    async def _on_subscribed(self) -> None:
        """Read the leaderboard: messages sent before the subscription are lost."""
        self._require_delivery()

    async def _publish_to_channel(self) -> None:
        while True:
            await self._channel_due.wait()
            self._channel_due.clear()
            try:
                page = await self._leaderboard.top(PUBLISHED_RANKS)
                update = self._build_update(page, _players(self._last_on_channel))
                if _is_changed(self._last_on_channel, update):
                    await self._breaker.call(
                        partial(self._channel.publish, msgspec.json.encode(update))
                    )
                    self._last_on_channel = update
            except Unavailable as error:
                # Other processes poll PostgreSQL while Redis is unavailable.
                _log.debug("Channel message not sent", action="channel_publish_failed", error=error)
            await self._clock.sleep(CHANNEL_INTERVAL_SECONDS)

    async def _deliver_to_subscribers(self) -> None:
        while True:
            await self._delivery_due.wait()
            self._delivery_due.clear()
            if not self._publisher.has_subscribers():
                self._last_delivered = None  # the next subscriber triggers a fresh read
                await self._clock.sleep(DELIVERY_INTERVAL_SECONDS)
                continue
            try:
                await self._deliver()
            except Unavailable as error:
                _log.warning(
                    "Leaderboard update not delivered: PostgreSQL and Redis are unavailable",
                    action="update_delivery_failed",
                    error=error,
                )
                await self._clock.sleep(POLL_SECONDS)
                self._delivery_due.set()
                continue
            await self._clock.sleep(DELIVERY_INTERVAL_SECONDS)

    async def _deliver(self) -> None:
        """Read the top, and publish it if it is new; raises Unavailable."""
        async with self._reading:
            changes = self._reported_changes
            page = await self._leaderboard.top(PUBLISHED_RANKS)
            update = self._build_update(page, _players(self._last_delivered))
            if _is_changed(self._last_delivered, update):
                self._publisher.publish(update)
                self._last_delivered = update
            self._delivered_changes = changes

    async def _poll_while_redis_fails(self) -> None:
        while True:
            await self._clock.sleep(POLL_SECONDS)
            if self._breaker.is_failing:
                self._require_delivery()

    def _build_update(
        self, page: LeaderboardPage, before: Sequence[RankedPlayer]
    ) -> LeaderboardUpdate:
        players = tuple(
            RankedPlayer(
                standing.rank,
                standing.user_id,
                standing.username,
                standing.score,
                standing.avatar_url,
            )
            for standing in page.standings
        )
        return LeaderboardUpdate(
            players,
            changed_positions(before, players),
            page.total_players,
            rfc3339(self._clock.now()),
        )


def _players(update: LeaderboardUpdate | None) -> tuple[RankedPlayer, ...]:
    return () if update is None else update.leaderboard


def _is_changed(before: LeaderboardUpdate | None, after: LeaderboardUpdate) -> bool:
    """Return whether subscribers see a difference, in the top or in the number of players."""
    return bool(after.changed_positions) or (
        before is not None and before.total_players != after.total_players
    )
