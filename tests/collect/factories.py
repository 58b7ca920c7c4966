"""Factories for users, workouts, models and events with unique ids."""

import itertools
import secrets
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tally.collect.model.records import (
    Metric,
    Milestone,
    Model,
    ModelMeta,
    Part,
    Profile,
    Sport,
    StravaConnection,
    WebhookEvent,
)
from tally.collect.model.workouts import Workout, strava_workout_id

TIME = "2026-01-01T00:00:00Z"
LATER_TIME = "2026-01-01T06:00:00Z"
_numbers = itertools.count(secrets.randbits(40))


def new_id() -> int:
    """Return a unique athlete or activity id."""
    return next(_numbers)


def new_user_id() -> str:
    return f"user-{secrets.token_hex(8)}"


def profile(user: str) -> Profile:
    return Profile(user, f"{user}@example.org", "free", TIME)


def connection(user: str, athlete_id: int | None = None, **changes: Any) -> StravaConnection:
    base = StravaConnection(
        user, athlete_id or new_id(), "encrypted", 1_767_225_600, "read,activity:read_all", TIME
    )
    return replace(base, **changes)


def workout(user: str, activity_id: int | None = None, **changes: Any) -> Workout:
    base = Workout(
        user_id=user,
        workout_id=strava_workout_id(activity_id or new_id()),
        name="Morning ride",
        sport_type="Ride",
        started_at=LATER_TIME,
        distance=Decimal("1000.5"),
        elevation=Decimal(12),
        moving_seconds=600,
        elapsed_seconds=700,
        event_time=1_767_225_600,
    )
    return replace(base, **changes)


def model(parts: int = 12) -> Model:
    """Build a model of identical blocks."""
    model_id = f"model-{secrets.token_hex(6)}"
    block = {"shape": "box", "position": [0, Decimal("1.5"), 0], "colour": "#aabbcc"}
    all_parts = tuple(
        Part(index, f"Part {index}", "A block", (block,), {"to": index - 1})
        for index in range(1, parts + 1)
    )
    return Model(ModelMeta(model_id, "Blocks", "A pile", parts), all_parts)


def milestone(user: str, **changes: Any) -> Milestone:
    base = Milestone(
        milestone_id=secrets.token_hex(13).upper(),
        user_id=user,
        model_id="model",
        sport=Sport.RIDE,
        metric=Metric.DISTANCE_METERS,
        total_target=12_000,
        parts_total=12,
        period_start=TIME,
        period_end=None,
        created_at=TIME,
        updated_at=TIME,
    )
    return replace(base, **changes)


def event(owner_id: int, **changes: Any) -> WebhookEvent:
    base = WebhookEvent(
        key=secrets.token_hex(16),
        object_type="activity",
        object_id=new_id(),
        aspect_type="create",
        owner_id=owner_id,
        event_time=1_767_225_600,
        is_deauthorisation=False,
        correlation_id="corr-1",
        received_ms=1_767_225_600_000,
    )
    return replace(base, **changes)
