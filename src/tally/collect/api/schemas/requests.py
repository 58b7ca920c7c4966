"""Request bodies and query strings from browsers, Strava and operators.

Field names are in camel case, as in the tables. Bodies from Strava use Strava's names.
"""

from typing import Annotated

import msgspec

from tally.collect.model.records import Metric, Sport
from tally.collect.service.milestones import Goal
from tally.collect.service.webhook import WebhookDelivery
from tally.kit.body import StrictStruct

Limit = Annotated[int, msgspec.Meta(ge=1, le=200)]
ShortText = Annotated[str, msgspec.Meta(max_length=64)]
KeyText = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
StravaId = Annotated[int, msgspec.Meta(ge=0, le=10**17)]


class ReturnQuery(msgspec.Struct, frozen=True):
    return_to: str | None = None


class LoginCallbackQuery(msgspec.Struct, frozen=True):
    """The parameters of the redirect from the OIDC provider."""

    state: str = ""
    code: str = ""
    error: str = ""


class StravaCallbackQuery(msgspec.Struct, frozen=True):
    """The parameters of the redirect from Strava. `scope` is what the athlete granted."""

    state: str = ""
    code: str = ""
    scope: str = ""
    error: str = ""


class HandshakeQuery(msgspec.Struct, frozen=True):
    mode: str = msgspec.field(name="hub.mode", default="")
    verify_token: str = msgspec.field(name="hub.verify_token", default="")
    challenge: str = msgspec.field(name="hub.challenge", default="")


class StravaEventBody(msgspec.Struct, frozen=True):
    """A Strava webhook event. Unknown fields are ignored."""

    object_type: ShortText
    object_id: StravaId
    aspect_type: ShortText
    owner_id: StravaId
    event_time: Annotated[int, msgspec.Meta(ge=0, le=10**11)]
    subscription_id: StravaId = 0
    updates: dict[str, str | int | float | bool | None] = msgspec.field(default_factory=dict)


class ParkedEventsQuery(StrictStruct, frozen=True):
    """Parked events of one athlete, or of all."""

    athlete: StravaId | None = None
    limit: Limit = 50
    cursor: str | None = None


class RetryEventsBody(StrictStruct, frozen=True, rename="camel"):
    """The athlete whose events are retried; null for all athletes."""

    athlete_id: StravaId | None


class WorkoutsQuery(StrictStruct, frozen=True):
    limit: Limit = 50
    cursor: str | None = None


class ImportQuery(StrictStruct, frozen=True):
    """`sport` overrides the sport of the file."""

    sport: Sport | None = None


class DeletionsQuery(StrictStruct, frozen=True):
    limit: Limit = 50
    cursor: str | None = None


class NewMilestoneBody(StrictStruct, frozen=True, rename="camel"):
    """The period defaults to everything from now on."""

    model_id: KeyText
    sport: Sport
    metric: Metric
    total_target: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
    period_start_at_utc: str | None = None
    period_end_at_utc: str | None = None


class MilestoneChangeBody(StrictStruct, frozen=True, rename="camel"):
    """The target is editable until the first part is minted."""

    total_target: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]


class AuditQuery(StrictStruct, frozen=True):
    """Exactly one of user, correlation and event. An event is searched in a month like 202601."""

    user: KeyText | None = None
    correlation: KeyText | None = None
    event: KeyText | None = None
    month: Annotated[str, msgspec.Meta(pattern=r"^\d{6}$")] | None = None
    limit: Limit = 50
    cursor: str | None = None


def to_delivery(body: StravaEventBody) -> WebhookDelivery:
    return WebhookDelivery(
        body.object_type,
        body.object_id,
        body.aspect_type,
        body.owner_id,
        body.subscription_id,
        body.event_time,
        body.updates,
    )


def to_goal(body: NewMilestoneBody) -> Goal:
    return Goal(
        body.model_id,
        body.sport,
        body.metric,
        body.total_target,
        body.period_start_at_utc,
        body.period_end_at_utc,
    )
