"""The routes of the collect API."""

from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import replace

from tally.collect.api.account_routes import account_endpoints
from tally.collect.api.handlers import Handlers
from tally.collect.api.milestone_routes import milestone_endpoints
from tally.collect.api.schemas import collection, examples, requests, responses
from tally.collect.api.schemas.account_examples import SESSION
from tally.collect.api.workout_routes import workout_endpoints
from tally.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    TallyError,
    Unauthenticated,
    Unavailable,
)
from tally.kit.endpoints import Api, Endpoint
from tally.kit.operators import OPERATOR_SCHEME
from tally.kit.readiness import NOT_READY_EXAMPLE, READY_EXAMPLE, Readiness

SECURITY: Final = {
    "collect_session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "cc_session",
        "description": "Cookie of a signed-in user, set after `GET /collect/auth/login`. Programs"
        " also send the header `X-Requested-With` with requests that change something.",
    },
}
_PATH_TYPES: Final = {
    "secret": Annotated[str, Meta(examples=["the-secret-part-of-the-callback-url"])],
    "milestone_id": Annotated[str, Meta(examples=[examples.MILESTONE_ID])],
    "model_id": Annotated[str, Meta(examples=[examples.MODEL.model_id])],
    "workout_id": Annotated[str, Meta(examples=[examples.FILE_WORKOUT.workout_id])],
    "session_id": Annotated[str, Meta(examples=[SESSION.session_id])],
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
_NO_MODEL: Final = NotFound("The model does not exist", code="model_not_found")
_RELINK_REQUIRED: Final = Conflict("Strava must be linked again", code="strava_relink_required")
_TOO_MANY_SYNCS: Final = RateLimited(
    "A sync can be requested every 10 minutes", code="too_many_syncs", retry_after=600
)
_TOO_MANY_SIGN_INS: Final = RateLimited(
    "Rate limit exceeded: at most 300 sign-ins per minute and address", retry_after=1
)
_NOT_CONFIGURED: Final = Unavailable("Strava is not configured", code="strava_not_set_up")

_SESSION: Final[dict[str, Any]] = {"security": ("collect_session",)}
_READ: Final[dict[str, Any]] = {"errors": (_NO_SESSION, _UNAVAILABLE), **_SESSION}


def _read(*errors: TallyError) -> dict[str, Any]:
    return {"errors": (*errors, _NO_SESSION, _UNAVAILABLE), **_SESSION}


def _change(*errors: TallyError) -> dict[str, Any]:
    return {"errors": (*errors, _NO_SESSION, _CROSS_SITE, _UNAVAILABLE), **_SESSION}


def collect_api(handlers: Handlers) -> Api:
    """Build the API. All routes are below `/collect`."""
    return Api(
        name="collect",
        description="Workouts unlock the parts of a model, each exactly once.",
        path_types=_PATH_TYPES,
        security_schemes=SECURITY,
        endpoints=(
            *_health(handlers),
            *_auth(handlers),
            *_strava(handlers),
            *_webhook(handlers),
            *workout_endpoints(handlers),
            *_collection(handlers),
            *milestone_endpoints(handlers, _read, _change),
            *account_endpoints(handlers, _READ, _change()),
            *_administration(handlers),
        ),
    )


def _health(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/health",
            handlers.check_health,
            "Check liveness",
            response=responses.CollectHealth,
            response_example=responses.CollectHealth("ok"),
        ),
        Endpoint(
            "GET",
            "/health/ready",
            handlers.check_readiness,
            "Check readiness",
            response=Readiness,
            response_example=READY_EXAMPLE,
            other_responses={503: NOT_READY_EXAMPLE},
        ),
    )


def _auth(handlers: Handlers) -> tuple[Endpoint, ...]:
    rejected = Unauthenticated("The OIDC provider rejected the sign-in", code="login_refused")
    not_configured = Unavailable("Sign-in is not configured", code="login_not_set_up")
    deleting = Conflict("This account is being deleted", code="account_deletion_pending")
    return (
        Endpoint(
            "GET",
            "/auth/login",
            handlers.start_login,
            "Start signing in",
            description="Redirects to the OIDC provider."
            " `return_to` is the path of this site to redirect to afterwards.",
            query=requests.ReturnQuery,
            status=302,
            errors=(_INVALID_PATH, _TOO_MANY_SIGN_INS, not_configured, _UNAVAILABLE),
        ),
        Endpoint(
            "GET",
            "/auth/callback",
            handlers.finish_login,
            "Finish signing in",
            description="The redirect target of the OIDC provider. Sets the cookie `cc_session`.",
            query=requests.LoginCallbackQuery,
            status=303,
            errors=(_INVALID_STATE, rejected, deleting, not_configured, _UNAVAILABLE),
        ),
        Endpoint("POST", "/auth/logout", handlers.logout, "Sign out", status=204, **_change()),
        Endpoint(
            "GET",
            "/me",
            handlers.get_account,
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
            handlers.start_strava_link,
            "Start linking Strava",
            query=requests.ReturnQuery,
            status=302,
            errors=(_INVALID_PATH, _TOO_MANY_SIGN_INS, *common),
            **_SESSION,
        ),
        Endpoint(
            "GET",
            "/strava/callback",
            handlers.finish_strava_link,
            "Finish linking Strava",
            query=requests.StravaCallbackQuery,
            status=303,
            errors=(_INVALID_STATE, denied, taken, *common),
            **_SESSION,
        ),
        Endpoint(
            "GET",
            "/strava/status",
            handlers.get_strava_status,
            "Get the Strava connection",
            response=responses.StravaStatus,
            response_example=examples.STRAVA_STATUS,
            **_READ,
        ),
        Endpoint(
            "POST",
            "/strava/sync",
            handlers.sync_strava,
            "Sync with Strava",
            description="Schedules a sync, unless one is under way: reads the list of activities"
            " and adds the ones that are missing.",
            response=responses.StravaStatus,
            response_example=replace(examples.STRAVA_STATUS, is_syncing=True),
            status=202,
            **_change(not_linked, _RELINK_REQUIRED, _TOO_MANY_SYNCS),
        ),
        Endpoint(
            "DELETE",
            "/strava/connection",
            handlers.unlink_strava,
            "Unlink Strava",
            description="Revokes the authorization at Strava. If Strava does not respond, the link"
            " is deleted all the same, and the app stays authorized until the athlete revokes its"
            " access in Strava's settings.",
            status=204,
            **_change(not_linked),
        ),
    )


def _webhook(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/webhooks/strava/{secret}",
            handlers.verify_webhook,
            "Verify the webhook for Strava",
            query=requests.HandshakeQuery,
            response=responses.Handshake,
            response_example=responses.Handshake("15f7d1a91c1f40f8a748fd134752feb3"),
            errors=(
                Forbidden("Invalid callback secret or verify token", code="invalid_verify_token"),
            ),
        ),
        Endpoint(
            "POST",
            "/webhooks/strava/{secret}",
            handlers.receive_event,
            "Receive a Strava event",
            description="Responds when the event is durable. It is verified with Strava and applied"
            " within seconds. Events with an unknown secret, subscription or athlete get the same"
            " response and are dropped.",
            request=requests.StravaEventBody,
            request_example=examples.EVENT,
            response=responses.EventReceived,
            response_example=responses.EventReceived(),
            errors=(_UNAVAILABLE,),
        ),
    )


def _collection(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/models",
            handlers.list_models,
            "List the models",
            response=collection.ModelList,
            response_example=collection.ModelList([examples.MODEL]),
            errors=(_UNAVAILABLE,),
        ),
        Endpoint(
            "GET",
            "/models/{model_id}",
            handlers.get_model,
            "Get a model with its parts",
            response=collection.ModelWithParts,
            response_example=examples.MODEL_WITH_PARTS,
            errors=(_NO_MODEL, _UNAVAILABLE),
        ),
    )


def _administration(handlers: Handlers) -> tuple[Endpoint, ...]:
    operator: dict[str, Any] = {
        "errors": (Unauthenticated("Invalid operator token", code="invalid_token"), _UNAVAILABLE),
        "security": (OPERATOR_SCHEME,),
    }
    return (
        Endpoint(
            "GET",
            "/admin/parked-events",
            handlers.list_parked_events,
            "List the Strava events that wait for a relink or an operator",
            query=requests.ParkedEventsQuery,
            response=responses.ParkedEventPage,
            response_example=responses.ParkedEventPage([examples.PARKED_EVENT], None),
            **operator,
        ),
        Endpoint(
            "POST",
            "/admin/parked-events/retry",
            handlers.retry_parked_events,
            "Return parked events of one athlete, or of all, to the inbox",
            request=requests.RetryEventsBody,
            request_example={"athleteId": 13_579_246},
            response=responses.RetriedEvents,
            response_example=responses.RetriedEvents(3),
            **operator,
        ),
        Endpoint(
            "GET",
            "/admin/audit",
            handlers.search_audit,
            "Search the audit trail by user, by correlation, or by event and month",
            query=requests.AuditQuery,
            response=responses.AuditPage,
            response_example=responses.AuditPage([examples.AUDIT_EVENT], None),
            errors=(Unauthenticated("Invalid operator token", code="invalid_token"), _UNAVAILABLE),
            security=(OPERATOR_SCHEME,),
        ),
    )
