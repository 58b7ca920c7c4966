"""Response bodies, and their construction from the model."""

from datetime import datetime
from typing import Any, Self

import msgspec

from tally.scoreboard.model.accounts import PlayerSession, User
from tally.scoreboard.model.scores import (
    LeaderboardPage,
    ScoreEvent,
    ScoreEventPage,
    Standing,
    percentile,
)
from tally.scoreboard.model.statistics import DriftReport
from tally.scoreboard.service.sessions import SessionTokens


class UserResponse(msgspec.Struct, frozen=True):
    user_id: str
    username: str
    email: str
    avatar_url: str | None
    created_at: datetime

    @classmethod
    def from_user(cls, user: User) -> Self:
        return cls(user.user_id, user.username, user.email, user.avatar_url, user.created_at)


class TokensResponse(msgspec.Struct, frozen=True):
    """Send `access_token` in the Authorization header; `refresh_token` works once."""

    access_token: str
    token_type: str
    expires_at: datetime
    refresh_token: str
    session_id: str

    @classmethod
    def from_tokens(cls, tokens: SessionTokens) -> Self:
        return cls(
            tokens.access_token,
            "Bearer",
            tokens.access_expires_at,
            tokens.refresh_token,
            tokens.session.session_id,
        )


class LoginResponse(msgspec.Struct, frozen=True):
    user: UserResponse
    tokens: TokensResponse

    @classmethod
    def from_login(cls, user: User, tokens: SessionTokens) -> Self:
        return cls(
            UserResponse.from_user(user),
            TokensResponse.from_tokens(tokens),
        )


class SessionResponse(msgspec.Struct, frozen=True):
    session_id: str
    is_current: bool
    created_at: datetime
    expires_at: datetime
    ip_address: str | None
    user_agent: str | None

    @classmethod
    def from_session(cls, session: PlayerSession, current_id: str) -> Self:
        return cls(
            session_id=session.session_id,
            is_current=session.session_id == current_id,
            created_at=session.created_at,
            expires_at=session.expires_at,
            ip_address=session.client.ip_address,
            user_agent=session.client.user_agent,
        )


class SessionsResponse(msgspec.Struct, frozen=True):
    items: list[SessionResponse]
    next_cursor: str | None = None


class ActionTokenResponse(msgspec.Struct, frozen=True):
    action_token: str
    expires_at: datetime


class LeaderboardEntry(msgspec.Struct, frozen=True):
    rank: int
    user_id: str
    username: str
    score: int
    reached_at: datetime
    avatar_url: str | None


class LeaderboardResponse(msgspec.Struct, frozen=True):
    """`last_updated` is the time of the last score change, or null."""

    items: list[LeaderboardEntry]
    total_players: int
    last_updated: datetime | None

    @classmethod
    def from_page(cls, page: LeaderboardPage) -> Self:
        entries = [
            LeaderboardEntry(
                standing.rank,
                standing.user_id,
                standing.username,
                standing.score,
                standing.reached_at,
                standing.avatar_url,
            )
            for standing in page.standings
        ]
        return cls(entries, page.total_players, page.changed_at)


class OwnScoreResponse(msgspec.Struct, frozen=True):
    """`percentile` is the percentage of other players with a lower rank."""

    user_id: str
    username: str
    score: int
    rank: int
    total_players: int
    percentile: float
    reached_at: datetime
    avatar_url: str | None

    @classmethod
    def from_standing(cls, standing: Standing, total_players: int) -> Self:
        return cls(
            user_id=standing.user_id,
            username=standing.username,
            score=standing.score,
            rank=standing.rank,
            total_players=total_players,
            percentile=percentile(standing.rank, total_players),
            reached_at=standing.reached_at,
            avatar_url=standing.avatar_url,
        )


class BoardChangeResponse(msgspec.Struct, frozen=True):
    season: int
    before: int | None
    after: int


class ScoreEventResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of the global score, and of the scores on named boards by their ids."""

    event_id: str
    action_id: str
    score_delta: int
    score_before: int
    score_after: int
    metadata: dict[str, Any]
    created_at: datetime
    boards: dict[str, BoardChangeResponse] = {}

    @classmethod
    def from_event(cls, event: ScoreEvent) -> Self:
        return cls(
            event_id=event.event_id,
            action_id=event.action_id,
            score_delta=event.score_delta,
            score_before=event.score_before,
            score_after=event.score_after,
            metadata=dict(event.metadata),
            created_at=event.created_at,
            boards={
                change.board_id: BoardChangeResponse(change.season, change.before, change.after)
                for change in event.boards
            },
        )


class ScoreEventsResponse(msgspec.Struct, frozen=True):
    items: list[ScoreEventResponse]
    next_cursor: str | None

    @classmethod
    def from_page(cls, page: ScoreEventPage, next_cursor: str | None) -> Self:
        return cls([ScoreEventResponse.from_event(event) for event in page.events], next_cursor)


class RebuildResponse(msgspec.Struct, frozen=True):
    players: int


class AdjustmentResponse(msgspec.Struct, frozen=True):
    """The points added, the score after them, and the current rank in the season of both.

    The rank is null if the player was banned or deleted since.
    """

    user_id: str
    adjustment_id: str
    score_delta: int
    new_score: int
    rank: int | None


class DriftResponse(msgspec.Struct, frozen=True):
    """The number of players compared, and of those that Redis lacks, has wrong or has in excess."""

    compared: int
    found: int
    missing: int
    wrong: int
    extra: int
    strays: int
    examples: list[str]

    @classmethod
    def from_report(cls, report: DriftReport) -> Self:
        return cls(
            compared=report.compared,
            found=report.differences,
            missing=report.missing,
            wrong=report.wrong,
            extra=report.extra,
            strays=report.strays,
            examples=list(report.examples),
        )


class HealthResponse(msgspec.Struct, frozen=True):
    status: str
