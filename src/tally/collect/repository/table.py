"""The table `CommitCollect`: one partition per user, plus models, athletes and the inbox.

Sort keys pad part indexes to two digits and activity ids to twelve, so that they sort like numbers.
Pending webhook events are in separate partitions (`INBOX#{shard}`), sorted by time, so that
finding them needs no Scan.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from tally.collect.model.records import Sport
from tally.store.api import Write
from tally.store.errors import StoreUnavailable, TransactionCancelled
from tally.store.schema import Attribute, GlobalIndex, S, Table, include
from tally.store.store import Store
from tally.store.values import Item

# Times are epoch seconds.
SYNC_ATTRIBUTES: Final = (
    Attribute("dueAt", "N", about="sync and its entry: when the next sync is due"),
    Attribute("isDaily", "BOOL", about="sync and its entry: due earlier after a gap"),
    Attribute("syncedAt", "N", about="sync: start of the last complete sync"),
    Attribute("syncedFrom", "N", about="sync: start of the range of the last complete sync"),
    Attribute("rangeStart", "N", about="sync: start of the range of the sync in progress"),
    Attribute("syncedUntil", "N", about="sync: activities up to this time are synced"),
    Attribute("startedAt", "N", about="sync: start of the sync in progress"),
    Attribute("requestedAt", "N", about="sync: last request of the user"),
    Attribute("heartbeatAt", "N", about="heartbeat: when an instance last received events"),
    Attribute("gapEndedAt", "N", about="heartbeat: end of the last gap in the deliveries"),
)

COMMIT_COLLECT = Table(
    "CommitCollect",
    partition=S("PK"),
    sort=S("SK"),
    stream="NEW_IMAGE",
    indexes=(
        GlobalIndex("GSI1", partition=S("GSI1PK")),
        GlobalIndex(
            "GSI2",
            partition=S("GSI2PK"),
            sort=S("GSI2SK"),
            projection=include(
                "startDateUtc", "distanceMeters", "totalElevationGain", "isManual", "version"
            ),
        ),
        GlobalIndex("GSI3", partition=S("GSI3PK"), sort=S("GSI3SK")),
    ),
    attributes=(
        Attribute(
            "PK",
            "S",
            required=True,
            about="USER#{userId}, MODEL#{modelId}, STRAVA#ATHLETE#{athleteId}, INBOX#…,"
            " STRAVA#SUBSCRIPTION, SYNC#QUEUE, DELETIONS",
        ),
        Attribute(
            "SK",
            "S",
            required=True,
            about="PROFILE, STRAVA#CONNECTION, STRAVA#SYNC, WORKOUT#…, MILESTONE#…, META, PART#…,"
            " OWNER, EVENT#…, WAKEUP#…, WAIT#…, DAILY#…, HEARTBEAT, ACCOUNT#…",
        ),
        Attribute(
            "GSI1PK", "S", about="STRAVA#ATHLETE#{athleteId}, on STRAVA#CONNECTION and OWNER"
        ),
        Attribute("GSI2PK", "S", about="USER#{userId}#{family}, on workouts that count"),
        Attribute("GSI2SK", "S", about="{startDateUtc}#{workoutId}"),
        Attribute("GSI3PK", "S", about="USER#{userId}, on workouts that are not deleted"),
        Attribute("GSI3SK", "S", about="{startDateUtc}#{workoutId}"),
        Attribute(
            "userId", "S", about="owner of the item; on OWNER, the user who linked the athlete"
        ),
        Attribute("createdAtUtc", "S", about="RFC 3339"),
        Attribute("email", "S", about="PROFILE"),
        Attribute("plan", "S", about="PROFILE"),
        Attribute("sessionEpoch", "S", about="PROFILE: sessions of another epoch are invalid"),
        Attribute("milestonesCreated", "N", about="PROFILE: incremented by every new milestone"),
        Attribute(
            "workoutsIndexed", "BOOL", about="PROFILE: whether all workouts have GSI2 and GSI3 keys"
        ),
        Attribute(
            "importsVersion",
            "N",
            about="PROFILE: incremented by every decision about copies of workouts",
        ),
        Attribute("athleteId", "N", about="connection, OWNER and workout: id at Strava"),
        Attribute("sealedTokens", "S", about="connection: both tokens, AES-GCM"),
        Attribute("tokensExpireAt", "N", about="connection: epoch seconds"),
        Attribute("scope", "S", about="connection: granted scope"),
        Attribute("linkId", "S", about="connection: id of this link"),
        Attribute("linkedAtMs", "N", about="connection: when the link was made, epoch ms"),
        Attribute("refreshUntil", "N", about="connection: a refresh is in progress until then"),
        Attribute("needsRelink", "BOOL", about="connection: Strava rejected the refresh token"),
        Attribute(
            "version",
            "N",
            about="milestone, connection and workout: incremented by every change",
        ),
        Attribute("activityId", "N", about="workout from Strava"),
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
        Attribute("isFlagged", "BOOL", about="workout: flagged at Strava; does not count"),
        Attribute("isManual", "BOOL", about="workout: typed in, not recorded"),
        Attribute("duplicateOf", "S", about="workout: id of the workout that counts instead"),
        Attribute("isSeparated", "BOOL", about="workout: declared by its owner not a duplicate"),
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
        Attribute("countsManual", "BOOL", about="model and milestone: false excludes manual ones"),
        Attribute("stalledReason", "S", about="milestone: why it cannot advance"),
        Attribute("archivedAtUtc", "S", about="milestone: RFC 3339"),
        Attribute("periodStartAtUtc", "S", about="milestone: RFC 3339, inclusive"),
        Attribute("periodEndAtUtc", "S", about="milestone: RFC 3339, exclusive"),
        Attribute("partIndex", "N", about="part and award: from 1"),
        Attribute("threshold", "N", about="award: progress that earned it"),
        Attribute("mesh", "L", about="part and award: primitives"),
        Attribute("attach", "M", about="part and award: parent part and attachment point"),
        Attribute("awardedAtUtc", "S", about="award: RFC 3339"),
        Attribute("correlationId", "S", about="event, and the awards it caused; deletion"),
        Attribute("attempts", "N", about="event and deletion: number of failures"),
        Attribute(
            "notBefore", "N", about="event, wake-up, deletion: due from then on, epoch seconds"
        ),
        Attribute("remainingSteps", "L", about="deletion: steps that are not done"),
        Attribute("sealedRefreshToken", "S", about="deletion: for the OIDC provider, AES-GCM"),
        Attribute("claimedBy", "S", about="deletion: token of the run that processes it"),
        Attribute("leaseUntil", "N", about="deletion and sync: epoch seconds; then it is free"),
        Attribute("lastError", "S", about="deletion: the step that failed last, and why"),
        *SYNC_ATTRIBUTES,
        Attribute("wakeToken", "S", about="wake-up: changes with every write"),
        Attribute("reason", "S", about="parked event: why it is parked"),
        Attribute("parkedAtUtc", "S", about="parked event: RFC 3339"),
        Attribute("subscriptionId", "N", about="STRAVA#SUBSCRIPTION: id at Strava"),
    ),
)

INBOX_SHARDS: Final = 8
PROFILE: Final = "PROFILE"
CONNECTION: Final = "STRAVA#CONNECTION"
OWNER: Final = "OWNER"
META: Final = "META"
DELETIONS_PK: Final = "DELETIONS"
ACCOUNT_PREFIX: Final = "ACCOUNT#"
WORKOUT_PREFIX: Final = "WORKOUT#"
MILESTONE_PREFIX: Final = "MILESTONE#"
PART_PREFIX: Final = "PART#"
EVENT_PREFIX: Final = "EVENT#"
WAKEUP_PREFIX: Final = "WAKEUP#"


def user_pk(user_id: str) -> str:
    return f"USER#{user_id}"


def athlete_pk(athlete_id: int) -> str:
    return f"STRAVA#ATHLETE#{athlete_id}"


def model_pk(model_id: str) -> str:
    return f"MODEL#{model_id}"


def part_sk(index: int) -> str:
    return f"{PART_PREFIX}{index:02}"


def workout_sk(workout_id: str) -> str:
    return f"{WORKOUT_PREFIX}{workout_id}"


def family_pk(user_id: str, family: Sport) -> str:
    return f"{user_pk(user_id)}#{family.value}"


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


def wakeup_sk(due: int, athlete_id: int) -> str:
    return f"{WAKEUP_PREFIX}{due:012}#{athlete_id}"


def deletion_key(user_id: str) -> Item:
    return item_key(DELETIONS_PK, f"{ACCOUNT_PREFIX}{user_id}")


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
