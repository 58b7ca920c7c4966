"""Telling everyone who watches that the top of the board has moved.

Two loops. One tells other processes: after a change here it reads the top ten and publishes them on
Redis' channel. The other tells this process's own clients: after a change here, or word from
another process, it reads the top ten afresh and hands them to the hub, where they are serialised
once for all clients. Both coalesce: what happens while they wait is in what they read next, so the
latest state wins, and clients get at most ten updates a second. Word on the channel is a reason to
look, never the news itself, so the order in which processes publish does not matter. Without Redis
a process tells its own clients of its own changes at once, and looks into PostgreSQL now and then
for those of others.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec

from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.hub import Hub
from tally.kit.tasks import cancel_all
from tally.scoreboard.model import LeaderboardPage, Standing
from tally.scoreboard.repository.channel import UpdateChannel
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.redis_breaker import RedisBreaker

TOPIC: Final = "scoreboard:leaderboard"
EVENT: Final = "leaderboard"
WATCHED: Final = 10
# Between two updates to clients; and between two words to other processes, who wait for themselves.
DELIVER_SECONDS: Final = 0.1
TELL_SECONDS: Final = 0.02
# How often PostgreSQL is asked for what others did while Redis is away.
POLL_SECONDS: Final = 2.0

_log = logs.logger()


class Place(msgspec.Struct, frozen=True):
    """A place on the board, as clients see it."""

    rank: int
    user_id: str
    username: str
    score: int


class LeaderboardUpdate(msgspec.Struct, frozen=True):
    """The top of the board; `changed_positions` are the ranks at which somebody else, or another score, stands than before."""

    leaderboard: tuple[Place, ...]
    changed_positions: tuple[int, ...]
    total_players: int
    timestamp: str


def ranked_player(standing: Standing) -> Place:
    return Place(standing.rank, standing.user_id, standing.username, standing.score)


def changed_positions(before: Sequence[Place], after: Sequence[Place]) -> tuple[int, ...]:
    """The ranks that differ; where the board became shorter, also those that are gone."""
    longest = max(len(before), len(after))
    return tuple(
        index + 1
        for index in range(longest)
        if index >= len(before) or index >= len(after) or before[index] != after[index]
    )


class LeaderboardBroadcaster:
    """The one place of a process through which changes of the board pass to clients."""

    def __init__(
        self,
        leaderboard: Leaderboard,
        channel: UpdateChannel,
        guard: RedisBreaker,
        hub: Hub,
        clock: Clock,
    ) -> None:
        self._leaderboard = leaderboard
        self._channel = channel
        self._guard = guard
        self._hub = hub
        self._clock = clock
        self._to_tell = asyncio.Event()
        self._to_deliver = asyncio.Event()
        self._told: tuple[Place, ...] = ()
        self._latest: LeaderboardUpdate | None = None

    def notify_rank(self, *ranks: int | None) -> None:
        """Somebody came to, or left, one of these ranks: news only if it is watched."""
        if any(rank is not None and rank <= WATCHED for rank in ranks):
            self.notify_change()

    def notify_change(self) -> None:
        """The top of the board may have changed."""
        self._to_tell.set()
        self._to_deliver.set()

    async def snapshot(self) -> tuple[str, LeaderboardUpdate]:
        """The event for a client that has just come: what all others have, or a first look."""
        latest = self._latest
        if latest is None:
            latest = self._update(await self._leaderboard.top(WATCHED), ())
            self._latest = self._latest or latest
        return EVENT, msgspec.structs.replace(latest, changed_positions=())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Pass changes on for as long as this lasts."""
        works = (
            self._tell(),
            self._deliver(),
            self._channel.listen(self._heard, self._joined),
            self._poll(),
        )
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield
        finally:
            await cancel_all(tasks)

    async def _heard(self, _: bytes) -> None:
        self._to_deliver.set()

    async def _joined(self) -> None:
        """Whatever was said while nobody here listened, the board knows it."""
        self._to_deliver.set()

    async def _tell(self) -> None:
        while True:
            await self._to_tell.wait()
            self._to_tell.clear()
            try:
                board = await self._leaderboard.top(WATCHED)
                update = self._update(board, self._told)
                if update.changed_positions:
                    await self._guard.call(
                        partial(self._channel.publish, msgspec.json.encode(update))
                    )
                    self._told = update.leaderboard
            except Unavailable as away:
                # Others look into PostgreSQL themselves while Redis is away.
                _log.debug("Other processes were not told", action="updates_publish", error=away)
            await self._clock.sleep(TELL_SECONDS)

    async def _deliver(self) -> None:
        while True:
            await self._to_deliver.wait()
            self._to_deliver.clear()
            if not self._hub.is_active(TOPIC):
                self._latest = None  # who comes next looks for themselves
                await self._clock.sleep(DELIVER_SECONDS)
                continue
            try:
                board = await self._leaderboard.top(WATCHED)
            except Unavailable as away:
                _log.warning(
                    "Watchers were not told: neither server answers",
                    action="updates_deliver",
                    error=away,
                )
                await self._clock.sleep(POLL_SECONDS)
                self._to_deliver.set()
                continue
            self._publish(board)
            await self._clock.sleep(DELIVER_SECONDS)

    def _publish(self, board: LeaderboardPage) -> None:
        before = () if self._latest is None else self._latest.leaderboard
        update = self._update(board, before)
        if update.changed_positions:
            self._hub.publish(TOPIC, EVENT, update)
            self._latest = update

    async def _poll(self) -> None:
        while True:
            await self._clock.sleep(POLL_SECONDS)
            if self._guard.is_failing:
                self._to_deliver.set()

    def _update(self, board: LeaderboardPage, before: Sequence[Place]) -> LeaderboardUpdate:
        places = tuple(ranked_player(standing) for standing in board.standings)
        return LeaderboardUpdate(
            places,
            changed_positions(before, places),
            board.total_players,
            rfc3339(self._clock.now()),
        )
