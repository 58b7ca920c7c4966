"""Publishes changes of named boards to other processes and to SSE subscribers.

All boards share one loop and one Redis channel, whose messages are the ids of boards that changed.
A message only triggers a read. Bursts are coalesced into at most ten updates per board and second,
and the latest state wins. While Redis is unavailable, boards with subscribers are read every two
seconds.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.tasks import running_loops
from tally.scoreboard.model.boards import Board
from tally.scoreboard.model.errors import BoardNotFound
from tally.scoreboard.model.scores import LeaderboardPage
from tally.scoreboard.repository.channel import UpdateChannel
from tally.scoreboard.service.broadcaster import (
    CHANNEL_INTERVAL_SECONDS,
    DELIVERY_INTERVAL_SECONDS,
    POLL_SECONDS,
    PUBLISHED_RANKS,
    changed_positions,
)
from tally.scoreboard.service.ports import BoardPublisher, BoardUpdate, RankedPlayer
from tally.scoreboard.service.redis_breaker import RedisBreaker

CHANNEL: Final = "leaderboard:boards"

_log = logs.logger()


class BoardBroadcaster:
    """Distributes the changes of all boards; one per process.

    `read_top` returns a board and a page of its open season with real scores. It is set once the
    boards exist, which notify this class of changes.
    """

    def __init__(
        self, channel: UpdateChannel, breaker: RedisBreaker, publisher: BoardPublisher, clock: Clock
    ) -> None:
        self.read_top: Callable[[str, int], Awaitable[tuple[Board, LeaderboardPage]]] = _no_boards
        self._channel = channel
        self._breaker = breaker
        self._publisher = publisher
        self._clock = clock
        self._to_send: set[str] = set()
        self._to_deliver: set[str] = set()
        self._is_due = asyncio.Event()
        self._channel_due = asyncio.Event()
        self._delivered: dict[str, BoardUpdate] = {}

    def notify(self, board_id: str) -> None:
        """Report that the top of a board, its number of players or its season has changed."""
        self._to_send.add(board_id)
        self._channel_due.set()
        self._require_delivery(board_id)

    def _require_delivery(self, board_id: str) -> None:
        if self._publisher.has_subscribers(board_id):
            self._to_deliver.add(board_id)
            self._is_due.set()
        else:
            self._delivered.pop(board_id, None)

    async def snapshot(self, board_id: str) -> BoardUpdate:
        """Return the current state of a board for a new subscriber."""
        update = _update(*await self.read_top(board_id, PUBLISHED_RANKS), (), self._clock)
        self._delivered.setdefault(board_id, update)
        return update

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run the loops inside the context."""
        return running_loops(
            self._send_to_channel(),
            self._deliver(),
            self._channel.listen(self._on_message, self._on_subscribed),
            self._poll_while_redis_fails(),
        )

    async def _on_message(self, message: bytes) -> None:
        self._require_delivery(message.decode(errors="replace"))

    async def _on_subscribed(self) -> None:
        """Read all boards with subscribers: messages before the subscription are lost."""
        for board_id in list(self._delivered):
            self._require_delivery(board_id)

    async def _poll_while_redis_fails(self) -> None:
        while True:
            await self._clock.sleep(POLL_SECONDS)
            if self._breaker.is_failing:
                await self._on_subscribed()
            if self._to_deliver:  # boards that could not be read
                self._is_due.set()

    async def _send_to_channel(self) -> None:
        while True:
            await self._channel_due.wait()
            self._channel_due.clear()
            changed, self._to_send = self._to_send, set()
            for board_id in changed:
                # Other processes poll while Redis is unavailable.
                await self._breaker.try_call(partial(self._channel.publish, board_id.encode()))
            await self._clock.sleep(CHANNEL_INTERVAL_SECONDS)

    async def _deliver(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            due, self._to_deliver = self._to_deliver, set()
            for board_id in due:
                await self._deliver_board(board_id)
            await self._clock.sleep(DELIVERY_INTERVAL_SECONDS)

    async def _deliver_board(self, board_id: str) -> None:
        try:
            board, page = await self.read_top(board_id, PUBLISHED_RANKS)
        except Unavailable as error:
            _log.warning(
                "Board update not delivered",
                action="board_delivery_failed",
                board=board_id,
                error=error,
            )
            self._to_deliver.add(board_id)
            return
        before = self._delivered.get(board_id)
        players = () if before is None else before.leaderboard
        update = _update(board, page, players, self._clock)
        self._delivered[board_id] = update
        if before is None or _is_changed(before, update):
            self._publisher.publish(board_id, update)


@dataclass(frozen=True, slots=True)
class BoardListener:
    """Reports the changes of one board; implements `ChangeListener`."""

    broadcaster: BoardBroadcaster
    board_id: str

    def notify_rank(self, *ranks: int | None) -> None:
        if any(rank is not None and rank <= PUBLISHED_RANKS for rank in ranks):
            self.notify_change()

    def notify_change(self) -> None:
        self.broadcaster.notify(self.board_id)


async def _no_boards(board_id: str, _: int) -> tuple[Board, LeaderboardPage]:
    raise BoardNotFound(f'There is no board "{board_id}"')


def _update(
    board: Board, page: LeaderboardPage, before: tuple[RankedPlayer, ...], clock: Clock
) -> BoardUpdate:
    players = tuple(
        RankedPlayer(row.rank, row.user_id, row.username, row.score, row.avatar_url)
        for row in page.standings
    )
    return BoardUpdate(
        board.board_id,
        board.season,
        rfc3339(board.started_at),
        None if board.ends_at is None else rfc3339(board.ends_at),
        players,
        changed_positions(before, players),
        page.total_players,
        rfc3339(clock.now()),
    )


def _is_changed(before: BoardUpdate, after: BoardUpdate) -> bool:
    """Return whether subscribers see a difference besides the time."""
    same = msgspec.structs.replace(before, changed_positions=(), timestamp=after.timestamp)
    return msgspec.structs.replace(after, changed_positions=()) != same
