"""The routes of the scoreboard as a list: for players, for game servers, for operators, and for everyone who watches."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from starlette.middleware import Middleware

from tally.errors import (
    Conflict,
    Invalid,
    NotFound,
    RateLimited,
    TallyError,
    Unauthenticated,
    Unavailable,
)
from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import EnvelopeError, ErrorFormat
from tally.scoreboard.api import formats, schemas
from tally.scoreboard.api.handlers import ADMIN_HEADER, INTERNAL_HEADER, Handlers
from tally.scoreboard.api.rate_limit_headers import LimitHeaders
from tally.scoreboard.service.broadcaster import LeaderboardUpdate, Place
from tally.scoreboard.service.scores import ScoreUpdateResponse

PREFIX: Final = "/api/v1"
SERVICE: Final = "scoreboard-api"

# Where the kit's words differ from those of the specification.
ERROR_FORMAT: Final = ErrorFormat(
    EnvelopeError,
    codes={
        **dict.fromkeys(
            (
                "invalid",
                "invalid_field",
                "missing_field",
                "unknown_field",
                "malformed_json",
                "malformed_gzip",
                "invalid_cursor",
                "invalid_value",
            ),
            "VALIDATION_ERROR",
        ),
        **dict.fromkeys(
            (
                "missing_token",
                "invalid_token",
                "missing_api_key",
                "invalid_api_key",
                "unauthenticated",
                "invalid_credentials",
            ),
            "UNAUTHORIZED",
        ),
        **dict.fromkeys(("unavailable", "cache_away", "board_missing"), "SERVICE_UNAVAILABLE"),
        "rate_limited": "RATE_LIMIT_EXCEEDED",
    },
    upper_case=True,
)
SECURITY: Final = {
    "player": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "game_server": {"type": "apiKey", "in": "header", "name": INTERNAL_HEADER},
    "operator": {"type": "apiKey", "in": "header", "name": ADMIN_HEADER},
}

_USER_ID: Final = "0b1e9c4e-6d0b-4c7b-9c41-0a9f3f0f1a2b"
_SESSION_ID: Final = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
_MOMENT: Final = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)
_LATER: Final = datetime(2026, 1, 15, 10, 45, tzinfo=UTC)
_TOKEN: Final = "eyJhY3Rpb25faWQiOiJsZXZlbC0zIn0.c2lnbmF0dXJl"  # noqa: S105  (an example)

_PLAYER: Final = schemas.Player(_USER_ID, "ana_99", "ana@example.com", None, _MOMENT)
_TOKENS: Final = schemas.Tokens(
    "eyJhbGciOiJIUzI1NiJ9.e30.c2ln", "Bearer", _LATER, "kq3vQ0x9", _SESSION_ID
)
_SIGNED_IN: Final = schemas.SignedIn(_PLAYER, _TOKENS)
_SESSION: Final = schemas.SessionShown(
    _SESSION_ID, True, _MOMENT, _LATER, "203.0.113.7", "Mozilla/5.0"
)
_PLACE: Final = schemas.Place(1, _USER_ID, "ana_99", 1500, _MOMENT)
_EVENT: Final = schemas.EventShown(_SESSION_ID, "level-3", 100, 1400, 1500, {"level": 3}, _MOMENT)
_UPDATE: Final = LeaderboardUpdate(
    (Place(1, _USER_ID, "ana_99", 1500),), (1,), 1, "2026-01-15T10:30:00Z"
)

_BAD: Final = Invalid("limit: Expected `int` <= 100", code="invalid_field", field="limit")
_UNAVAILABLE: Final = Unavailable("The database is not available", retry_after=1)
_LIMITED: Final = RateLimited("At most 10 requests a minute", retry_after=6, limit=10)
_AS_PLAYER: Final[tuple[TallyError, ...]] = (
    Unauthenticated("Invalid token", code="invalid_token"),
    Unauthenticated("Invalid token: expired", code="token_expired"),
    Unauthenticated("The session has ended", code="session_revoked"),
)
_BY_KEY: Final = Unauthenticated("Invalid API key", code="invalid_api_key")
_SIGNING_IN: Final[tuple[TallyError, ...]] = (_LIMITED, _UNAVAILABLE)
_NOBODY: Final = NotFound("No such user", code="user_not_found")


def scoreboard_api(handlers: Handlers) -> Api:
    """All routes, under `/scoreboard/api/v1`."""
    return Api(
        name="scoreboard",
        description="A live leaderboard that cannot be cheated.",
        endpoints=(
            *_signing_in(handlers),
            *_sessions(handlers),
            *_scores(handlers),
            *_board(handlers),
            *_operators(handlers),
        ),
        error_format=ERROR_FORMAT,
        service=SERVICE,
        security_schemes=SECURITY,
        middleware=(Middleware(LimitHeaders),),
    )


def _enveloped(kind: Any, example: Any) -> dict[str, Any]:
    """The response of an operation, in its envelope."""
    return {
        "response": schemas.Envelope[kind],
        "response_example": schemas.Envelope(success=True, data=example),
    }


def _signing_in(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/health",
            handlers.health,
            "Alive",
            **_enveloped(schemas.Status, schemas.Status("ok")),
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/auth/register",
            handlers.register,
            "Sign up",
            description="Makes an account with a score of 0, and signs in.",
            request=schemas.RegisterBody,
            request_example=schemas.RegisterBody("ana_99", "ana@example.com", "a long password"),
            status=201,
            errors=(
                *_SIGNING_IN,
                Conflict("This username is taken", code="username_taken", field="username"),
                Conflict(
                    "An account with this e-mail address exists", code="email_taken", field="email"
                ),
            ),
            **_enveloped(schemas.SignedIn, _SIGNED_IN),
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/auth/login",
            handlers.login,
            "Sign in",
            description="By username or e-mail address.",
            request=schemas.LoginBody,
            request_example=schemas.LoginBody("ana_99", "a long password"),
            errors=(
                *_SIGNING_IN,
                Unauthenticated("The name or the password is wrong", code="invalid_credentials"),
            ),
            **_enveloped(schemas.SignedIn, _SIGNED_IN),
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/auth/refresh",
            handlers.refresh,
            "Get new tokens",
            description="A refresh token works once; one that comes twice ends its session.",
            request=schemas.RefreshBody,
            request_example=schemas.RefreshBody("kq3vQ0x9"),
            errors=(
                *_SIGNING_IN,
                Unauthenticated("Invalid refresh token", code="invalid_token"),
            ),
            **_enveloped(schemas.Tokens, _TOKENS),
        ),
    )


def _sessions(handlers: Handlers) -> tuple[Endpoint, ...]:
    common: dict[str, Any] = {"security": ("player",)}
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/auth/logout",
            handlers.logout,
            "Sign out",
            description="The session ends at once, on every server.",
            status=204,
            errors=(
                *_AS_PLAYER,
                *_SIGNING_IN,
                NotFound(f"There is no session {_SESSION_ID}", code="session_not_found"),
            ),
            **common,
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/auth/sessions",
            handlers.list_sessions,
            "My sessions, newest first",
            errors=(*_AS_PLAYER, *_SIGNING_IN),
            **(common | _enveloped(schemas.SessionList, schemas.SessionList([_SESSION]))),
        ),
        Endpoint(
            "DELETE",
            f"{PREFIX}/auth/sessions/{{session_id}}",
            handlers.end_session,
            "End one of my sessions",
            path_types={"session_id": formats.SessionId},
            status=204,
            errors=(
                *_AS_PLAYER,
                *_SIGNING_IN,
                Invalid("session_id must be a UUID", code="invalid_field", field="session_id"),
                NotFound(f"There is no session {_SESSION_ID}", code="session_not_found"),
            ),
            **common,
        ),
    )


def _scores(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/internal/actions/complete",
            handlers.complete_action,
            "Vouch for a finished action",
            description="For game servers. The token is for the player, who trades it for points within five minutes.",
            request=schemas.ActionBody,
            request_example=schemas.ActionBody("level-3", _USER_ID, 100, {"level": 3}),
            status=201,
            errors=(
                _BY_KEY,
                _LIMITED,
                _UNAVAILABLE,
                _NOBODY,
                Conflict(
                    "This action was completed before", code="action_exists", field="action_id"
                ),
            ),
            security=("game_server",),
            **_enveloped(schemas.Vouched, schemas.Vouched(_TOKEN, _LATER)),
        ),
        Endpoint(
            "PATCH",
            f"{PREFIX}/scores",
            handlers.update_score,
            "Trade an action token for points",
            description="Once: the same token again gets the same answer, and nothing is added.",
            request=schemas.ScoreBody,
            request_example=schemas.ScoreBody(_TOKEN, 100),
            errors=(
                Invalid(
                    "Invalid action token",
                    code="invalid_action_token",
                    field="action_token",
                ),
                Invalid(
                    "score_delta must be at most 100",
                    code="score_exceeds_max",
                    field="score_delta",
                    max_score=100,
                ),
                *_AS_PLAYER,
                _LIMITED,
                _UNAVAILABLE,
                _NOBODY,
                Conflict(
                    "The score would be too great", code="score_too_great", field="score_delta"
                ),
            ),
            security=("player",),
            **_enveloped(ScoreUpdateResponse, ScoreUpdateResponse(_USER_ID, 1500, 100, 5, _MOMENT)),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/scores/me",
            handlers.show_my_score,
            "My score, rank and percentile",
            errors=(*_AS_PLAYER, _LIMITED, _UNAVAILABLE, _NOBODY),
            security=("player",),
            **_enveloped(
                schemas.MyScore, schemas.MyScore(_USER_ID, "ana_99", 1500, 5, 101, 96.0, _MOMENT)
            ),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/users/me/events",
            handlers.my_events,
            "My score changes, newest first",
            query=schemas.EventsQuery,
            errors=(*_AS_PLAYER, _BAD, _LIMITED, _UNAVAILABLE),
            security=("player",),
            **_enveloped(schemas.EventPageShown, schemas.EventPageShown([_EVENT], None)),
        ),
        Endpoint(
            "DELETE",
            f"{PREFIX}/users/me",
            handlers.delete_me,
            "Delete my account",
            description="With score and sessions, off the board; the history of scores stays, without a name.",
            status=204,
            errors=(*_AS_PLAYER, _UNAVAILABLE, _NOBODY),
            security=("player",),
        ),
    )


def _board(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/leaderboard",
            handlers.show_board,
            "The board",
            description="From the top, or around the player who asks (`around=me`, with an access token).",
            query=schemas.BoardQuery,
            errors=(*_AS_PLAYER, _BAD, _LIMITED, _UNAVAILABLE, _NOBODY),
            **_enveloped(schemas.BoardShown, schemas.BoardShown([_PLACE], 1, _MOMENT)),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/leaderboard/stream",
            handlers.stream,
            "The top ten as they move",
            description="Server-sent events named `leaderboard`; a ping every 30 seconds. An access token is welcome.",
            media_type="text/event-stream",
            response_example=f"event: leaderboard\ndata: {msgspec.json.encode(_UPDATE).decode()}\n\n",
            errors=(
                *_AS_PLAYER,
                RateLimited("At most 10 streams at once", retry_after=10, limit=10),
                _UNAVAILABLE,
            ),
        ),
    )


def _operators(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/admin/leaderboard/rebuild",
            handlers.rebuild,
            "Build the board in Redis anew",
            description="While it is read and changed; the new one takes the old one's place in one step.",
            errors=(
                _BY_KEY,
                _UNAVAILABLE,
                Conflict("The board is being rebuilt already", code="rebuild_under_way"),
            ),
            security=("operator",),
            **_enveloped(schemas.Rebuilt, schemas.Rebuilt(1)),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/admin/leaderboard/drift",
            handlers.show_drift,
            "How Redis differs from PostgreSQL",
            description="Compares every player; changes nothing.",
            errors=(_BY_KEY, _UNAVAILABLE),
            security=("operator",),
            **_enveloped(schemas.DriftShown, schemas.DriftShown(1, 0, 0, 0, 0, 0, [])),
        ),
    )
