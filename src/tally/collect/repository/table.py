"""The table `CommitCollect`: everything that belongs to a person in one partition, and what is everybody's beside it.

Indexes in sort keys have two digits and activities twelve, so that their order is that of numbers.
Events that wait to be applied stand in a few partitions of their own (`INBOX#{shard}`), in the
order of their time, so that they are found without a Scan.
"""

import hashlib
from typing import Final

from tally.store.errors import StoreUnavailable, TransactionCancelled
from tally.store.schema import Attribute, GlobalIndex, S, Table
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
            about="PROFILE, STRAVA#CONNECTION, WORKOUT#…, MILESTONE#…, META, PART#…, OWNER, EVENT#…",
        ),
        Attribute(
            "GSI1PK", "S", about="STRAVA#ATHLETE#{athleteId}, on STRAVA#CONNECTION and OWNER"
        ),
        Attribute("userId", "S", about="whose it is; on OWNER, who has linked the athlete"),
        Attribute("createdAtUtc", "S", about="RFC 3339"),
        Attribute("email", "S", about="of a PROFILE"),
        Attribute("plan", "S", about="of a PROFILE"),
        Attribute("athleteId", "N", about="Strava's, of a connection and an owner"),
        Attribute("sealedTokens", "S", about="of a connection: both tokens, AES-GCM"),
        Attribute("tokensExpireAt", "N", about="of a connection, epoch seconds"),
        Attribute("scope", "S", about="of a connection: what was really granted"),
        Attribute(
            "version",
            "N",
            about="of a milestone and of a connection's tokens: rises with every change",
        ),
        Attribute("activityId", "N", about="of a workout"),
        Attribute("name", "S", about="of a workout, a model, a part, an award"),
        Attribute("sportType", "S", about="of a workout, as Strava calls it"),
        Attribute("startDateUtc", "S", about="of a workout, RFC 3339"),
        Attribute("distanceMeters", "N", about="of a workout"),
        Attribute("totalElevationGain", "N", about="of a workout, metres"),
        Attribute("movingSeconds", "N", about="of a workout"),
        Attribute("elapsedSeconds", "N", about="of a workout"),
        Attribute(
            "eventTime",
            "N",
            about="of a workout: the event it was last written for; of an event: its own",
        ),
        Attribute("isDeleted", "BOOL", about="of a workout; everything else stays"),
        Attribute("deletedAtUtc", "S", about="of a workout, RFC 3339"),
        Attribute("milestoneId", "S", about="of a milestone and an award"),
        Attribute("modelId", "S", about="of a model, a milestone, an award"),
        Attribute("sport", "S", about="of a milestone: RIDE, RUN, SWIM, WALK"),
        Attribute("metric", "S", about="of a milestone: DISTANCE_METERS, ELEVATION_METERS"),
        Attribute("totalTarget", "N", about="of a milestone, metres"),
        Attribute("partsTotal", "N", about="of a model and a milestone"),
        Attribute("partsMinted", "N", about="of a milestone; the ledger of awards is the truth"),
        Attribute("progress", "N", about="of a milestone, metres; never goes down"),
        Attribute("percent", "N", about="of a milestone, 0 to 100"),
        Attribute("status", "S", about="of a milestone: ACTIVE, COMPLETED"),
        Attribute("periodStartAtUtc", "S", about="of a milestone, RFC 3339, included"),
        Attribute("periodEndAtUtc", "S", about="of a milestone, RFC 3339, excluded"),
        Attribute("partIndex", "N", about="of a part and an award, from 1"),
        Attribute("threshold", "N", about="of an award: the progress that earned it"),
        Attribute("mesh", "L", about="of a part and an award: primitives to draw"),
        Attribute("attach", "M", about="of a part and an award: what it hangs on, and where"),
        Attribute("awardedAtUtc", "S", about="of an award, RFC 3339"),
        Attribute("correlationId", "S", about="of an event and the award that came of it"),
        Attribute("attempts", "N", about="of an event: how often it failed"),
        Attribute("notBefore", "N", about="of an event that failed: epoch seconds"),
    ),
)

SHARDS: Final = 8
PROFILE: Final = "PROFILE"
CONNECTION: Final = "STRAVA#CONNECTION"
OWNER: Final = "OWNER"
META: Final = "META"
WORKOUTS: Final = "WORKOUT#STRAVA#"
MILESTONES: Final = "MILESTONE#"
PARTS: Final = "PART#"
EVENTS: Final = "EVENT#"


def user(user_id: str) -> str:
    return f"USER#{user_id}"


def athlete(athlete_id: int) -> str:
    return f"STRAVA#ATHLETE#{athlete_id}"


def model(model_id: str) -> str:
    return f"MODEL#{model_id}"


def part(index: int) -> str:
    return f"{PARTS}{index:02}"


def workout(activity_id: int) -> str:
    return f"{WORKOUTS}{activity_id:012}"


def milestone(milestone_id: str) -> str:
    return f"{MILESTONES}{milestone_id}"


def award(milestone_id: str, index: int) -> str:
    return f"{MILESTONES}{milestone_id}#AWARD#{index:02}"


def inbox(shard: int) -> str:
    return f"INBOX#{shard}"


def shard_of(owner_id: int) -> int:
    """All events of one athlete wait in one shard, so that they stay in order."""
    return hashlib.sha256(str(owner_id).encode()).digest()[0] % SHARDS


def event(event_time: int, key: str) -> str:
    return f"{EVENTS}{event_time:012}#{key}"


def at(partition: str, sort: str) -> Item:
    return {"PK": partition, "SK": sort}


def refuse_conflict(cancelled: TransactionCancelled) -> None:
    """Tell a condition that did not hold from two transactions that met, which says nothing and may be tried again."""
    if not any(reason.condition_failed for reason in cancelled.reasons):
        raise StoreUnavailable(str(cancelled)) from cancelled
