"""The routes of the scoreboard: for players, game servers, operators and stream subscribers."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta

from tally.instance.stream_limits import TOO_MANY_STREAMS
from tally.kit.endpoints import Api, Endpoint
from tally.kit.hub import encode_event
from tally.kit.operators import OPERATOR_SCHEME
from tally.kit.readiness import NOT_READY_EXAMPLE, READY_EXAMPLE, Readiness
from tally.scoreboard.api.admin import AdminHandlers
from tally.scoreboard.api.auth import INTERNAL_HEADER
from tally.scoreboard.api.events import EVENT, LeaderboardStream
from tally.scoreboard.api.handlers import Handlers
from tally.scoreboard.api.schemas import examples, requests, responses
from tally.scoreboard.service.scores import ScoreUpdateResponse

PREFIX: Final = "/api/v1"
SERVICE: Final = "scoreboard-api"

SECURITY: Final = {
    "player": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "Access token of a player, from registration, login or refresh.",
    },
    "game_server": {
        "type": "apiKey",
        "in": "header",
        "name": INTERNAL_HEADER,
        "description": "Key of game servers: TALLY_SCOREBOARD_INTERNAL_KEY, or"
        " `scoreboard-internal.key` in the data directory.",
    },
}
_PATH_TYPES: Final = {
    "user_id": Annotated[requests.UserId, Meta(examples=[examples.USER_ID])],
    "session_id": Annotated[requests.SessionId, Meta(examples=[examples.SESSION_ID])],
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
            *_account_security(handlers.public),
            *_scores(handlers.public),
            *_own_data(handlers.public),
            *_account(handlers.public),
            *_leaderboard(handlers.public, handlers.stream),
            *_admin(handlers.admin),
            *_moderation(handlers.admin),
        ),
        service=SERVICE,
        path_types=_PATH_TYPES,
        security_schemes=SECURITY,
    )


def _auth(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/health",
            handlers.check_health,
            "Check liveness",
            response=responses.HealthResponse,
            response_example=responses.HealthResponse("ok"),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/health/ready",
            handlers.check_readiness,
            "Check readiness",
            description="Requires PostgreSQL, and reports Redis without requiring it.",
            response=Readiness,
            response_example=READY_EXAMPLE,
            other_responses={503: NOT_READY_EXAMPLE},
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
            errors=(
                *_AUTH_ROUTE_ERRORS,
                examples.WEAK_PASSWORD,
                examples.USERNAME_TAKEN,
                examples.EMAIL_TAKEN,
            ),
            response=responses.LoginResponse,
            response_example=examples.LOGIN,
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/auth/login",
            handlers.login,
            "Log in",
            description="`login` is the username or the email address.",
            request=requests.LoginRequest,
            request_example=requests.LoginRequest("ana_99", "a long password"),
            errors=(
                *_AUTH_ROUTE_ERRORS,
                examples.INVALID_CREDENTIALS,
                examples.TOO_MANY_SIGN_INS,
            ),
            response=responses.LoginResponse,
            response_example=examples.LOGIN,
        ),
    )


def _sessions(handlers: Handlers) -> tuple[Endpoint, ...]:
    errors = (*examples.PLAYER_AUTH_ERRORS, *_AUTH_ROUTE_ERRORS)
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/auth/refresh",
            handlers.refresh_tokens,
            "Refresh the tokens",
            description=(
                "Returns the next tokens. Repeating the request within 30 seconds returns the same"
                " tokens; reusing a refresh token later revokes its session."
            ),
            request=requests.RefreshRequest,
            request_example=requests.RefreshRequest("kq3vQ0x9"),
            errors=(*_AUTH_ROUTE_ERRORS, examples.INVALID_REFRESH_TOKEN),
            response=responses.TokensResponse,
            response_example=examples.TOKENS,
        ),
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
            response=responses.SessionsResponse,
            response_example=responses.SessionsResponse([examples.SESSION]),
        ),
        Endpoint(
            "DELETE",
            f"{PREFIX}/auth/sessions/{{session_id}}",
            handlers.revoke_session,
            "Revoke one of your sessions",
            status=204,
            errors=(*errors, examples.INVALID_SESSION_ID, examples.SESSION_NOT_FOUND),
            **_PLAYER,
        ),
    )


def _account_security(handlers: Handlers) -> tuple[Endpoint, ...]:
    errors = (*examples.PLAYER_AUTH_ERRORS, *_AUTH_ROUTE_ERRORS)
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/auth/password",
            handlers.change_password,
            "Change your password",
            description="Revokes your other sessions immediately, on every server.",
            request=requests.ChangePasswordRequest,
            request_example=requests.ChangePasswordRequest(
                "a long password", "another long password"
            ),
            status=204,
            errors=(
                *errors,
                examples.WEAK_PASSWORD,
                examples.WRONG_PASSWORD,
                examples.PASSWORD_CHANGED,
                examples.TOO_MANY_SIGN_INS,
            ),
            **_PLAYER,
        ),
        Endpoint(
            "DELETE",
            f"{PREFIX}/auth/sessions",
            handlers.revoke_all_sessions,
            "Log out everywhere",
            description="Revokes all your sessions immediately, on every server.",
            status=204,
            errors=errors,
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
            response=responses.ActionTokenResponse,
            response_example=responses.ActionTokenResponse(examples.ACTION_TOKEN, examples.EXPIRY),
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
                examples.PLAYER_BANNED,
                examples.SCORE_TOO_GREAT,
            ),
            **_PLAYER,
            response=ScoreUpdateResponse,
            response_example=examples.SCORE_UPDATE,
        ),
    )


def _own_data(handlers: Handlers) -> tuple[Endpoint, ...]:
    errors = (*examples.PLAYER_AUTH_ERRORS, examples.RATE_LIMITED, examples.UNAVAILABLE)
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/scores/me",
            handlers.get_own_score,
            "Get your score, rank and percentile",
            errors=(*errors, examples.USER_NOT_FOUND, examples.PLAYER_BANNED),
            **_PLAYER,
            response=responses.OwnScoreResponse,
            response_example=examples.OWN_SCORE,
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/users/me/events",
            handlers.list_own_events,
            "List your score changes, newest first",
            query=requests.ScoreEventsQuery,
            errors=(*errors, examples.INVALID_LIMIT),
            **_PLAYER,
            response=responses.ScoreEventsResponse,
            response_example=responses.ScoreEventsResponse([examples.SCORE_EVENT], None),
        ),
    )


def _account(handlers: Handlers) -> tuple[Endpoint, ...]:
    errors = (*examples.PLAYER_AUTH_ERRORS, examples.RATE_LIMITED, examples.UNAVAILABLE)
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/users/me",
            handlers.get_account,
            "Get your account",
            errors=(*errors, examples.USER_NOT_FOUND),
            **_PLAYER,
            response=responses.UserResponse,
            response_example=examples.USER,
        ),
        Endpoint(
            "PATCH",
            f"{PREFIX}/users/me",
            handlers.update_account,
            "Change your username, email address or avatar",
            description="Absent fields keep their value; an `avatar_url` of null removes it.",
            request=requests.UpdateAccountRequest,
            request_example=requests.UpdateAccountRequest(
                "ana_99", "ana@example.com", examples.AVATAR_URL
            ),
            errors=(
                *errors,
                examples.USERNAME_TAKEN,
                examples.EMAIL_TAKEN,
                examples.USER_NOT_FOUND,
            ),
            **_PLAYER,
            response=responses.UserResponse,
            response_example=examples.USER,
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
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/leaderboard",
            handlers.get_leaderboard,
            "Get the leaderboard",
            description="From the top, or around you (`around=me`, with an access token).",
            query=requests.LeaderboardQuery,
            errors=(
                *examples.PLAYER_AUTH_ERRORS,
                examples.INVALID_LIMIT,
                examples.RATE_LIMITED,
                examples.UNAVAILABLE,
                examples.USER_NOT_FOUND,
                examples.PLAYER_BANNED,
            ),
            response=responses.LeaderboardResponse,
            response_example=examples.LEADERBOARD,
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/leaderboard/stream",
            stream.stream_leaderboard,
            "Subscribe to the top ten",
            description=(
                f"Server-sent events named `{EVENT}`, with a ping every 30 seconds."
                " The access token is optional; with it, the stream ends with `session_ended` when"
                " the session ends."
            ),
            media_type="text/event-stream",
            response_example=encode_event(EVENT, examples.STREAM_UPDATE).decode(),
            errors=(
                *examples.PLAYER_AUTH_ERRORS,
                TOO_MANY_STREAMS,
                examples.UNAVAILABLE,
            ),
        ),
    )


def _admin(handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/admin/leaderboard/rebuild",
            handlers.rebuild_leaderboard,
            "Rebuild the leaderboard in Redis",
            description="Online: reads and updates continue, and the new copy replaces the old one"
            " atomically.",
            errors=(
                examples.INVALID_KEY,
                examples.UNAVAILABLE,
                examples.REBUILD_UNDER_WAY,
            ),
            security=(OPERATOR_SCHEME,),
            response=responses.RebuildResponse,
            response_example=responses.RebuildResponse(1),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/admin/leaderboard/drift",
            handlers.get_drift,
            "Report differences between Redis and PostgreSQL",
            description="Compares every player and changes nothing.",
            errors=(examples.INVALID_KEY, examples.UNAVAILABLE),
            security=(OPERATOR_SCHEME,),
            response=responses.DriftResponse,
            response_example=responses.DriftResponse(1, 0, 0, 0, 0, 0, []),
        ),
    )


def _moderation(handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    errors = (
        examples.INVALID_USER_ID,
        examples.INVALID_KEY,
        examples.USER_NOT_FOUND,
        examples.UNAVAILABLE,
    )
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/admin/players/{{user_id}}/adjust",
            handlers.adjust_score,
            "Adjust a player's score",
            description="Adds an event with the reason to the player's history. Repeating an"
            " `adjustment_id` returns the outcome of the first request and changes nothing.",
            request=requests.AdjustScoreRequest,
            request_example=requests.AdjustScoreRequest(-100, "Points from a bug", "case-17"),
            errors=(
                *errors,
                examples.PLAYER_BANNED,
                examples.ADJUSTMENT_EXISTS,
                examples.SCORE_TOO_GREAT,
                examples.SCORE_TOO_SMALL,
            ),
            security=(OPERATOR_SCHEME,),
            response=responses.AdjustmentResponse,
            response_example=responses.AdjustmentResponse(
                examples.USER_ID, "case-17", -100, 1400, 6
            ),
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/admin/players/{{user_id}}/ban",
            handlers.ban_player,
            "Ban a player",
            description="Hides the player from the leaderboard and rejects score updates. The"
            " score is kept.",
            status=204,
            errors=errors,
            security=(OPERATOR_SCHEME,),
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/admin/players/{{user_id}}/unban",
            handlers.unban_player,
            "Unban a player",
            description="Shows the player again, with the score from before the ban.",
            status=204,
            errors=errors,
            security=(OPERATOR_SCHEME,),
        ),
    )
