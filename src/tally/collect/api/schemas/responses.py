"""Response bodies, and their construction from the model.

Field names are in camel case, as in the tables. Numbers are JSON numbers. A body has one field per
value of its JSON object.
"""

from typing import Any, Literal

import msgspec

from tally.collect.model.records import (
    AuditEvent,
    Award,
    Milestone,
    MilestoneWithAwards,
    Model,
    ModelMeta,
    Part,
    StravaConnection,
    Workout,
)
from tally.collect.model.rules import part_threshold
from tally.collect.service.accounts import AccountSummary
from tally.kit.jsonable import to_jsonable


class CollectBody(msgspec.Struct, frozen=True, rename="camel"):
    """The base of response bodies with camel-case field names."""


class CollectHealth(CollectBody, frozen=True):
    status: Literal["ok", "ready"]


class Handshake(msgspec.Struct, frozen=True):
    challenge: str = msgspec.field(name="hub.challenge")


class EventReceived(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class StravaStatus(CollectBody, frozen=True):
    connected: bool
    athlete_id: int | None = None
    scope: str | None = None
    connected_at_utc: str | None = None


class ItemCounts(CollectBody, frozen=True):
    workouts: int
    milestones: int
    awards: int


class MeBody(CollectBody, frozen=True):
    user_id: str
    email: str | None
    plan: str
    created_at_utc: str
    strava: StravaStatus
    counts: ItemCounts


class WorkoutBody(CollectBody, frozen=True):
    activity_id: int
    name: str
    sport_type: str
    start_date_utc: str
    distance_meters: float
    total_elevation_gain: float
    moving_seconds: int
    elapsed_seconds: int


class WorkoutPage(CollectBody, frozen=True):
    workouts: list[WorkoutBody]
    next_cursor: str | None


class ModelBody(CollectBody, frozen=True):
    model_id: str
    name: str
    description: str
    parts_total: int


class ModelList(CollectBody, frozen=True):
    models: list[ModelBody]


class PartBody(CollectBody, frozen=True):
    """`mesh` is a list of primitives; `attach` is the parent part and the attachment point."""

    part_index: int
    name: str
    description: str
    mesh: list[dict[str, Any]]
    attach: dict[str, Any]


class ModelWithParts(CollectBody, frozen=True):
    model_id: str
    name: str
    description: str
    parts_total: int
    parts: list[PartBody]


class AwardBody(CollectBody, frozen=True):
    part_index: int
    name: str
    description: str
    threshold: int
    awarded_at_utc: str
    correlation_id: str | None
    mesh: list[dict[str, Any]]
    attach: dict[str, Any]


class NextPart(CollectBody, frozen=True):
    part_index: int
    threshold: int
    remaining: float


class MilestoneBody(CollectBody, frozen=True):
    """A milestone with its awards."""

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


class ProgressBody(CollectBody, frozen=True):
    """The SSE event `progress`."""

    milestone_id: str
    progress: float
    percent: int
    parts_minted: int
    status: str
    version: int


class MilestoneList(CollectBody, frozen=True):
    milestones: list[MilestoneBody]


class AuditBody(CollectBody, frozen=True):
    event_type: str
    user_id: str
    epoch: int
    request_id: str
    correlation_id: str
    facts: dict[str, Any]
    ip_hash: str | None


class AuditPage(CollectBody, frozen=True):
    events: list[AuditBody]
    next_cursor: str | None


def strava_status(connection: StravaConnection | None) -> StravaStatus:
    if connection is None:
        return StravaStatus(connected=False)
    return StravaStatus(True, connection.athlete_id, connection.scope, connection.connected_at)


def me_body(summary: AccountSummary) -> MeBody:
    profile = summary.profile
    return MeBody(
        profile.user_id,
        profile.email,
        profile.plan,
        profile.created_at,
        strava_status(summary.connection),
        ItemCounts(summary.workouts, summary.milestones, summary.awards),
    )


def workout_body(workout: Workout) -> WorkoutBody:
    return WorkoutBody(
        workout.activity_id,
        workout.name,
        workout.sport_type,
        workout.started_at,
        float(workout.distance),
        float(workout.elevation),
        workout.moving_seconds,
        workout.elapsed_seconds,
    )


def model_body(meta: ModelMeta) -> ModelBody:
    return ModelBody(meta.model_id, meta.name, meta.description, meta.parts_total)


def model_with_parts(model: Model) -> ModelWithParts:
    meta = model.meta
    parts = [
        PartBody(part.index, part.name, part.description, *_geometry(part)) for part in model.parts
    ]
    return ModelWithParts(meta.model_id, meta.name, meta.description, meta.parts_total, parts)


def award_body(award: Award) -> AwardBody:
    part = award.part
    return AwardBody(
        part.index,
        part.name,
        part.description,
        award.threshold,
        award.awarded_at,
        award.correlation_id,
        *_geometry(part),
    )


def milestone_body(current: MilestoneWithAwards) -> MilestoneBody:
    milestone = current.milestone
    return MilestoneBody(
        milestone_id=milestone.milestone_id,
        model_id=milestone.model_id,
        sport=milestone.sport.value,
        metric=milestone.metric.value,
        total_target=milestone.total_target,
        progress=float(milestone.progress),
        percent=milestone.percent,
        parts_total=milestone.parts_total,
        parts_minted=milestone.parts_minted,
        status=milestone.status.value,
        period_start_at_utc=milestone.period_start,
        period_end_at_utc=milestone.period_end,
        created_at_utc=milestone.created_at,
        updated_at_utc=milestone.updated_at,
        completed_at_utc=milestone.completed_at,
        version=milestone.version,
        awards=[award_body(award) for award in current.awards],
        next_part=_next_part(milestone),
    )


def progress_body(milestone: Milestone) -> ProgressBody:
    return ProgressBody(
        milestone.milestone_id,
        float(milestone.progress),
        milestone.percent,
        milestone.parts_minted,
        milestone.status.value,
        milestone.version,
    )


def audit_body(event: AuditEvent) -> AuditBody:
    return AuditBody(
        event.event_type,
        event.user_id,
        event.epoch,
        event.request_id,
        event.correlation_id,
        to_jsonable(event.facts),
        event.ip_hash,
    )


def _next_part(milestone: Milestone) -> NextPart | None:
    if milestone.parts_minted >= milestone.parts_total:
        return None
    index = milestone.parts_minted + 1
    threshold = part_threshold(milestone.total_target, index, milestone.parts_total)
    return NextPart(index, threshold, max(0.0, float(threshold - milestone.progress)))


def _geometry(part: Part) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return [to_jsonable(primitive) for primitive in part.mesh], to_jsonable(part.attach)
