"""The routes of workouts."""

from typing import Any, Final

from tally.collect.api.schemas import examples, requests, responses
from tally.collect.api.workouts import FILE_TYPES, WorkoutHandlers
from tally.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    TallyError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from tally.kit.endpoints import Endpoint

_UNAVAILABLE: Final = Unavailable("The store is unavailable", retry_after=1)
_NO_SESSION: Final = Unauthenticated("Not signed in", code="invalid_session")
_CROSS_SITE: Final = Forbidden("Cross-site request", code="cross_site_request")
_NO_WORKOUT: Final = NotFound("The workout does not exist", code="workout_not_found")
_TOO_MANY: Final = Conflict(
    "The account has too many workouts to search for copies", code="too_many_workouts"
)
_BODY: Final[dict[str, Any]] = {
    "response": responses.WorkoutBody,
    "response_example": examples.FILE_WORKOUT,
}
_IMPORT_ERRORS: Final = (
    Invalid("The file must be FIT, GPX or TCX", code="unknown_file_format"),
    Invalid("The FIT file is damaged: its checksum is wrong", code="corrupt_file"),
    Invalid("The file must contain the time of the workout", code="invalid_workout"),
    Invalid("The file must be exactly one gzip member", code="malformed_gzip"),
    TooLarge("The file must have at most 200000 points", code="file_too_complex"),
    TooLarge("The body must be at most 20000000 bytes", limit=20_000_000),
    RateLimited("Rate limit exceeded: at most 300 imports per hour", retry_after=12),
    Conflict("An account has at most 5000 files", code="too_many_files"),
    _TOO_MANY,
)


def workout_endpoints(handlers: WorkoutHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/workouts",
            handlers.list_workouts,
            "List your workouts, newest first",
            query=requests.WorkoutsQuery,
            response=responses.WorkoutPage,
            response_example=responses.WorkoutPage([examples.FILE_WORKOUT, examples.WORKOUT], None),
            errors=(_NO_SESSION, _UNAVAILABLE),
            security=("collect_session",),
        ),
        Endpoint(
            "POST",
            "/workouts/import",
            handlers.import_workout,
            "Import a FIT, GPX or TCX file",
            description="The body is the file, which may be compressed with gzip. The content"
            " decides about the format. A file that is already imported returns 200.",
            query=requests.ImportQuery,
            file_types=FILE_TYPES,
            request_example=examples.GPX,
            status=201,
            other_responses={200: examples.FILE_WORKOUT},
            **_BODY,
            **_change(*_IMPORT_ERRORS),
        ),
        *_copies(handlers),
    )


def _copies(handlers: WorkoutHandlers) -> tuple[Endpoint, ...]:
    strava = Conflict(
        "The workout comes from Strava; delete the activity there", code="strava_workout"
    )
    single = Conflict("The workout must be a copy of one that counts", code="not_a_duplicate")
    return (
        Endpoint(
            "DELETE",
            "/workouts/{workout_id}",
            handlers.delete_workout,
            "Delete a workout that comes from a file",
            description="If the workout has a copy, the copy counts from now on.",
            status=204,
            **_change(_NO_WORKOUT, strava, _TOO_MANY),
        ),
        Endpoint(
            "PUT",
            "/workouts/{workout_id}/separation",
            handlers.separate_workout,
            "Count a workout although it looks like a copy",
            **_BODY,
            **_change(_NO_WORKOUT, single, _TOO_MANY),
        ),
        Endpoint(
            "DELETE",
            "/workouts/{workout_id}/separation",
            handlers.rejoin_workout,
            "Undo the separation of a workout",
            **_BODY,
            **_change(_NO_WORKOUT, _TOO_MANY),
        ),
    )


def _change(*errors: TallyError) -> dict[str, Any]:
    return {
        "errors": (*errors, _NO_SESSION, _CROSS_SITE, _UNAVAILABLE),
        "security": ("collect_session",),
    }
