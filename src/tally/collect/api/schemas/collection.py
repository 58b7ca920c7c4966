"""Response bodies for models, milestones and awards, and their construction from the model."""

from typing import Any

from tally.collect.api.schemas.responses import CollectBody
from tally.collect.model.records import (
    Award,
    Milestone,
    MilestoneWithAwards,
    Model,
    ModelMeta,
    Part,
)
from tally.collect.model.rules import part_threshold
from tally.kit.jsonable import to_jsonable


class ModelBody(CollectBody, frozen=True):
    """`counts_manual` says whether workouts that were typed in count."""

    model_id: str
    name: str
    description: str
    parts_total: int
    counts_manual: bool = True


class ModelList(CollectBody, frozen=True):
    items: list[ModelBody]
    next_cursor: str | None = None


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
    counts_manual: bool = True


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
    """A milestone with its awards.

    `stalled_reason` is the error code that keeps it from advancing, such as `too_many_workouts`.
    """

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
    counts_manual: bool = True
    stalled_reason: str | None = None
    archived_at_utc: str | None = None


class ProgressBody(CollectBody, frozen=True):
    """The SSE event `progress`."""

    milestone_id: str
    progress: float
    percent: int
    parts_minted: int
    status: str
    version: int
    stalled_reason: str | None = None
    archived_at_utc: str | None = None


class MilestoneList(CollectBody, frozen=True):
    items: list[MilestoneBody]
    next_cursor: str | None = None


def model_body(meta: ModelMeta) -> ModelBody:
    return ModelBody(
        meta.model_id, meta.name, meta.description, meta.parts_total, meta.counts_manual
    )


def model_with_parts(model: Model) -> ModelWithParts:
    meta = model.meta
    parts = [
        PartBody(part.index, part.name, part.description, *_geometry(part)) for part in model.parts
    ]
    return ModelWithParts(
        meta.model_id, meta.name, meta.description, meta.parts_total, parts, meta.counts_manual
    )


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
        counts_manual=milestone.counts_manual,
        stalled_reason=milestone.stalled_reason,
        archived_at_utc=milestone.archived_at,
    )


def progress_body(milestone: Milestone) -> ProgressBody:
    return ProgressBody(
        milestone.milestone_id,
        float(milestone.progress),
        milestone.percent,
        milestone.parts_minted,
        milestone.status.value,
        milestone.version,
        milestone.stalled_reason,
        milestone.archived_at,
    )


def _next_part(milestone: Milestone) -> NextPart | None:
    if milestone.parts_minted >= milestone.parts_total or milestone.archived_at is not None:
        return None
    index = milestone.parts_minted + 1
    threshold = part_threshold(milestone.total_target, index, milestone.parts_total)
    return NextPart(index, threshold, max(0.0, float(threshold - milestone.progress)))


def _geometry(part: Part) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return [to_jsonable(primitive) for primitive in part.mesh], to_jsonable(part.attach)
