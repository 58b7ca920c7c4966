"""The endpoints for admins: fixtures, syncs, replays and operator actions."""

from typing import Any, Final

from tally.cricket.api.admin import AdminHandlers
from tally.cricket.api.endpoint_options import admin_endpoint
from tally.cricket.api.schemas import admin, examples, matches, users
from tally.cricket.model import errors
from tally.errors import Unavailable
from tally.kit.endpoints import Endpoint

_MATCH_NOT_FOUND: Final = errors.match_not_found()


def admin_endpoints(admin_handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    return (
        *_administration(admin_handlers),
        *_operator_actions(admin_handlers),
        *_activities(admin_handlers),
    )


def _administration(admin_handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    report = admin.SyncReport({"leagues": {"created": 1, "updated": 0, "unchanged": 27}})
    circuit_open = Unavailable("SportMonks is unavailable", retry_after=30)
    return (
        Endpoint(
            "GET",
            "/admin/fixtures",
            admin_handlers.list_fixtures,
            "List the fixtures of a league",
            description="Scans the whole table; use it rarely.",
            query=admin.AdminFixtureQuery,
            response=matches.MatchPage,
            response_example=matches.MatchPage([examples.MATCH], None),
            **admin_endpoint(),
        ),
        Endpoint(
            "POST",
            "/admin/sync",
            admin_handlers.run_sync,
            "Run a sync",
            request=admin.SyncRequest,
            request_example={"what": "fixtures"},
            response=admin.SyncReport,
            response_example=report,
            **admin_endpoint(circuit_open),
        ),
        Endpoint(
            "GET",
            "/admin/matches/{match_id}/state",
            admin_handlers.get_match_state,
            "Get the pipeline state of a match",
            response=admin.MatchStateBody,
            response_example=examples.MATCH_STATE,
            **admin_endpoint(_MATCH_NOT_FOUND),
        ),
        Endpoint(
            "POST",
            "/admin/matches/{match_id}/replay",
            admin_handlers.start_replay,
            "Replay a recorded match",
            request=admin.ReplayRequest,
            request_example={"speed": 60},
            response=matches.MatchBody,
            response_example=examples.MATCH,
            status=201,
            **admin_endpoint(_MATCH_NOT_FOUND, errors.no_recording()),
        ),
    )


def _operator_actions(admin_handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    correction = {"note": "Rovers won by 4 runs", "winnerTeamId": "5"}
    state: dict[str, Any] = {
        "response": admin.MatchStateBody,
        "response_example": examples.MATCH_STATE,
    }
    return (
        Endpoint(
            "PUT",
            "/admin/matches/{match_id}/hold",
            admin_handlers.hold_match,
            "Hold a match",
            description="While a match is held, its follows are kept, its Live Activities do not"
            " end and nobody is alerted. Scores are still updated.",
            **state,
            **admin_endpoint(_MATCH_NOT_FOUND),
        ),
        Endpoint(
            "DELETE",
            "/admin/matches/{match_id}/hold",
            admin_handlers.release_match,
            "Release a match",
            **state,
            **admin_endpoint(_MATCH_NOT_FOUND),
        ),
        Endpoint(
            "PUT",
            "/admin/matches/{match_id}/result",
            admin_handlers.correct_result,
            "Correct the result of a match",
            description="Replaces the result of the score service until the correction is removed."
            " Followers receive it after two polls.",
            request=admin.CorrectionRequest,
            request_example=correction,
            **state,
            **admin_endpoint(errors.winner_not_in_match(), _MATCH_NOT_FOUND),
        ),
        Endpoint(
            "DELETE",
            "/admin/matches/{match_id}/result",
            admin_handlers.remove_correction,
            "Remove the correction of a result",
            **state,
            **admin_endpoint(_MATCH_NOT_FOUND),
        ),
        Endpoint(
            "POST",
            "/admin/matches/{match_id}/restore-follows",
            admin_handlers.restore_follows,
            "Restore deleted follows",
            description="Restores the follows that were deleted in the last day because the match"
            " was over.",
            response=admin.RestoredFollows,
            response_example=admin.RestoredFollows(1_204),
            **admin_endpoint(_MATCH_NOT_FOUND),
        ),
    )


def _activities(admin_handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/admin/matches/{match_id}/start",
            admin_handlers.resend_start,
            "Send the start of a Live Activity again",
            description="Ignores the state of the Live Activity and the limits of restarts.",
            request=admin.StartRequest,
            request_example={"userId": "ana", "deviceId": "A1B2-C3D4"},
            response=users.ActivityBody,
            response_example=examples.ACTIVITY,
            **admin_endpoint(
                _MATCH_NOT_FOUND,
                errors.not_followed(),
                errors.device_not_startable(),
                errors.match_not_live(),
            ),
        ),
    )
