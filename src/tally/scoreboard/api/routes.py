"""The routes of the scoreboard: for players, game servers, operators and stream subscribers."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.middleware import Middleware

from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import EnvelopeError, ErrorFormat
from tally.scoreboard.api.admin import AdminHandlers
from tally.scoreboard.api.auth import ADMIN_HEADER, INTERNAL_HEADER
from tally.scoreboard.api.events import EVENT, LeaderboardStream
from tally.scoreboard.api.handlers import Handlers
from tally.scoreboard.api.rate_limits import RateLimitHeadersMiddleware
from tally.scoreboard.api.schemas import examples, requests, responses
from tally.scoreboard.service.scores import ScoreUpdateResponse

PREFIX: Final = "/api/v1"
SERVICE: Final = "scoreboard-api"

# Codes of the kit and the services that the specification names differently.
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
        **dict.fromkeys(
            ("unavailable", "cache_unavailable", "leaderboard_not_cached"), "SERVICE_UNAVAILABLE"
        ),
        "rate_limited": "RATE_LIMIT_EXCEEDED",
    },
    upper_case=True,
)
SECURITY: Final = {
    "player": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "game_server": {"type": "apiKey", "in": "header", "name": INTERNAL_HEADER},
    "operator": {"type": "apiKey", "in": "header", "name": ADMIN_HEADER},
}
_PLAYER: Final[dict[str, Any]] = {"security": ("player",)}
_AUTH_ROUTE_ERRORS: Final = (examples.RATE_LIMITED, examples.UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class ScoreboardHandlers:
    """The handlers of all routes."""

    public: Handlers
    stream: LeaderboardStream
    admin: AdminHandlers


def scoreboard_api(handlers: ScoreboardHandlers) -> Api:
    """Return all routes, which are mounted under `/scoreboard`."""
    return Api(
        name="scoreboard",
        description="A live leaderboard whose scores are verified by the game server.",
        endpoints=(
            *_auth(handlers.public),
            *_sessions(handlers.public),
            *_scores(handlers.public),
            *_own_data(handlers.public),
            *_leaderboard(handlers.public, handlers.stream),
            *_admin(handlers.admin),
        ),
        error_format=ERROR_FORMAT,
        service=SERVICE,
        security_schemes=SECURITY,
        middleware=(Middleware(RateLimitHeadersMiddleware),),
    )


def _enveloped(kind: Any, example: Any) -> dict[str, Any]:
    """Return the response arguments of an endpoint, inside the envelope."""
    return {
        "response": responses.Envelope[kind],
        "response_example": responses.Envelope(success=True, data=example),
    }


def _auth(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/health",
            handlers.health,
            "Check liveness",
            **_enveloped(responses.HealthResponse, responses.HealthResponse("ok")),
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/auth/register",
            handlers.register,
            "Register an account",
            description="Creates an account with a score of 0 and logs in.",
            request=requests.RegisterRequest,
            request_example=requests.RegisterRequest(
                "ana_99", "ana@example.com", "a long password"
            ),
            status=201,
            errors=(*_AUTH_ROUTE_ERRORS, examples.USERNAME_TAKEN, examples.EMAIL_TAKEN),
            **_enveloped(responses.LoginResponse, examples.LOGIN),
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/auth/login",
            handlers.login,
            "Log in",
            description="`login` is the username or the email address.",
            request=requests.LoginRequest,
            request_example=requests.LoginRequest("ana_99", "a long password"),
            errors=(*_AUTH_ROUTE_ERRORS, examples.INVALID_CREDENTIALS),
            **_enveloped(responses.LoginResponse, examples.LOGIN),
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/auth/refresh",
            handlers.refresh,
            "Refresh the tokens",
            description="A refresh token works once. Reusing one revokes its session.",
            request=requests.RefreshRequest,
            request_example=requests.RefreshRequest("kq3vQ0x9"),
            errors=(*_AUTH_ROUTE_ERRORS, examples.INVALID_REFRESH_TOKEN),
            **_enveloped(responses.TokensResponse, examples.TOKENS),
        ),
    )


def _sessions(handlers: Handlers) -> tuple[Endpoint, ...]:
    errors = (*examples.PLAYER_AUTH_ERRORS, *_AUTH_ROUTE_ERRORS)
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/auth/logout",
            handlers.logout,
            "Log out",
            description="Revokes the session immediately, on every server.",
            status=204,
            errors=(*errors, examples.SESSION_NOT_FOUND),
            **_PLAYER,
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/auth/sessions",
            handlers.list_sessions,
            "List your sessions, newest first",
            errors=errors,
            **_PLAYER,
            **_enveloped(
                responses.SessionsResponse, responses.SessionsResponse([examples.SESSION])
            ),
        ),
        Endpoint(
            "DELETE",
            f"{PREFIX}/auth/sessions/{{session_id}}",
            handlers.revoke_session,
            "Revoke one of your sessions",
            path_types={"session_id": requests.SessionId},
            status=204,
            errors=(*errors, examples.INVALID_SESSION_ID, examples.SESSION_NOT_FOUND),
            **_PLAYER,
        ),
    )


def _scores(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/internal/actions/complete",
            handlers.complete_action,
            "Report a completed action",
            description=(
                "For game servers. Pass the action token to the player, who exchanges it for"
                " points within five minutes."
            ),
            request=requests.CompleteActionRequest,
            request_example=requests.CompleteActionRequest(
                "level-3", examples.USER_ID, 100, {"level": 3}
            ),
            status=201,
            errors=(
                examples.INVALID_KEY,
                examples.RATE_LIMITED,
                examples.UNAVAILABLE,
                examples.USER_NOT_FOUND,
                examples.ACTION_EXISTS,
            ),
            security=("game_server",),
            **_enveloped(
                responses.ActionTokenResponse,
                responses.ActionTokenResponse(examples.ACTION_TOKEN, examples.EXPIRY),
            ),
        ),
        Endpoint(
            "PATCH",
            f"{PREFIX}/scores",
            handlers.update_score,
            "Exchange an action token for points",
            description="Idempotent: repeating a token returns the same response and adds nothing.",
            request=requests.UpdateScoreRequest,
            request_example=requests.UpdateScoreRequest(examples.ACTION_TOKEN, 100),
            errors=(
                examples.INVALID_ACTION_TOKEN,
                examples.SCORE_EXCEEDS_MAX,
                *examples.PLAYER_AUTH_ERRORS,
                examples.RATE_LIMITED,
                examples.UNAVAILABLE,
                examples.USER_NOT_FOUND,
                examples.SCORE_TOO_GREAT,
            ),
            **_PLAYER,
            **_enveloped(ScoreUpdateResponse, examples.SCORE_UPDATE),
        ),
    )


def _own_data(handlers: Handlers) -> tuple[Endpoint, ...]:
    errors = (*examples.PLAYER_AUTH_ERRORS, examples.RATE_LIMITED, examples.UNAVAILABLE)
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/scores/me",
            handlers.show_own_score,
            "Get your score, rank and percentile",
            errors=(*errors, examples.USER_NOT_FOUND),
            **_PLAYER,
            **_enveloped(responses.OwnScoreResponse, examples.OWN_SCORE),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/users/me/events",
            handlers.list_own_events,
            "List your score changes, newest first",
            query=requests.ScoreEventsQuery,
            errors=(*errors, examples.INVALID_LIMIT),
            **_PLAYER,
            **_enveloped(
                responses.ScoreEventsResponse,
                responses.ScoreEventsResponse([examples.SCORE_EVENT], None),
            ),
        ),
        Endpoint(
            "DELETE",
            f"{PREFIX}/users/me",
            handlers.delete_account,
            "Delete your account",
            description="Deletes the score and the sessions. Score events become anonymous.",
            status=204,
            errors=(
                *examples.PLAYER_AUTH_ERRORS,
                examples.UNAVAILABLE,
                examples.USER_NOT_FOUND,
            ),
            **_PLAYER,
        ),
    )


def _leaderboard(handlers: Handlers, stream: LeaderboardStream) -> tuple[Endpoint, ...]:
    event = msgspec.json.encode(examples.STREAM_UPDATE).decode()
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/leaderboard",
            handlers.show_leaderboard,
            "Get the leaderboard",
            description="From the top, or around you (`around=me`, with an access token).",
            query=requests.LeaderboardQuery,
            errors=(
                *examples.PLAYER_AUTH_ERRORS,
                examples.INVALID_LIMIT,
                examples.RATE_LIMITED,
                examples.UNAVAILABLE,
                examples.USER_NOT_FOUND,
            ),
            **_enveloped(responses.LeaderboardResponse, examples.LEADERBOARD),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/leaderboard/stream",
            stream.stream,
            "Subscribe to the top ten",
            description=(
                f"Server-sent events named `{EVENT}`, with a ping every 30 seconds."
                " The access token is optional."
            ),
            media_type="text/event-stream",
            response_example=f"event: {EVENT}\ndata: {event}\n\n",
            errors=(
                *examples.PLAYER_AUTH_ERRORS,
                examples.TOO_MANY_STREAMS,
                examples.UNAVAILABLE,
            ),
        ),
    )


def _admin(handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/admin/leaderboard/rebuild",
            handlers.rebuild,
            "Rebuild the leaderboard in Redis",
            description="Online: reads and updates continue, and the new copy replaces the old one"
            " atomically.",
            errors=(
                examples.INVALID_KEY,
                examples.UNAVAILABLE,
                examples.REBUILD_UNDER_WAY,
            ),
            security=("operator",),
            **_enveloped(responses.RebuildResponse, responses.RebuildResponse(1)),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/admin/leaderboard/drift",
            handlers.show_drift,
            "Report differences between Redis and PostgreSQL",
            description="Compares every player and changes nothing.",
            errors=(examples.INVALID_KEY, examples.UNAVAILABLE),
            security=("operator",),
            **_enveloped(responses.DriftResponse, responses.DriftResponse(1, 0, 0, 0, 0, 0, [])),
        ),
    )
