"""The routes of operators: the copy in Redis, and moderation of players."""

from tally.kit.endpoints import Endpoint
from tally.kit.operators import OPERATOR_SCHEME
from tally.scoreboard.api.admin import AdminHandlers
from tally.scoreboard.api.endpoint_options import PREFIX
from tally.scoreboard.api.schemas import board_examples, examples, requests, responses


def operator_endpoints(handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    """Return the endpoints that require the operator's token."""
    return (*_cached_leaderboard(handlers), *_moderation(handlers))


def _cached_leaderboard(handlers: AdminHandlers) -> tuple[Endpoint, ...]:
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
            " `adjustment_id` returns the outcome of the first request and changes nothing."
            " With `board`, the adjustment applies to the open season of that board.",
            request=requests.AdjustScoreRequest,
            request_example=requests.AdjustScoreRequest(-100, "Points from a bug", "case-17"),
            errors=(
                *errors,
                examples.PLAYER_BANNED,
                examples.ADJUSTMENT_EXISTS,
                examples.SCORE_TOO_GREAT,
                examples.SCORE_TOO_SMALL,
                board_examples.BOARD_NOT_FOUND,
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
