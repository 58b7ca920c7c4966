"""Response bodies of named boards and their seasons."""

from datetime import datetime
from typing import Self

import msgspec

from tally.scoreboard.api.schemas.responses import LeaderboardEntry
from tally.scoreboard.model.boards import Board, BoardOperator, BoardOrder, Season
from tally.scoreboard.model.scores import LeaderboardPage, Standing, percentile


class ResetResponse(msgspec.Struct, frozen=True):
    cron: str
    time_zone: str


class BoardResponse(msgspec.Struct, frozen=True):
    """A board and its open season; `season_ends_at` is the next reset, or null."""

    id: str
    name: str
    order: BoardOrder
    operator: BoardOperator
    reset: ResetResponse | None
    season: int
    season_started_at: datetime
    season_ends_at: datetime | None
    created_at: datetime

    @classmethod
    def from_board(cls, board: Board) -> Self:
        rules = board.rules
        reset = rules.reset
        return cls(
            board.board_id,
            rules.name,
            rules.order,
            rules.operator,
            None if reset is None else ResetResponse(reset.expression, reset.time_zone),
            board.season,
            board.started_at,
            board.ends_at,
            board.created_at,
        )


class BoardsResponse(msgspec.Struct, frozen=True):
    items: list[BoardResponse]
    next_cursor: str | None


class BoardLeaderboardResponse(msgspec.Struct, frozen=True):
    """The standings of a board's open season."""

    board_id: str
    season: int
    season_started_at: datetime
    season_ends_at: datetime | None
    items: list[LeaderboardEntry]
    total_players: int
    last_updated: datetime | None

    @classmethod
    def from_page(cls, board: Board, page: LeaderboardPage) -> Self:
        return cls(
            board.board_id,
            board.season,
            board.started_at,
            board.ends_at,
            [
                LeaderboardEntry(
                    row.rank, row.user_id, row.username, row.score, row.reached_at, row.avatar_url
                )
                for row in page.standings
            ],
            page.total_players,
            page.changed_at,
        )


class BoardStandingResponse(msgspec.Struct, frozen=True):
    """`percentile` is the percentage of other players with a lower rank."""

    board_id: str
    season: int
    user_id: str
    username: str
    score: int
    rank: int
    total_players: int
    percentile: float
    reached_at: datetime
    avatar_url: str | None

    @classmethod
    def from_standing(cls, board: Board, row: Standing, total_players: int) -> Self:
        return cls(
            board.board_id,
            board.season,
            row.user_id,
            row.username,
            row.score,
            row.rank,
            total_players,
            percentile(row.rank, total_players),
            row.reached_at,
            row.avatar_url,
        )


class SeasonResponse(msgspec.Struct, frozen=True):
    """A closed season and the number of players that it ranks."""

    season: int
    started_at: datetime
    ended_at: datetime
    total_players: int

    @classmethod
    def from_season(cls, season: Season) -> Self:
        return cls(season.number, season.started_at, season.ended_at, season.players)


class SeasonsResponse(msgspec.Struct, frozen=True):
    items: list[SeasonResponse]
    next_cursor: str | None


class ArchivedEntry(msgspec.Struct, frozen=True):
    """A final standing; a deleted player has no `user_id`."""

    rank: int
    user_id: str | None
    username: str
    score: int
    reached_at: datetime
    avatar_url: str | None


class SeasonLeaderboardResponse(msgspec.Struct, frozen=True):
    """The final standings of a closed season."""

    board_id: str
    season: int
    started_at: datetime
    ended_at: datetime
    items: list[ArchivedEntry]
    total_players: int

    @classmethod
    def from_page(cls, board_id: str, season: Season, page: LeaderboardPage) -> Self:
        return cls(
            board_id,
            season.number,
            season.started_at,
            season.ended_at,
            [
                ArchivedEntry(
                    row.rank,
                    row.user_id or None,
                    row.username,
                    row.score,
                    row.reached_at,
                    row.avatar_url,
                )
                for row in page.standings
            ],
            page.total_players,
        )
