"""The routes of named boards and their seasons."""

from tally.instance.stream_limits import TOO_MANY_STREAMS
from tally.kit.endpoints import Endpoint
from tally.kit.hub import encode_event
from tally.kit.operators import OPERATOR_SCHEME
from tally.scoreboard.api.boards import BoardHandlers
from tally.scoreboard.api.endpoint_options import PLAYER, PREFIX
from tally.scoreboard.api.events import BOARD_EVENT, BoardStream
from tally.scoreboard.api.schemas import board_examples, boards, examples, requests

_READ_ERRORS = (
    examples.RATE_LIMITED,
    examples.UNAVAILABLE,
    board_examples.BOARD_NOT_FOUND,
    examples.INVALID_LIMIT,
)


def board_endpoints(handlers: BoardHandlers, stream: BoardStream) -> tuple[Endpoint, ...]:
    """Return the endpoints of boards, of which only the first requires the operator's token."""
    return (_create(handlers), *_boards(handlers), _stream(stream), *_seasons(handlers))


def _create(handlers: BoardHandlers) -> Endpoint:
    return Endpoint(
        "POST",
        f"{PREFIX}/admin/boards",
        handlers.create_board,
        "Create a board",
        description="`operator` says what an action does to a player's score: `sum` adds its"
        " points, `best` keeps the better value, `latest` replaces the value. With `reset`, a"
        " season ends whenever the cron expression matches the time in the time zone. Repeating"
        " the request returns the board.",
        request=requests.CreateBoardRequest,
        request_example=board_examples.CREATE_BOARD,
        status=201,
        errors=(
            examples.INVALID_KEY,
            board_examples.INVALID_CRON,
            board_examples.BOARD_EXISTS,
            examples.UNAVAILABLE,
        ),
        security=(OPERATOR_SCHEME,),
        response=boards.BoardResponse,
        response_example=board_examples.BOARD,
    )


def _boards(handlers: BoardHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/boards",
            handlers.list_boards,
            "List the boards",
            query=requests.BoardListQuery,
            errors=(examples.RATE_LIMITED, examples.UNAVAILABLE, examples.INVALID_LIMIT),
            response=boards.BoardsResponse,
            response_example=boards.BoardsResponse([board_examples.BOARD], None),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/boards/{{board_id}}",
            handlers.get_board,
            "Get the standings of a board",
            description="Those of the open season, from the top, or around you (`around=me`, with"
            " an access token).",
            query=requests.LeaderboardQuery,
            errors=(
                *examples.PLAYER_AUTH_ERRORS,
                *_READ_ERRORS,
                board_examples.NO_SCORE,
                examples.PLAYER_BANNED,
            ),
            response=boards.BoardLeaderboardResponse,
            response_example=board_examples.BOARD_PAGE,
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/boards/{{board_id}}/me",
            handlers.get_own_standing,
            "Get your score, rank and percentile on a board",
            errors=(
                *examples.PLAYER_AUTH_ERRORS,
                examples.RATE_LIMITED,
                examples.UNAVAILABLE,
                board_examples.BOARD_NOT_FOUND,
                board_examples.NO_SCORE,
                examples.PLAYER_BANNED,
            ),
            **PLAYER,
            response=boards.BoardStandingResponse,
            response_example=board_examples.OWN_STANDING,
        ),
    )


def _stream(stream: BoardStream) -> Endpoint:
    return Endpoint(
        "GET",
        f"{PREFIX}/boards/{{board_id}}/stream",
        stream.stream_board,
        "Subscribe to the top ten of a board",
        description=f"Server-sent events named `{BOARD_EVENT}`, with a ping every 30 seconds. When"
        " a season closes, the next event has the number of the new season. The access token is"
        " optional, as for the global leaderboard.",
        media_type="text/event-stream",
        response_example=encode_event(BOARD_EVENT, board_examples.BOARD_UPDATE).decode(),
        errors=(
            *examples.PLAYER_AUTH_ERRORS,
            board_examples.BOARD_NOT_FOUND,
            TOO_MANY_STREAMS,
            examples.UNAVAILABLE,
        ),
    )


def _seasons(handlers: BoardHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/boards/{{board_id}}/seasons",
            handlers.list_seasons,
            "List the closed seasons of a board, newest first",
            query=requests.BoardListQuery,
            errors=_READ_ERRORS,
            response=boards.SeasonsResponse,
            response_example=boards.SeasonsResponse([board_examples.SEASON], None),
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/boards/{{board_id}}/seasons/{{number}}",
            handlers.get_season,
            "Get the final standings of a season",
            description="Deleted players keep their ranks, as `Deleted player` without an id.",
            query=requests.LeaderboardQuery,
            errors=(
                *examples.PLAYER_AUTH_ERRORS,
                *_READ_ERRORS,
                board_examples.SEASON_NOT_FOUND,
                board_examples.NO_SCORE,
            ),
            response=boards.SeasonLeaderboardResponse,
            response_example=board_examples.SEASON_PAGE,
        ),
    )
