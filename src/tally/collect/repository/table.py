"""The table `CommitCollect`: one partition per user, plus models, athletes and the inbox.

Sort keys pad part indexes to two digits and activity ids to twelve, so that they sort like numbers.
Pending webhook events are in separate partitions (`INBOX#{shard}`), sorted by time, so that
finding them needs no Scan.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from tally.store.api import Write
from tally.store.errors import StoreUnavailable, TransactionCancelled
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item

COMMIT_COLLECT = Table(
    "CommitCollect",
    partition=S("PK"),
    sort=S("SK"),
    indexes=(GlobalIndex("GSI1", partition=S("GSI1PK")),),
    attributes=(
        Attribute(
            "PK",
            "S",
            required=True,
            about="USER#{userId}, MODEL#{modelId}, STRAVA#ATHLETE#{athleteId}, INBOX#{shard}",
        ),
        Attribute(
            "SK",
            "S",
            required=True,
            about="PROFILE, STRAVA#CONNECTION, WORKOUT#…, MILESTONE#…, META, PART#…, OWNER,"
            " EVENT#…",
        ),
        Attribute(
            "GSI1PK", "S", about="STRAVA#ATHLETE#{athleteId}, on STRAVA#CONNECTION and OWNER"
        ),
        Attribute(
            "userId", "S", about="owner of the item; on OWNER, the user who linked the athlete"
        ),
        Attribute("createdAtUtc", "S", about="RFC 3339"),
        Attribute("email", "S", about="PROFILE"),
        Attribute("plan", "S", about="PROFILE"),
        Attribute("athleteId", "N", about="connection and OWNER: id at Strava"),
        Attribute("sealedTokens", "S", about="connection: both tokens, AES-GCM"),
        Attribute("tokensExpireAt", "N", about="connection: epoch seconds"),
        Attribute("scope", "S", about="connection: granted scope"),
        Attribute(
            "version",
            "N",
            about="milestone and connection: incremented by every change",
        ),
        Attribute("activityId", "N", about="workout"),
        Attribute("name", "S", about="workout, model, part and award"),
        Attribute("sportType", "S", about="workout: sport type at Strava"),
        Attribute("startDateUtc", "S", about="workout: RFC 3339"),
        Attribute("distanceMeters", "N", about="workout"),
        Attribute("totalElevationGain", "N", about="workout: metres"),
        Attribute("movingSeconds", "N", about="workout"),
        Attribute("elapsedSeconds", "N", about="workout"),
        Attribute(
            "eventTime",
            "N",
            about="workout: time of the latest applied event; event: its own time",
        ),
        Attribute("isDeleted", "BOOL", about="workout: tombstone flag"),
        Attribute("deletedAtUtc", "S", about="workout: RFC 3339"),
        Attribute("milestoneId", "S", about="milestone and award"),
        Attribute("modelId", "S", about="model, milestone and award"),
        Attribute("sport", "S", about="milestone: RIDE, RUN, SWIM, WALK"),
        Attribute("metric", "S", about="milestone: DISTANCE_METERS, ELEVATION_METERS"),
        Attribute("totalTarget", "N", about="milestone: metres"),
        Attribute("partsTotal", "N", about="model and milestone"),
        Attribute(
            "partsMinted", "N", about="milestone: counter; the award ledger is the source of truth"
        ),
        Attribute("progress", "N", about="milestone: metres, never decreases"),
        Attribute("percent", "N", about="milestone: 0 to 100"),
        Attribute("status", "S", about="milestone: ACTIVE, COMPLETED"),
        Attribute("periodStartAtUtc", "S", about="milestone: RFC 3339, inclusive"),
        Attribute("periodEndAtUtc", "S", about="milestone: RFC 3339, exclusive"),
        Attribute("partIndex", "N", about="part and award: from 1"),
        Attribute("threshold", "N", about="award: progress that earned it"),
        Attribute("mesh", "L", about="part and award: primitives"),
        Attribute("attach", "M", about="part and award: parent part and attachment point"),
        Attribute("awardedAtUtc", "S", about="award: RFC 3339"),
        Attribute("correlationId", "S", about="event, and the awards it caused"),
        Attribute("attempts", "N", about="event: number of failures"),
        Attribute("notBefore", "N", about="event: earliest retry, epoch seconds"),
    ),
)

INBOX_SHARDS: Final = 8
PROFILE: Final = "PROFILE"
CONNECTION: Final = "STRAVA#CONNECTION"
OWNER: Final = "OWNER"
META: Final = "META"
WORKOUT_PREFIX: Final = "WORKOUT#STRAVA#"
MILESTONE_PREFIX: Final = "MILESTONE#"
PART_PREFIX: Final = "PART#"
EVENT_PREFIX: Final = "EVENT#"


def user_pk(user_id: str) -> str:
    return f"USER#{user_id}"


def athlete_pk(athlete_id: int) -> str:
    return f"STRAVA#ATHLETE#{athlete_id}"


def model_pk(model_id: str) -> str:
    return f"MODEL#{model_id}"


def part_sk(index: int) -> str:
    return f"{PART_PREFIX}{index:02}"


def workout_sk(activity_id: int) -> str:
    return f"{WORKOUT_PREFIX}{activity_id:012}"


def milestone_sk(milestone_id: str) -> str:
    return f"{MILESTONE_PREFIX}{milestone_id}"


def award_sk(milestone_id: str, index: int) -> str:
    return f"{MILESTONE_PREFIX}{milestone_id}#AWARD#{index:02}"


def inbox_pk(shard: int) -> str:
    return f"INBOX#{shard}"


def inbox_shard(owner_id: int) -> int:
    """Return the shard of an athlete. One shard per athlete keeps the events in order."""
    return hashlib.sha256(str(owner_id).encode()).digest()[0] % INBOX_SHARDS


def event_sk(event_time: int, key: str) -> str:
    return f"{EVENT_PREFIX}{event_time:012}#{key}"


def item_key(partition: str, sort: str) -> Item:
    return {"PK": partition, "SK": sort}


async def transact_if_met(store: Store, writes: Sequence[Write]) -> bool:
    """Apply the writes; return False if a condition failed.

    A transaction conflict raises a retryable error.
    """
    try:
        await store.transact(writes)
    except TransactionCancelled as cancelled:
        if not any(reason.condition_failed for reason in cancelled.reasons):
            raise StoreUnavailable(str(cancelled)) from cancelled
        return False
    return True
