"""Items `MILESTONE#{id}` and `MILESTONE#{id}#AWARD#{part}`: milestones and their award ledgers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tally.collect.model.records import (
    Award,
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
    PROFILE,
    award_sk,
    item_key,
    milestone_sk,
    transact_if_met,
    user_pk,
)
from tally.store.access import BatchGetItem, Query, TransactWriteItems, access
from tally.store.api import Check, Put
from tally.store.errors import TransactionCancelled
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item

# More than 50 milestones with ledgers of 99 awards.
MAX_MILESTONE_ITEMS = 6_000
MAX_POLLED_MILESTONES = 10_000


class Milestones:
    """Access patterns of milestones with their ledgers."""

    __slots__ = ()
    store: Store

    @access(
        "Create milestone",
        TransactWriteItems,
        table=COMMIT_COLLECT,
        key="MILESTONE#{milestoneId} with attribute_not_exists(PK); PROFILE exists",
        by="user",
        trigger="POST /milestones",
        frequency="Rare",
    )
    async def create_milestone(self, milestone: Milestone) -> bool:
        """Create a milestone. Return False if the user has no profile (any more)."""
        writes = (
            Put(COMMIT_COLLECT, _milestone_item(milestone), condition=not_exists("PK")),
            Check(COMMIT_COLLECT, item_key(user_pk(milestone.user_id), PROFILE), exists("PK")),
        )
        return await transact_if_met(self.store, writes)

    @access(
        "List milestones with awards",
        Query,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId} AND begins_with(SK, MILESTONE#)",
        by="both",
        trigger="GET /milestones, GET /me, every event",
        frequency="Per event",
        bound=MAX_MILESTONE_ITEMS,
    )
    async def milestones(self, user_id: str) -> list[MilestoneWithAwards]:
        """Return all milestones of a user, oldest first."""
        where = (F("PK") == user_pk(user_id)) & F("SK").begins_with(MILESTONE_PREFIX)
        return _with_awards(
            [item async for item in self.store.items(COMMIT_COLLECT, where, consistent=True)]
        )

    @access(
        "Get milestone with awards",
        Query,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId} AND begins_with(SK, MILESTONE#{milestoneId})",
        by="user",
        trigger="GET /milestones/{id}, POST /milestones/{id}/recompute",
        frequency="Per request",
        bound=100,
    )
    async def milestone(self, user_id: str, milestone_id: str) -> MilestoneWithAwards | None:
        where = (F("PK") == user_pk(user_id)) & F("SK").begins_with(milestone_sk(milestone_id))
        found = _with_awards(
            [item async for item in self.store.items(COMMIT_COLLECT, where, consistent=True)]
        )
        return found[0] if found else None

    @access(
        "Look for moved milestones",
        BatchGetItem,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=MILESTONE#{milestoneId} of all milestones subscribed to in this"
        " process; projects version",
        by="system",
        trigger="GET /milestones/{id}/events",
        frequency="Every second while there are subscribers",
        bound=MAX_POLLED_MILESTONES,
    )
    async def versions(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Return milestone versions by user and id, for the first 10,000 keys."""
        item_keys = [
            item_key(user_pk(user_id), milestone_sk(milestone_id))
            for user_id, milestone_id in keys[:MAX_POLLED_MILESTONES]
        ]
        items = await self.store.get_many(
            COMMIT_COLLECT, item_keys, project=("userId", "milestoneId", "version")
        )
        return {(item["userId"], item["milestoneId"]): item["version"] for item in items}

    @access(
        "Mint parts",
        TransactWriteItems,
        table=COMMIT_COLLECT,
        key="MILESTONE#{id} with version = :read;"
        " each MILESTONE#{id}#AWARD#{part} with attribute_not_exists(PK)",
        by="system",
        trigger="Every event that moves a milestone, POST /milestones/{id}/recompute",
        frequency="Per event",
    )
    async def mint(self, milestone: Milestone, awards: Sequence[Award]) -> bool:
        """Write a milestone and its new awards atomically. Return False if it has changed."""
        writes = [
            Put(
                COMMIT_COLLECT,
                _milestone_item(milestone),
                condition=_has_version(milestone.version - 1),
            ),
            *(
                Put(COMMIT_COLLECT, _award_item(award), condition=not_exists("PK"))
                for award in awards
            ),
        ]
        try:
            await self.store.transact(writes)
        except TransactionCancelled:
            return False  # another run was faster; the caller reads again
        return True


def _has_version(version: int) -> Condition:
    return F("version") == version


def _with_awards(items: Iterable[Mapping[str, Any]]) -> list[MilestoneWithAwards]:
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


def _milestone_item(milestone: Milestone) -> Item:
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
        version=item["version"],
    )


def _award_item(award: Award) -> Item:
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
