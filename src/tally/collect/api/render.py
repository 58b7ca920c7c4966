"""The domain as bodies that go out: every struct of `wire.py` that is sent is made here."""

from typing import Any

from tally.collect.api.schemas import (
    AuditBody,
    AwardBody,
    Counts,
    Me,
    MilestoneBody,
    ModelBody,
    NextPart,
    PartBody,
    ProgressBody,
    StravaStatus,
    WholeModel,
    WorkoutBody,
)
from tally.collect.model import (
    AuditEvent,
    Award,
    Connection,
    Held,
    Milestone,
    Model,
    ModelMeta,
    Part,
    Workout,
)
from tally.collect.rules import threshold
from tally.collect.service.accounts import Summary
from tally.kit.jsonable import to_jsonable


def strava_status(connection: Connection | None) -> StravaStatus:
    if connection is None:
        return StravaStatus(connected=False)
    return StravaStatus(True, connection.athlete_id, connection.scope, connection.connected_at)


def me(summary: Summary) -> Me:
    profile = summary.profile
    counts = Counts(summary.workouts, summary.milestones, summary.awards)
    return Me(
        profile.user_id,
        profile.email,
        profile.plan,
        profile.created_at,
        strava_status(summary.connection),
        counts,
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


def whole_model(model: Model) -> WholeModel:
    meta = model.meta
    parts = [
        PartBody(part.index, part.name, part.description, *_drawing(part)) for part in model.parts
    ]
    return WholeModel(meta.model_id, meta.name, meta.description, meta.parts_total, parts)


def award_body(award: Award) -> AwardBody:
    part = award.part
    return AwardBody(
        part.index,
        part.name,
        part.description,
        award.threshold,
        award.awarded_at,
        award.correlation_id,
        *_drawing(part),
    )


def milestone_body(held: Held) -> MilestoneBody:
    milestone = held.milestone
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
        awards=[award_body(award) for award in held.awards],
        next_part=_next_part(held),
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


def _next_part(held: Held) -> NextPart | None:
    milestone = held.milestone
    if milestone.parts_minted >= milestone.parts_total:
        return None
    following = milestone.parts_minted + 1
    needed = threshold(milestone.total_target, following, milestone.parts_total)
    return NextPart(following, needed, max(0.0, float(needed - milestone.progress)))


def _drawing(part: Part) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return [to_jsonable(primitive) for primitive in part.mesh], to_jsonable(part.attach)
