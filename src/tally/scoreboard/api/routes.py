"""The routes of the scoreboard: for players, game servers, operators and stream subscribers."""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from tally.instance.stream_limits import TOO_MANY_STREAMS
from tally.kit.endpoints import Api, Endpoint
from tally.kit.hub import encode_event
from tally.kit.readiness import NOT_READY_EXAMPLE, READY_EXAMPLE, Readiness
from tally.scoreboard.api.admin import AdminHandlers
from tally.scoreboard.api.admin_routes import operator_endpoints
from tally.scoreboard.api.auth import INTERNAL_HEADER
from tally.scoreboard.api.board_routes import board_endpoints
from tally.scoreboard.api.boards import BoardHandlers
from tally.scoreboard.api.endpoint_options import PLAYER, PREFIX
from tally.scoreboard.api.events import EVENT, BoardStream, LeaderboardStream
from tally.scoreboard.api.handlers import Handlers
from tally.scoreboard.api.player_routes import player_endpoints
from tally.scoreboard.api.schemas import board_examples, examples, requests, responses
from tally.scoreboard.service.scores import ScoreUpdateResponse

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
    "board_id": Annotated[requests.BoardId, Meta(examples=["weekly"])],
    "number": Annotated[requests.SeasonNumber, Meta(examples=[1])],
    "session_id": Annotated[requests.SessionId, Meta(examples=[examples.SESSION_ID])],
}


@dataclass(frozen=True, slots=True)
class ScoreboardHandlers:
    """The handlers of all routes."""

    public: Handlers
    stream: LeaderboardStream
    admin: AdminHandlers
    boards: BoardHandlers
    board_stream: BoardStream


def scoreboard_api(handlers: ScoreboardHandlers) -> Api:
    """Return all routes, which are mounted under `/scoreboard`."""
    return Api(
        name="scoreboard",
        description="A live leaderboard whose scores are verified by the game server.",
        endpoints=(
            *_health(handlers.public),
            *player_endpoints(handlers.public),
            *_scores(handlers.public),
            *_own_data(handlers.public),
            *_leaderboard(handlers.public, handlers.stream),
            *board_endpoints(handlers.boards, handlers.board_stream),
            *operator_endpoints(handlers.admin),
        ),
        service=SERVICE,
        path_types=_PATH_TYPES,
        security_schemes=SECURITY,
    )


def _health(handlers: Handlers) -> tuple[Endpoint, ...]:
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
                board_examples.BOARD_NOT_FOUND,
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
            **PLAYER,
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
            **PLAYER,
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
            **PLAYER,
            response=responses.ScoreEventsResponse,
            response_example=responses.ScoreEventsResponse([examples.SCORE_EVENT], None),
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
