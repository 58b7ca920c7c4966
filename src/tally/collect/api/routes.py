"""The routes of the collect API."""

from typing import Any, Final

from tally.collect.api.handlers import Handlers
from tally.collect.api.schemas import examples, requests, responses
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

_UNAVAILABLE: Final = Unavailable("The store is unavailable", retry_after=1)
_NO_SESSION: Final = Unauthenticated("Not signed in", code="invalid_session")
_CROSS_SITE: Final = Forbidden("Cross-site request", code="cross_site_request")
_INVALID_STATE: Final = Invalid(
    "state is expired or belongs to another browser; start again", code="invalid_state"
)
_INVALID_PATH: Final = Invalid(
    "return_to must be a path of this site with at most 512 characters", code="invalid_field"
)
_NO_MILESTONE: Final = NotFound("The milestone does not exist", code="milestone_not_found")
_NO_MODEL: Final = NotFound("The model does not exist", code="model_not_found")
_TOO_MANY_WORKOUTS: Final = Conflict(
    "The account has more than 3000 workouts", code="too_many_workouts"
)
_NOT_CONFIGURED: Final = Unavailable("Strava is not configured", code="strava_not_set_up")

_SESSION: Final[dict[str, Any]] = {"security": ("cc_session",)}
_READ: Final[dict[str, Any]] = {"errors": (_NO_SESSION, _UNAVAILABLE), **_SESSION}


def _change(*errors: TallyError) -> dict[str, Any]:
    return {"errors": (*errors, _NO_SESSION, _CROSS_SITE, _UNAVAILABLE), **_SESSION}


def collect_api(handlers: Handlers) -> Api:
    """Build the API. All routes are below `/collect`."""
    return Api(
        name="collect",
        description="Workouts unlock the parts of a model, each exactly once.",
        error_format=ERROR_FORMAT,
        security_schemes=SECURITY,
        endpoints=(
            *_health(handlers),
            *_auth(handlers),
            *_strava(handlers),
            *_webhook(handlers),
            *_collection(handlers),
            *_milestones(handlers),
            *_administration(handlers),
        ),
    )


def _health(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/health",
            handlers.health,
            "Check liveness",
            response=responses.CollectHealth,
            response_example=responses.CollectHealth("ok"),
        ),
        Endpoint(
            "GET",
            "/health/ready",
            handlers.ready,
            "Check readiness",
            response=responses.CollectHealth,
            response_example=responses.CollectHealth("ready"),
            errors=(_UNAVAILABLE,),
        ),
    )


def _auth(handlers: Handlers) -> tuple[Endpoint, ...]:
    rejected = Unauthenticated("The OIDC provider rejected the sign-in", code="login_refused")
    not_configured = Unavailable("Sign-in is not configured", code="login_not_set_up")
    return (
        Endpoint(
            "GET",
            "/auth/login",
            handlers.login,
            "Start signing in",
            description="Redirects to the OIDC provider."
            " `return_to` is the path of this site to redirect to afterwards.",
            query=requests.ReturnQuery,
            status=302,
            errors=(_INVALID_PATH, not_configured, _UNAVAILABLE),
        ),
        Endpoint(
            "GET",
            "/auth/callback",
            handlers.login_callback,
            "Finish signing in",
            description="The redirect target of the OIDC provider. Sets the cookie `cc_session`.",
            query=requests.LoginCallbackQuery,
            status=303,
            errors=(_INVALID_STATE, rejected, not_configured, _UNAVAILABLE),
        ),
        Endpoint("POST", "/auth/logout", handlers.logout, "Sign out", status=204, **_change()),
        Endpoint(
            "GET",
            "/me",
            handlers.me,
            "Get your account",
            response=responses.MeBody,
            response_example=examples.ME,
            **_READ,
        ),
    )


def _strava(handlers: Handlers) -> tuple[Endpoint, ...]:
    denied = Forbidden("Access to activities was not granted", code="activity_access_missing")
    taken = Conflict("The athlete is linked to another account", code="athlete_already_connected")
    not_linked = NotFound("Strava is not linked", code="strava_not_connected")
    common = (_NO_SESSION, _NOT_CONFIGURED, _UNAVAILABLE)
    return (
        Endpoint(
            "GET",
            "/strava/connect",
            handlers.connect,
            "Start linking Strava",
            query=requests.ReturnQuery,
            status=302,
            errors=(_INVALID_PATH, *common),
            **_SESSION,
        ),
        Endpoint(
            "GET",
            "/strava/callback",
            handlers.strava_callback,
            "Finish linking Strava",
            query=requests.StravaCallbackQuery,
            status=303,
            errors=(_INVALID_STATE, denied, taken, *common),
            **_SESSION,
        ),
        Endpoint(
            "GET",
            "/strava/status",
            handlers.strava_status,
            "Get the Strava connection",
            response=responses.StravaStatus,
            response_example=examples.STRAVA_STATUS,
            **_READ,
        ),
        Endpoint(
            "DELETE",
            "/strava/connection",
            handlers.disconnect,
            "Unlink Strava",
            status=204,
            **_change(not_linked),
        ),
    )


def _webhook(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/webhooks/strava",
            handlers.handshake,
            "Verify the webhook for Strava",
            query=requests.HandshakeQuery,
            response=responses.Handshake,
            response_example=responses.Handshake("15f7d1a91c1f40f8a748fd134752feb3"),
            errors=(Forbidden("Invalid verify token", code="invalid_verify_token"),),
        ),
        Endpoint(
            "POST",
            "/webhooks/strava",
            handlers.event,
            "Receive a Strava event",
            description="Responds when the event is durable. It is applied within seconds.",
            request=requests.StravaEventBody,
            request_example=examples.EVENT,
            response=responses.EventReceived,
            response_example=responses.EventReceived(),
            errors=(
                Forbidden(
                    "subscription_id belongs to another subscription", code="foreign_subscription"
                ),
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
            "List your workouts, newest first",
            query=requests.WorkoutsQuery,
            response=responses.WorkoutPage,
            response_example=responses.WorkoutPage([examples.WORKOUT], None),
            **_READ,
        ),
        Endpoint(
            "GET",
            "/models",
            handlers.models,
            "List the models",
            response=responses.ModelList,
            response_example=responses.ModelList([examples.MODEL]),
            errors=(_UNAVAILABLE,),
        ),
        Endpoint(
            "GET",
            "/models/{model_id}",
            handlers.model,
            "Get a model with its parts",
            response=responses.ModelWithParts,
            response_example=examples.MODEL_WITH_PARTS,
            errors=(_NO_MODEL, _UNAVAILABLE),
        ),
    )


def _milestones(handlers: Handlers) -> tuple[Endpoint, ...]:
    too_many = Conflict("An account has at most 50 milestones", code="too_many_milestones")
    body: dict[str, Any] = {
        "response": responses.MilestoneBody,
        "response_example": examples.MILESTONE,
    }
    read: dict[str, Any] = {"errors": (_NO_MILESTONE, _NO_SESSION, _UNAVAILABLE), **_SESSION}
    create = body | _change(_NO_MODEL, too_many, _TOO_MANY_WORKOUTS)
    recompute = body | _change(_NO_MILESTONE, _TOO_MANY_WORKOUTS)
    return (
        Endpoint(
            "POST",
            "/milestones",
            handlers.create_milestone,
            "Create a milestone",
            request=requests.NewMilestoneBody,
            request_example=examples.NEW_MILESTONE,
            status=201,
            **create,
        ),
        Endpoint(
            "GET",
            "/milestones",
            handlers.list_milestones,
            "List your milestones, oldest first",
            response=responses.MilestoneList,
            response_example=responses.MilestoneList([examples.MILESTONE]),
            **_READ,
        ),
        Endpoint(
            "GET",
            "/milestones/{milestone_id}",
            handlers.show_milestone,
            "Get a milestone with its awards",
            **body,
            **read,
        ),
        Endpoint(
            "POST",
            "/milestones/{milestone_id}/recompute",
            handlers.recompute,
            "Recompute a milestone",
            **recompute,
        ),
        Endpoint(
            "GET",
            "/milestones/{milestone_id}/events",
            handlers.stream,
            "Subscribe to progress and mints",
            description="Server-sent events: `milestone` first, then `progress` and `minted`.",
            media_type="text/event-stream",
            **read,
        ),
    )


def _administration(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "DELETE",
            "/account",
            handlers.delete_account,
            "Delete your account",
            description="Deletes the Strava link, all items, all sessions and the identity."
            " Idempotent: repeat until the response is 204.",
            status=204,
            **_change(),
        ),
        Endpoint(
            "GET",
            "/admin/audit",
            handlers.audit,
            "Search the audit trail by user, by correlation, or by event and month",
            query=requests.AuditQuery,
            response=responses.AuditPage,
            response_example=responses.AuditPage([examples.AUDIT_EVENT], None),
            errors=(Unauthenticated("Invalid token", code="invalid_token"), _UNAVAILABLE),
            security=("admin",),
        ),
    )
