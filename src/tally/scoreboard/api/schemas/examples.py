"""Example bodies and errors for the OpenAPI document."""

from datetime import UTC, datetime
from typing import Final

from tally.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    TallyError,
    Unauthenticated,
    Unavailable,
)
from tally.scoreboard.api.schemas import responses
from tally.scoreboard.service.ports import LeaderboardUpdate, RankedPlayer
from tally.scoreboard.service.scores import ScoreUpdateResponse

USER_ID: Final = "0b1e9c4e-6d0b-4c7b-9c41-0a9f3f0f1a2b"
SESSION_ID: Final = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
AVATAR_URL: Final = "https://example.com/ana.png"
MOMENT: Final = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)
EXPIRY: Final = datetime(2026, 1, 15, 10, 45, tzinfo=UTC)
ACTION_TOKEN: Final = "eyJhY3Rpb25faWQiOiJsZXZlbC0zIn0.c2lnbmF0dXJl"  # noqa: S105  (an example)

USER: Final = responses.UserResponse(USER_ID, "ana_99", "ana@example.com", AVATAR_URL, MOMENT)
TOKENS: Final = responses.TokensResponse(
    "eyJhbGciOiJIUzI1NiJ9.e30.c2ln", "Bearer", EXPIRY, "kq3vQ0x9", SESSION_ID
)
LOGIN: Final = responses.LoginResponse(USER, TOKENS)
SESSION: Final = responses.SessionResponse(
    SESSION_ID, True, MOMENT, EXPIRY, "203.0.113.7", "Mozilla/5.0"
)
LEADERBOARD: Final = responses.LeaderboardResponse(
    [responses.LeaderboardEntry(1, USER_ID, "ana_99", 1500, MOMENT, AVATAR_URL)], 1, MOMENT
)
OWN_SCORE: Final = responses.OwnScoreResponse(
    USER_ID, "ana_99", 1500, 5, 101, 96.0, MOMENT, AVATAR_URL
)
SCORE_UPDATE: Final = ScoreUpdateResponse(USER_ID, 1500, 100, 5, MOMENT)
SCORE_EVENT: Final = responses.ScoreEventResponse(
    SESSION_ID, "level-3", 100, 1400, 1500, {"level": 3}, MOMENT
)
STREAM_UPDATE: Final = LeaderboardUpdate(
    (RankedPlayer(1, USER_ID, "ana_99", 1500, AVATAR_URL),), (1,), 1, "2026-01-15T10:30:00Z"
)

INVALID_LIMIT: Final = Invalid("limit: Expected `int` <= 100", code="invalid_field", field="limit")
INVALID_SESSION_ID: Final = Invalid(
    "session_id must be a UUID", code="invalid_field", field="session_id"
)
INVALID_ACTION_TOKEN: Final = Invalid(
    "Invalid action token", code="invalid_action_token", field="action_token"
)
SCORE_EXCEEDS_MAX: Final = Invalid(
    "score_delta must be at most 100",
    code="score_exceeds_max",
    field="score_delta",
    max_score=100,
)
PLAYER_AUTH_ERRORS: Final[tuple[TallyError, ...]] = (
    Unauthenticated(
        "The Authorization header must have the form: Bearer <token>", code="missing_token"
    ),
    Unauthenticated("Invalid token", code="invalid_token"),
    Unauthenticated("The token has expired", code="token_expired"),
    Unauthenticated("The session has expired or was revoked", code="session_revoked"),
)
INVALID_KEY: Final = Unauthenticated("Invalid API key", code="invalid_api_key")
INVALID_CREDENTIALS: Final = Unauthenticated(
    "Invalid username or password", code="invalid_credentials"
)
INVALID_REFRESH_TOKEN: Final = Unauthenticated("Invalid refresh token", code="invalid_token")
USER_NOT_FOUND: Final = NotFound("User does not exist", code="user_not_found")
SESSION_NOT_FOUND: Final = NotFound(
    f"Session {SESSION_ID} does not exist", code="session_not_found"
)
USERNAME_TAKEN: Final = Conflict("This username is taken", code="username_taken", field="username")
EMAIL_TAKEN: Final = Conflict(
    "An account with this email address exists", code="email_taken", field="email"
)
ACTION_EXISTS: Final = Conflict(
    "This action was already reported with another user_id, max_score or boards",
    code="action_exists",
    field="action_id",
)
SCORE_TOO_GREAT: Final = Conflict(
    "The score would exceed 9007199254740991", code="score_too_great", field="score_delta"
)
SCORE_TOO_SMALL: Final = Conflict("The score is 100", code="score_too_small", field="score_delta")
ADJUSTMENT_EXISTS: Final = Conflict(
    "This adjustment was already made to another player",
    code="action_exists",
    field="adjustment_id",
)
PLAYER_BANNED: Final = Forbidden("This player is banned", code="player_banned")
INVALID_USER_ID: Final = Invalid("user_id must be a UUID", code="invalid_field", field="user_id")
REBUILD_UNDER_WAY: Final = Conflict("A rebuild is already in progress", code="rebuild_under_way")
RATE_LIMITED: Final = RateLimited(
    "Rate limit exceeded: at most 10 requests per minute", retry_after=6, limit=10
)
TOO_MANY_SIGN_INS: Final = RateLimited(
    "Too many failed sign-ins to this account; wait before the next attempt",
    retry_after=8,
    code="too_many_sign_ins",
)
TOO_MANY_RESETS: Final = RateLimited(
    "Too many password resets of this address; wait before the next one",
    retry_after=8,
    code="too_many_resets",
)
RESET_DISABLED: Final = Forbidden(
    "Passwords cannot be reset by mail on this server", code="password_reset_disabled"
)
INVALID_RESET_TOKEN: Final = Invalid(
    "The token is invalid, expired or was used", code="invalid_reset_token", field="token"
)
WEAK_PASSWORD: Final = Invalid(
    "password must not contain the username", code="weak_password", field="password"
)
WRONG_PASSWORD: Final = Forbidden(
    "current_password is wrong", code="wrong_password", field="current_password"
)
PASSWORD_CHANGED: Final = Conflict("The password was changed meanwhile", code="password_changed")
UNAVAILABLE: Final = Unavailable("The database is unavailable", retry_after=1)
