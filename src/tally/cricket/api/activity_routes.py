"""The endpoints of Live Activities: their tokens, and what the app reports about them."""

from typing import Final

from tally.cricket.api.endpoint_options import user_endpoint
from tally.cricket.api.handlers import Handlers
from tally.cricket.api.schemas import examples, users
from tally.cricket.model import errors
from tally.kit.endpoints import Endpoint

_MATCH_NOT_FOUND: Final = errors.match_not_found()
_TEAM_NOT_IN_MATCH: Final = errors.team_not_in_match()
_TOO_MANY: Final = errors.too_many_activities()


def activity_endpoints(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (*_tokens(handlers), *_reports(handlers))


def _tokens(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/user/activity/{match_id}",
            handlers.create_subscription,
            "Subscribe a Live Activity that the app started",
            request=users.NewSubscription,
            request_example={"pushToken": "deadbeefdeadbeef"},
            response=users.SubscriptionBody,
            response_example=examples.SUBSCRIPTION,
            **user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND, errors.match_over(), _TOO_MANY),
        ),
        Endpoint(
            "DELETE",
            "/user/activity/{match_id}",
            handlers.delete_subscription,
            "Delete the subscription of a Live Activity",
            query=users.SubscriptionQuery,
            status=204,
            **user_endpoint(errors.subscription_not_found(), _MATCH_NOT_FOUND),
        ),
        Endpoint(
            "POST",
            "/matches/{match_id}/activity-token",
            handlers.register_activity,
            "Register or rotate an update token",
            request=users.NewUpdateToken,
            request_example={"deviceId": "A1B2-C3D4", "updateToken": "80c1f7de80c1f7de"},
            response=users.ActivityBody,
            response_example=examples.ACTIVITY,
            **user_endpoint(
                _TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND, errors.activity_ended(), _TOO_MANY
            ),
        ),
    )


def _reports(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/matches/{match_id}/activity-started",
            handlers.confirm_activity,
            "Confirm a Live Activity",
            description=(
                "Activates a Live Activity on the match's broadcast channel. Tally starts a Live "
                "Activity again that is not confirmed within five minutes."
            ),
            request=users.ActivityReport,
            request_example={"deviceId": "A1B2-C3D4"},
            response=users.ActivityBody,
            response_example=examples.ACTIVITY,
            **user_endpoint(_MATCH_NOT_FOUND, errors.activity_ended()),
        ),
        Endpoint(
            "POST",
            "/matches/{match_id}/activity-ended",
            handlers.report_ended_activity,
            "Report an ended Live Activity",
            description=(
                "iOS or the app ended the Live Activity, not the user: Tally starts it again. "
                "Idempotent."
            ),
            request=users.ActivityReport,
            request_example={"deviceId": "A1B2-C3D4"},
            status=204,
            **user_endpoint(_MATCH_NOT_FOUND),
        ),
        Endpoint(
            "POST",
            "/matches/{match_id}/activity-dismissed",
            handlers.dismiss_activity,
            "Report a dismissed Live Activity",
            description="Ends the Live Activity and unfollows the match.",
            request=users.ActivityReport,
            request_example={"deviceId": "A1B2-C3D4"},
            status=204,
            **user_endpoint(_MATCH_NOT_FOUND),
        ),
    )
