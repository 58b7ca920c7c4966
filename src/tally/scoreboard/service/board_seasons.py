"""The open seasons of named boards: which season is open, its copy in Redis, and closing it.

A season ends by the clock: the first read or change of a board after the end of its season closes
it, and a job closes those of unused boards. So an update never counts in a season that is over,
however late the job runs, and the database decides which process closes it.

Each season has keys of its own in Redis. A new season begins with empty ones, so that the number of
players of the old season does not matter; Redis frees the old keys in the background.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.model.boards import Board, BoardRules
from tally.scoreboard.model.errors import BoardExists, BoardNotFound, SeasonDue
from tally.scoreboard.repository.boards import BoardRepository
from tally.scoreboard.service.board_broadcaster import BoardBroadcaster
from tally.scoreboard.service.cache_sync import CacheSync
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.leaderboard_writer import LeaderboardWriter

# Resets that one transaction catches up with, and transactions per request: after a long time
# without a server, a board that resets every minute has missed half a million a year.
RESETS_PER_BATCH: Final = 500
MAX_BATCHES: Final = 4
DUE_BOARDS: Final = 100

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class OpenSeason:
    """A board with its open season, and what reads and writes its scores."""

    board: Board
    leaderboard: Leaderboard
    writer: LeaderboardWriter
    sync: CacheSync


class BoardSeasons:
    """The boards that this process uses; a board's rules never change."""

    def __init__(
        self,
        boards: BoardRepository,
        open_season: Callable[[Board], OpenSeason],
        broadcaster: BoardBroadcaster,
        clock: Clock,
    ) -> None:
        self.boards = boards
        self.broadcaster = broadcaster
        self._open_season = open_season
        self._clock = clock
        self._known: dict[str, OpenSeason] = {}

    def known(self) -> list[OpenSeason]:
        """Return the seasons that this process has seen."""
        return list(self._known.values())

    async def create(self, board_id: str, rules: BoardRules) -> tuple[Board, bool]:
        """Create a board; return it, and whether it is new. Raises BoardExists or Invalid."""
        now = self._clock.now()
        ends_at = None if rules.reset is None else rules.reset.first_after(now)
        board = await self.boards.create(board_id, rules, now, ends_at)
        if board is not None:
            _log.info("Board created", action="board_created", board=board_id)
            self._begin(board)
            return board, True
        existing = (await self.current(board_id)).board
        if existing.rules != rules:
            raise BoardExists(f'A board "{board_id}" with other content exists', field="id")
        return existing, False

    async def current(self, board_id: str) -> OpenSeason:
        """Return the open season of a board; raises BoardNotFound, or SeasonDue after an outage."""
        known = self._known.get(board_id)
        if known is not None and not known.board.is_due(self._clock.now()):
            return known
        return await self.refresh(board_id)

    async def refresh(self, board_id: str) -> OpenSeason:
        """Return the open season as PostgreSQL has it, after closing one that is over."""
        board = await self.boards.find(board_id)
        if board is None:
            raise BoardNotFound(f'There is no board "{board_id}"')
        return self.adopt(await self.close_due(board))

    async def close_due(self, board: Board) -> Board:
        """Close the season if it is over, and those that followed it unseen."""
        for _ in range(MAX_BATCHES):
            if not board.is_due(self._clock.now()):
                return board
            board = await self._close(board)
        if board.is_due(self._clock.now()):
            raise SeasonDue(board.board_id)
        return board

    async def _close(self, board: Board) -> Board:
        resets, ends_at = board.due_resets(self._clock.now(), RESETS_PER_BATCH)
        following = await self.boards.close_seasons(board, resets, ends_at)
        if following is None:  # another process was faster
            current = await self.boards.find(board.board_id)
            if current is None:
                raise BoardNotFound(f'There is no board "{board.board_id}"')
            return current
        _log.info(
            "Season closed",
            action="season_closed",
            board=board.board_id,
            season=board.season,
            endedAt=resets[0],
            seasons=len(resets),
        )
        self._begin(following)
        return following

    def _begin(self, board: Board) -> None:
        """Use a season that this process has begun, and build its copy in Redis.

        There may be one already, of another installation or of before a backup was restored.
        """
        self.adopt(board).sync.backlog.needs_rebuild = True

    def adopt(self, board: Board) -> OpenSeason:
        """Use a board as it was read, unless a later season of it is known."""
        known = self._known.get(board.board_id)
        if known is not None and known.board.season >= board.season:
            return known
        opened = self._known[board.board_id] = self._open_season(board)
        if known is not None:
            self.broadcaster.notify(board.board_id)
        return opened

    async def close_all_due(self) -> None:
        """Close every season that is over, and learn of the boards of other processes."""
        for board in await self.boards.find_due(self._clock.now(), DUE_BOARDS):
            with suppress(SeasonDue):  # after an outage; the next run closes more of its seasons
                self.adopt(await self.close_due(board))
        after = ""
        while page := await self.boards.find_page(DUE_BOARDS, after):
            for board in page:
                self.adopt(board)
            after = page[-1].board_id
            if len(page) < DUE_BOARDS:
                return
