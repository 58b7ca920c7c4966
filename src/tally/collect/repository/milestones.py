"""Items `MILESTONE#{id}` and `MILESTONE#{id}#AWARD#{part}`: goals, and the ledger of parts that were minted."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tally.collect.model import Award, Held, Metric, Milestone, Part, Sport, Status
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    MILESTONES,
    PROFILE,
    at,
    award,
    milestone,
    refuse_conflict,
    user,
)
from tally.store.access import BatchGetItem, Query, TransactWriteItems, access
from tally.store.api import Check, Put
from tally.store.errors import TransactionCancelled
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item

# Fifty milestones with a ledger of twelve each, and room to spare.
MAX_ITEMS = 6_000
MAX_WATCHED = 10_000


class Milestones:
    """Goals of one person, each with its ledger."""

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
    async def create_milestone(self, created: Milestone) -> bool:
        """Whether it was made; False where the person has no profile (any more)."""
        writes = (
            Put(COMMIT_COLLECT, _milestone_item(created), condition=not_exists("PK")),
            Check(COMMIT_COLLECT, at(user(created.user_id), PROFILE), exists("PK")),
        )
        try:
            await self.store.transact(writes)
        except TransactionCancelled as cancelled:
            refuse_conflict(cancelled)
            return False
        return True

    @access(
        "List milestones with awards",
        Query,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId} AND begins_with(SK, MILESTONE#)",
        by="both",
        trigger="GET /milestones, GET /me, every event",
        frequency="Per event",
        bound=MAX_ITEMS,
    )
    async def milestones(self, user_id: str) -> list[Held]:
        """All milestones, the oldest first, each with its ledger."""
        where = (F("PK") == user(user_id)) & F("SK").begins_with(MILESTONES)
        return _held(
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
    async def milestone(self, user_id: str, milestone_id: str) -> Held | None:
        where = (F("PK") == user(user_id)) & F("SK").begins_with(milestone(milestone_id))
        found = _held(
            [item async for item in self.store.items(COMMIT_COLLECT, where, consistent=True)]
        )
        return found[0] if found else None

    @access(
        "Look for moved milestones",
        BatchGetItem,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=MILESTONE#{milestoneId} for all that are watched in this process, the version alone",
        by="system",
        trigger="GET /milestones/{id}/events",
        frequency="Every second while somebody watches",
        bound=MAX_WATCHED,
    )
    async def versions(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """The versions of milestones by owner and id; beyond ten thousand, those that have been watched for longest."""
        wanted = [
            at(user(user_id), milestone(milestone_id))
            for user_id, milestone_id in keys[:MAX_WATCHED]
        ]
        items = await self.store.get_many(
            COMMIT_COLLECT, wanted, project=("userId", "milestoneId", "version")
        )
        return {(item["userId"], item["milestoneId"]): item["version"] for item in items}

    @access(
        "Mint parts",
        TransactWriteItems,
        table=COMMIT_COLLECT,
        key="MILESTONE#{id} with version = :read; each MILESTONE#{id}#AWARD#{part} with attribute_not_exists(PK)",
        by="system",
        trigger="Every event that moves a milestone, POST /milestones/{id}/recompute",
        frequency="Per event",
    )
    async def mint(self, moved: Milestone, awards: Sequence[Award]) -> bool:
        """Whether the milestone was still as it was read and the parts were not there: all written, or nothing."""
        writes = [
            Put(COMMIT_COLLECT, _milestone_item(moved), condition=_version(moved.version - 1)),
            *(
                Put(COMMIT_COLLECT, _award_item(each), condition=not_exists("PK"))
                for each in awards
            ),
        ]
        try:
            await self.store.transact(writes)
        except TransactionCancelled:
            return False  # another run was faster, or is at it: either way the caller reads again
        return True


def _version(version: int) -> Condition:
    return F("version") == version


def _held(items: Iterable[Mapping[str, Any]]) -> list[Held]:
    """In the order of their keys, a milestone is followed by its awards."""
    milestones: dict[str, Milestone] = {}
    ledgers: dict[str, list[Award]] = {}
    for item in items:
        if "partIndex" in item:
            ledgers.setdefault(item["milestoneId"], []).append(_award(item))
        else:
            milestones[item["milestoneId"]] = _milestone(item)
    return [Held(found, tuple(ledgers.get(name, ()))) for name, found in milestones.items()]


def _milestone_item(found: Milestone) -> Item:
    item: Item = at(user(found.user_id), milestone(found.milestone_id)) | {
        "userId": found.user_id,
        "milestoneId": found.milestone_id,
        "modelId": found.model_id,
        "sport": found.sport.value,
        "metric": found.metric.value,
        "totalTarget": found.total_target,
        "partsTotal": found.parts_total,
        "periodStartAtUtc": found.period_start,
        "createdAtUtc": found.created_at,
        "updatedAtUtc": found.updated_at,
        "progress": found.progress,
        "percent": found.percent,
        "partsMinted": found.parts_minted,
        "status": found.status.value,
        "version": found.version,
    }
    if found.period_end is not None:
        item["periodEndAtUtc"] = found.period_end
    if found.completed_at is not None:
        item["completedAtUtc"] = found.completed_at
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
        status=Status(item["status"]),
        completed_at=item.get("completedAtUtc"),
        version=item["version"],
    )


def _award_item(given: Award) -> Item:
    item: Item = at(user(given.user_id), award(given.milestone_id, given.part.index)) | {
        "userId": given.user_id,
        "milestoneId": given.milestone_id,
        "modelId": given.model_id,
        "partIndex": given.part.index,
        "name": given.part.name,
        "description": given.part.description,
        "mesh": [dict(primitive) for primitive in given.part.mesh],
        "attach": dict(given.part.attach),
        "threshold": given.threshold,
        "awardedAtUtc": given.awarded_at,
    }
    if given.correlation_id is not None:
        item["correlationId"] = given.correlation_id
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
