"""The routes of the collect backend as a list: sign-in, Strava, workouts, models, milestones, the account, and audit."""

from typing import Any, Final

from tally.collect.api import schemas
from tally.collect.api.handlers import Handlers
from tally.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TallyError,
    Unauthenticated,
    Unavailable,
)
from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import ErrorFormat, NestedError

ERROR_FORMAT: Final = ErrorFormat(NestedError)
SECURITY: Final = {
    "cc_session": {"type": "apiKey", "in": "cookie", "name": "cc_session"},
    "admin": {"type": "http", "scheme": "bearer"},
}

_MOMENT: Final = "2026-01-15T10:30:00Z"
_MILESTONE_ID: Final = "01JHKZ7V5X9T4QZ1M2N3P4R5S6"
_UNAVAILABLE: Final = Unavailable("The store cannot answer now", retry_after=1)
_NO_SESSION: Final = Unauthenticated("Sign in first", code="invalid_session")
_CROSS_SITE: Final = Forbidden("The request comes from another site", code="cross_site_request")
_BAD_STATE: Final = Invalid(
    "This was not begun in this browser, or too long ago; begin again", code="invalid_state"
)
_BAD_PATH: Final = Invalid("return_to must be a path of this site", code="invalid_field")
_NO_MILESTONE: Final = NotFound("There is no such milestone", code="milestone_not_found")
_NO_MODEL: Final = NotFound("There is no such model", code="model_not_found")
_TOO_MANY: Final = Conflict("There are more than 3000 workouts", code="too_many_workouts")
_NOT_SET_UP: Final = Unavailable("Strava is not set up here", code="strava_not_set_up")

_READING: Final[dict[str, Any]] = {
    "errors": (_NO_SESSION, _UNAVAILABLE),
    "security": ("cc_session",),
}


def _changing(*errors: TallyError) -> dict[str, Any]:
    return {
        "errors": (*errors, _NO_SESSION, _CROSS_SITE, _UNAVAILABLE),
        "security": ("cc_session",),
    }


_STATUS: Final = schemas.StravaStatus(True, 13_579_246, "activity:read_all,read", _MOMENT)
_ME: Final = schemas.Me(
    "7d1c0f5e", "ann@example.org", "free", _MOMENT, _STATUS, schemas.Counts(42, 2, 9)
)
_WORKOUT: Final = schemas.WorkoutBody(
    16_000_000_001, "Morning ride", "GravelRide", _MOMENT, 42_195.5, 380.0, 6_300, 6_900
)
_MESH: Final[list[dict[str, Any]]] = [
    {
        "shape": "box",
        "position": [0, 0.1, 0],
        "rotation": [0, 0, 0],
        "scale": [1.6, 0.2, 1.2],
        "colour": "#7d7f85",
    }
]
_ATTACH: Final[dict[str, Any]] = {"to": None, "at": [0, 0, 0]}
_MODEL: Final = schemas.ModelBody(
    "discus-thrower", "Discus thrower", "An athlete in marble, wound up for the throw.", 12
)
_PART: Final = schemas.PartBody(
    1, "Plinth", "A slab of granite that carries it all.", _MESH, _ATTACH
)
_AWARD: Final = schemas.AwardBody(
    1, _PART.name, _PART.description, 41_667, _MOMENT, "6f1d2c3b", _MESH, _ATTACH
)
_MILESTONE: Final = schemas.MilestoneBody(
    milestone_id=_MILESTONE_ID,
    model_id="discus-thrower",
    sport="RIDE",
    metric="DISTANCE_METERS",
    total_target=500_000,
    progress=42_195.5,
    percent=8,
    parts_total=12,
    parts_minted=1,
    status="ACTIVE",
    period_start_at_utc=_MOMENT,
    period_end_at_utc=None,
    created_at_utc=_MOMENT,
    updated_at_utc=_MOMENT,
    completed_at_utc=None,
    version=2,
    awards=[_AWARD],
    next_part=schemas.NextPart(2, 83_334, 41_138.5),
)
_NEW_MILESTONE: Final = {
    "modelId": "discus-thrower",
    "sport": "RIDE",
    "metric": "DISTANCE_METERS",
    "totalTarget": 500_000,
}
_EVENT: Final = {
    "object_type": "activity",
    "object_id": 16_000_000_001,
    "aspect_type": "create",
    "owner_id": 13_579_246,
    "subscription_id": 120_475,
    "event_time": 1_767_225_600,
    "updates": {},
}
_AUDIT: Final = schemas.AuditBody(
    "STRAVA_CONNECTED", "7d1c0f5e", 1_767_225_600, "6f1d", "6f1d", {"athlete": 13_579_246}, None
)


def collect_api(handlers: Handlers) -> Api:
    """The backend's operations."""
    return Api(
        name="collect",
        description="Workouts unlock the parts of a model, each once and for ever.",
        error_format=ERROR_FORMAT,
        security_schemes=SECURITY,
        endpoints=(
            Endpoint(
                "GET",
                "/health",
                handlers.health,
                "Whether the backend is up",
                response=schemas.Health,
                response_example=schemas.Health("ok"),
            ),
            Endpoint(
                "GET",
                "/health/ready",
                handlers.ready,
                "Whether the backend can serve",
                response=schemas.Health,
                response_example=schemas.Health("ready"),
                errors=(_UNAVAILABLE,),
            ),
            *_auth(handlers),
            *_strava(handlers),
            *_collection(handlers),
            *_milestones(handlers),
            *_administration(handlers),
        ),
    )


def _auth(handlers: Handlers) -> tuple[Endpoint, ...]:
    refused = Unauthenticated("The issuer did not let you in", code="login_refused")
    away = Unavailable("Sign-in is not set up here", code="login_not_set_up")
    return (
        Endpoint(
            "GET",
            "/auth/login",
            handlers.login,
            "Begin to sign in",
            description="Sends the browser to the issuer. `return_to` is the path of this site to go to afterwards.",
            query=schemas.ReturnQuery,
            status=302,
            errors=(_BAD_PATH, away, _UNAVAILABLE),
        ),
        Endpoint(
            "GET",
            "/auth/callback",
            handlers.login_callback,
            "Finish signing in",
            description="Where the issuer sends the browser; sets the cookie `cc_session`.",
            query=schemas.LoginAnswer,
            status=303,
            errors=(_BAD_STATE, refused, away, _UNAVAILABLE),
        ),
        Endpoint("POST", "/auth/logout", handlers.logout, "Sign out", status=204, **_changing()),
        Endpoint(
            "GET",
            "/me",
            handlers.me,
            "Who I am",
            response=schemas.Me,
            response_example=_ME,
            **_READING,
        ),
    )


def _strava(handlers: Handlers) -> tuple[Endpoint, ...]:
    denied = Forbidden(
        "Without access to activities there is nothing to collect", code="activity_access_missing"
    )
    taken = Conflict("This athlete is linked to another account", code="athlete_already_connected")
    unlinked = NotFound("Strava is not linked", code="strava_not_connected")
    common = (_NO_SESSION, _NOT_SET_UP, _UNAVAILABLE)
    return (
        Endpoint(
            "GET",
            "/strava/connect",
            handlers.connect,
            "Begin to link Strava",
            query=schemas.ReturnQuery,
            status=302,
            errors=(_BAD_PATH, *common),
            security=("cc_session",),
        ),
        Endpoint(
            "GET",
            "/strava/callback",
            handlers.strava_callback,
            "Finish linking Strava",
            query=schemas.StravaAnswer,
            status=303,
            errors=(_BAD_STATE, denied, taken, *common),
            security=("cc_session",),
        ),
        Endpoint(
            "GET",
            "/strava/status",
            handlers.strava_status,
            "Whether Strava is linked",
            response=schemas.StravaStatus,
            response_example=_STATUS,
            **_READING,
        ),
        Endpoint(
            "DELETE",
            "/strava/connection",
            handlers.disconnect,
            "Unlink Strava",
            status=204,
            **_changing(unlinked),
        ),
        Endpoint(
            "GET",
            "/webhooks/strava",
            handlers.handshake,
            "Strava's handshake",
            query=schemas.HandshakeQuery,
            response=schemas.Handshake,
            response_example=schemas.Handshake("15f7d1a91c1f40f8a748fd134752feb3"),
            errors=(Forbidden("Invalid verify token", code="invalid_verify_token"),),
        ),
        Endpoint(
            "POST",
            "/webhooks/strava",
            handlers.event,
            "An event of Strava's",
            description="Answered when the event is safe in the inbox; it is applied within seconds.",
            request=schemas.EventBody,
            request_example=_EVENT,
            response=schemas.Received,
            response_example=schemas.Received(),
            errors=(
                Forbidden("The event is of another subscription", code="foreign_subscription"),
                _UNAVAILABLE,
            ),
        ),
    )


def _collection(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/workouts",
            handlers.workouts,
            "My workouts, newest first",
            query=schemas.PageQuery,
            response=schemas.WorkoutPage,
            response_example=schemas.WorkoutPage([_WORKOUT], None),
            **_READING,
        ),
        Endpoint(
            "GET",
            "/models",
            handlers.models,
            "What can be collected",
            response=schemas.ModelList,
            response_example=schemas.ModelList([_MODEL]),
            errors=(_UNAVAILABLE,),
        ),
        Endpoint(
            "GET",
            "/models/{model_id}",
            handlers.model,
            "A model with its parts",
            response=schemas.WholeModel,
            response_example=schemas.WholeModel(
                _MODEL.model_id, _MODEL.name, _MODEL.description, 12, [_PART]
            ),
            errors=(_NO_MODEL, _UNAVAILABLE),
        ),
    )


def _milestones(handlers: Handlers) -> tuple[Endpoint, ...]:
    full = Conflict("Nobody may have more than 50 milestones", code="too_many_milestones")
    one: dict[str, Any] = {"response": schemas.MilestoneBody, "response_example": _MILESTONE}
    reading: dict[str, Any] = {
        "errors": (_NO_MILESTONE, _NO_SESSION, _UNAVAILABLE),
        "security": ("cc_session",),
    }
    creating = one | _changing(_NO_MODEL, full, _TOO_MANY)
    repairing = one | _changing(_NO_MILESTONE, _TOO_MANY)
    return (
        Endpoint(
            "POST",
            "/milestones",
            handlers.create_milestone,
            "Set a goal",
            request=schemas.NewMilestone,
            request_example=_NEW_MILESTONE,
            status=201,
            **creating,
        ),
        Endpoint(
            "GET",
            "/milestones",
            handlers.list_milestones,
            "My goals, the oldest first",
            response=schemas.MilestoneList,
            response_example=schemas.MilestoneList([_MILESTONE]),
            **_READING,
        ),
        Endpoint(
            "GET",
            "/milestones/{milestone_id}",
            handlers.show_milestone,
            "A goal, and what it has earned",
            **one,
            **reading,
        ),
        Endpoint(
            "POST",
            "/milestones/{milestone_id}/recompute",
            handlers.recompute,
            "Measure again, for repair",
            **repairing,
        ),
        Endpoint(
            "GET",
            "/milestones/{milestone_id}/events",
            handlers.stream,
            "Progress and mints as they happen",
            description="Server-sent events: `milestone` first, then `progress` and `minted`.",
            media_type="text/event-stream",
            **reading,
        ),
    )


def _administration(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "DELETE",
            "/account",
            handlers.delete_account,
            "Delete my account",
            description="Strava, every item, every session, the identity. Safe to repeat until it answers 204.",
            status=204,
            **_changing(),
        ),
        Endpoint(
            "GET",
            "/admin/audit",
            handlers.audit,
            "What happened: by user, by correlation, or by event and month",
            query=schemas.AuditQuery,
            response=schemas.AuditPage,
            response_example=schemas.AuditPage([_AUDIT], None),
            errors=(Unauthenticated("Invalid token", code="invalid_token"), _UNAVAILABLE),
            security=("admin",),
        ),
    )
