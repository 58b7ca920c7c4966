"""Response bodies, and their construction from the model.

Field names are in camel case, as in the tables. Numbers are JSON numbers. A body has one field per
value of its JSON object.
"""

from typing import Any, Literal

import msgspec

from tally.collect.model.records import (
    AuditEvent,
    ParkedEvent,
    StravaConnection,
)
from tally.collect.model.sync import StravaSync
from tally.collect.model.workouts import MAX_COUNTED_WORKOUTS, Workout
from tally.collect.service.accounts import AccountSummary
from tally.kit.clock import rfc3339_seconds
from tally.kit.jsonable import to_jsonable


class CollectBody(msgspec.Struct, frozen=True, rename="camel"):
    """The base of response bodies with camel-case field names."""


class CollectHealth(CollectBody, frozen=True):
    status: Literal["ok"]


class Handshake(msgspec.Struct, frozen=True):
    challenge: str = msgspec.field(name="hub.challenge")


class EventReceived(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class StravaStatus(CollectBody, frozen=True):
    connected: bool
    athlete_id: int | None = None
    scope: str | None = None
    connected_at_utc: str | None = None
    needs_relink: bool = False
    # The start of the last complete sync; None before the first one.
    last_synced_at_utc: str | None = None
    is_syncing: bool = False


class ItemCounts(CollectBody, frozen=True):
    """`workouts` is at most 10,000; `has_more_workouts` says whether there are more."""

    workouts: int
    milestones: int
    awards: int
    has_more_workouts: bool = False


class MeBody(CollectBody, frozen=True):
    user_id: str
    email: str | None
    plan: str
    created_at_utc: str
    strava: StravaStatus
    counts: ItemCounts


class WorkoutBody(CollectBody, frozen=True):
    """A workout. `activity_id` is null for a workout from a file.

    `duplicate_of` is the id of the workout that counts instead.
    """

    workout_id: str
    source: Literal["strava", "file"]
    activity_id: int | None
    name: str
    sport_type: str
    start_date_utc: str
    distance_meters: float
    total_elevation_gain: float
    moving_seconds: int
    elapsed_seconds: int
    is_flagged: bool = False
    is_manual: bool = False
    duplicate_of: str | None = None
    is_separated: bool = False


class WorkoutPage(CollectBody, frozen=True):
    items: list[WorkoutBody]
    next_cursor: str | None


class AuditBody(CollectBody, frozen=True):
    event_type: str
    user_id: str
    epoch: int
    request_id: str
    correlation_id: str
    facts: dict[str, Any]
    ip_hash: str | None


class AuditPage(CollectBody, frozen=True):
    items: list[AuditBody]
    next_cursor: str | None


class ParkedEventBody(CollectBody, frozen=True):
    event_key: str
    athlete_id: int
    object_type: str
    object_id: int
    aspect_type: str
    reason: str
    attempts: int
    parked_at_utc: str


class ParkedEventPage(CollectBody, frozen=True):
    items: list[ParkedEventBody]
    next_cursor: str | None


class RetriedEvents(CollectBody, frozen=True):
    retried: int


def parked_event_body(parked: ParkedEvent) -> ParkedEventBody:
    event = parked.event
    return ParkedEventBody(
        event.key,
        event.owner_id,
        event.object_type,
        event.object_id,
        event.aspect_type,
        parked.reason,
        event.attempts,
        parked.parked_at,
    )


def strava_status(connection: StravaConnection | None, sync: StravaSync | None) -> StravaStatus:
    if connection is None:
        return StravaStatus(connected=False)
    synced_at = None if sync is None else sync.synced_at
    return StravaStatus(
        True,
        connection.athlete_id,
        connection.scope,
        connection.connected_at,
        connection.needs_relink,
        None if synced_at is None else rfc3339_seconds(synced_at),
        sync is not None and sync.is_pending,
    )


def me_body(summary: AccountSummary, sync: StravaSync | None) -> MeBody:
    profile = summary.profile
    return MeBody(
        profile.user_id,
        profile.email,
        profile.plan,
        profile.created_at,
        strava_status(summary.connection, sync),
        ItemCounts(
            min(summary.workouts, MAX_COUNTED_WORKOUTS),
            summary.milestones,
            summary.awards,
            has_more_workouts=summary.workouts > MAX_COUNTED_WORKOUTS,
        ),
    )


def workout_body(workout: Workout) -> WorkoutBody:
    return WorkoutBody(
        workout.workout_id,
        "file" if workout.is_file else "strava",
        workout.activity_id,
        workout.name,
        workout.sport_type,
        workout.started_at,
        float(workout.distance),
        float(workout.elevation),
        workout.moving_seconds,
        workout.elapsed_seconds,
        workout.is_flagged,
        workout.is_manual,
        workout.duplicate_of,
        workout.is_separated,
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
