"""What goes over the wire: the bodies that browsers, Strava and operators send and get.

`render.py` makes those that are sent.

Names are in camel case, as in the tables; Strava's own are as Strava writes them. Numbers are JSON
numbers.
"""

from typing import Annotated, Any, Literal

import msgspec

from tally.collect.model import (
    Metric,
    Sport,
)
from tally.collect.service.milestones import Goal
from tally.collect.service.webhook import Told
from tally.kit.body import StrictStruct

Limit = Annotated[int, msgspec.Meta(ge=1, le=200)]
Short = Annotated[str, msgspec.Meta(max_length=64)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Id = Annotated[int, msgspec.Meta(ge=0, le=10**17)]


class Camel(msgspec.Struct, frozen=True, rename="camel"):
    """A body that is sent."""


class Health(Camel, frozen=True):
    status: Literal["ok", "ready"]


class ReturnQuery(msgspec.Struct, frozen=True):
    return_to: str | None = None


class LoginAnswer(msgspec.Struct, frozen=True):
    """What the issuer sends back with the browser."""

    state: str = ""
    code: str = ""
    error: str = ""


class StravaAnswer(msgspec.Struct, frozen=True):
    """What Strava sends back with the browser; `scope` is what was really granted."""

    state: str = ""
    code: str = ""
    scope: str = ""
    error: str = ""


class HandshakeQuery(msgspec.Struct, frozen=True):
    mode: str = msgspec.field(name="hub.mode", default="")
    verify_token: str = msgspec.field(name="hub.verify_token", default="")
    challenge: str = msgspec.field(name="hub.challenge", default="")


class Handshake(msgspec.Struct, frozen=True):
    challenge: str = msgspec.field(name="hub.challenge")


class EventBody(msgspec.Struct, frozen=True):
    """An event of Strava's. It may grow fields: those that are not known are let be."""

    object_type: Short
    object_id: Id
    aspect_type: Short
    owner_id: Id
    event_time: Annotated[int, msgspec.Meta(ge=0, le=10**11)]
    subscription_id: Id = 0
    updates: dict[str, str | int | float | bool | None] = msgspec.field(default_factory=dict)


class Received(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class PageQuery(StrictStruct, frozen=True):
    limit: Limit = 50
    cursor: str | None = None


class StravaStatus(Camel, frozen=True):
    connected: bool
    athlete_id: int | None = None
    scope: str | None = None
    connected_at_utc: str | None = None


class Counts(Camel, frozen=True):
    workouts: int
    milestones: int
    awards: int


class Me(Camel, frozen=True):
    user_id: str
    email: str | None
    plan: str
    created_at_utc: str
    strava: StravaStatus
    counts: Counts


class WorkoutBody(Camel, frozen=True):
    activity_id: int
    name: str
    sport_type: str
    start_date_utc: str
    distance_meters: float
    total_elevation_gain: float
    moving_seconds: int
    elapsed_seconds: int


class WorkoutPage(Camel, frozen=True):
    workouts: list[WorkoutBody]
    next_cursor: str | None


class ModelBody(Camel, frozen=True):
    model_id: str
    name: str
    description: str
    parts_total: int


class ModelList(Camel, frozen=True):
    models: list[ModelBody]


class PartBody(Camel, frozen=True):
    """`mesh` is made of primitives; `attach` says on which part this one hangs, and where."""

    part_index: int
    name: str
    description: str
    mesh: list[dict[str, Any]]
    attach: dict[str, Any]


class WholeModel(Camel, frozen=True):
    model_id: str
    name: str
    description: str
    parts_total: int
    parts: list[PartBody]


class NewMilestone(StrictStruct, frozen=True, rename="camel"):
    """Without a period, everything from now on counts."""

    model_id: Key
    sport: Sport
    metric: Metric
    total_target: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
    period_start_at_utc: str | None = None
    period_end_at_utc: str | None = None


class AwardBody(Camel, frozen=True):
    part_index: int
    name: str
    description: str
    threshold: int
    awarded_at_utc: str
    correlation_id: str | None
    mesh: list[dict[str, Any]]
    attach: dict[str, Any]


class NextPart(Camel, frozen=True):
    part_index: int
    threshold: int
    remaining: float


class MilestoneBody(Camel, frozen=True):
    milestone_id: str
    model_id: str
    sport: str
    metric: str
    total_target: int
    progress: float
    percent: int
    parts_total: int
    parts_minted: int
    status: str
    period_start_at_utc: str
    period_end_at_utc: str | None
    created_at_utc: str
    updated_at_utc: str
    completed_at_utc: str | None
    version: int
    awards: list[AwardBody]
    next_part: NextPart | None


class ProgressBody(Camel, frozen=True):
    """How far a milestone has come, as those who watch it are told."""

    milestone_id: str
    progress: float
    percent: int
    parts_minted: int
    status: str
    version: int


class MilestoneList(Camel, frozen=True):
    milestones: list[MilestoneBody]


class AuditQuery(StrictStruct, frozen=True):
    """Exactly one of user, correlation and event; an event is looked for in a month, such as 202601."""

    user: Key | None = None
    correlation: Key | None = None
    event: Key | None = None
    month: Annotated[str, msgspec.Meta(pattern=r"^\d{6}$")] | None = None
    limit: Limit = 50
    cursor: str | None = None


class AuditBody(Camel, frozen=True):
    event_type: str
    user_id: str
    epoch: int
    request_id: str
    correlation_id: str
    facts: dict[str, Any]
    ip_hash: str | None


class AuditPage(Camel, frozen=True):
    events: list[AuditBody]
    next_cursor: str | None


def told(body: EventBody) -> Told:
    return Told(
        body.object_type,
        body.object_id,
        body.aspect_type,
        body.owner_id,
        body.subscription_id,
        body.event_time,
        body.updates,
    )


def goal(body: NewMilestone) -> Goal:
    return Goal(
        body.model_id,
        body.sport,
        body.metric,
        body.total_target,
        body.period_start_at_utc,
        body.period_end_at_utc,
    )
