"""Conversion of milestones and awards to and from their items."""

from collections.abc import Iterable, Mapping
from typing import Any

from tally.collect.model.records import (
    Award,
    DeletedMilestone,
    Metric,
    Milestone,
    MilestoneStatus,
    MilestoneWithAwards,
    Part,
    Sport,
)
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    MILESTONE_PREFIX,
    award_sk,
    item_key,
    milestone_sk,
    user_pk,
)
from tally.store.change_logs import change_log
from tally.store.changes import Change
from tally.store.values import Item


def with_awards(items: Iterable[Mapping[str, Any]]) -> list[MilestoneWithAwards]:
    """Group awards with their milestones."""
    milestones: dict[str, Milestone] = {}
    ledgers: dict[str, list[Award]] = {}
    for item in items:
        if "partIndex" in item:
            ledgers.setdefault(item["milestoneId"], []).append(_award(item))
        else:
            milestones[item["milestoneId"]] = _milestone(item)
    return [
        MilestoneWithAwards(milestone, tuple(ledgers.get(milestone_id, ())))
        for milestone_id, milestone in milestones.items()
    ]


MilestoneLog = change_log(COMMIT_COLLECT, "milestones and awards", "GET /milestones/{id}/events")


def milestone_change(change: Change) -> Milestone | Award | DeletedMilestone | None:
    """Return what a change of the table means for the subscribers of a milestone."""
    sort_key = str(change.key["SK"])
    if not sort_key.startswith(MILESTONE_PREFIX):
        return None
    if change.new is not None:
        return _award(change.new) if "partIndex" in change.new else _milestone(change.new)
    user_id = str(change.key["PK"]).removeprefix(user_pk(""))
    milestone_id, separator, _ = sort_key.removeprefix(MILESTONE_PREFIX).partition("#")
    return None if separator else DeletedMilestone(user_id, milestone_id)


def milestone_item(milestone: Milestone) -> Item:
    item: Item = item_key(user_pk(milestone.user_id), milestone_sk(milestone.milestone_id)) | {
        "userId": milestone.user_id,
        "milestoneId": milestone.milestone_id,
        "modelId": milestone.model_id,
        "sport": milestone.sport.value,
        "metric": milestone.metric.value,
        "totalTarget": milestone.total_target,
        "partsTotal": milestone.parts_total,
        "periodStartAtUtc": milestone.period_start,
        "createdAtUtc": milestone.created_at,
        "updatedAtUtc": milestone.updated_at,
        "progress": milestone.progress,
        "percent": milestone.percent,
        "partsMinted": milestone.parts_minted,
        "status": milestone.status.value,
        "version": milestone.version,
    }
    if milestone.period_end is not None:
        item["periodEndAtUtc"] = milestone.period_end
    if milestone.completed_at is not None:
        item["completedAtUtc"] = milestone.completed_at
    if not milestone.counts_manual:
        item["countsManual"] = False
    if milestone.stalled_reason is not None:
        item["stalledReason"] = milestone.stalled_reason
    if milestone.archived_at is not None:
        item["archivedAtUtc"] = milestone.archived_at
    return item


def _milestone(item: Mapping[str, Any]) -> Milestone:
    return Milestone(
        milestone_id=item["milestoneId"],
        user_id=item["userId"],
        model_id=item["modelId"],
        sport=Sport(item["sport"]),
        metric=Metric(item["metric"]),
        total_target=item["totalTarget"],
        parts_total=item["partsTotal"],
        period_start=item["periodStartAtUtc"],
        period_end=item.get("periodEndAtUtc"),
        created_at=item["createdAtUtc"],
        updated_at=item["updatedAtUtc"],
        progress=item["progress"],
        percent=item["percent"],
        parts_minted=item["partsMinted"],
        status=MilestoneStatus(item["status"]),
        completed_at=item.get("completedAtUtc"),
        counts_manual=item.get("countsManual", True),
        stalled_reason=item.get("stalledReason"),
        archived_at=item.get("archivedAtUtc"),
        version=item["version"],
    )


def award_item(award: Award) -> Item:
    item: Item = item_key(
        user_pk(award.user_id), award_sk(award.milestone_id, award.part.index)
    ) | {
        "userId": award.user_id,
        "milestoneId": award.milestone_id,
        "modelId": award.model_id,
        "partIndex": award.part.index,
        "name": award.part.name,
        "description": award.part.description,
        "mesh": [dict(primitive) for primitive in award.part.mesh],
        "attach": dict(award.part.attach),
        "threshold": award.threshold,
        "awardedAtUtc": award.awarded_at,
    }
    if award.correlation_id is not None:
        item["correlationId"] = award.correlation_id
    return item


def _award(item: Mapping[str, Any]) -> Award:
    return Award(
        user_id=item["userId"],
        milestone_id=item["milestoneId"],
        model_id=item["modelId"],
        part=Part(
            item["partIndex"],
            item["name"],
            item["description"],
            tuple(item["mesh"]),
            item["attach"],
        ),
        threshold=item["threshold"],
        awarded_at=item["awardedAtUtc"],
        correlation_id=item.get("correlationId"),
    )
