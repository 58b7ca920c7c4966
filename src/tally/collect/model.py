"""People, workouts, models, milestones and awards: frozen data and what makes it good.

No input or output, and no clock.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from tally.errors import Invalid

# Where the next page of a list starts: only the repository knows what is in it.
PageKey: TypeAlias = Mapping[str, Any]
Number: TypeAlias = int | Decimal

MAX_WORKOUTS: Final = 3000
MAX_MILESTONES: Final = 50
MAX_PARTS: Final = 99
MAX_TARGET: Final = 1_000_000_000
MAX_MEASURE: Final = Decimal(1_000_000_000)
SESSION_SECONDS: Final = 30 * 86_400
STATE_SECONDS: Final = 600
AUDIT_SECONDS: Final = 90 * 86_400
IDEMPOTENCY_SECONDS: Final = 7 * 86_400
NOBODY: Final = "anonymous"

_user_id = re.compile(r"[A-Za-z0-9._:|@+-]{1,128}")


class Sport(StrEnum):
    """The families of sports that a milestone can be about."""

    RIDE = "RIDE"
    RUN = "RUN"
    SWIM = "SWIM"
    WALK = "WALK"


class Metric(StrEnum):
    DISTANCE_METERS = "DISTANCE_METERS"
    ELEVATION_METERS = "ELEVATION_METERS"


class Status(StrEnum):
    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"


@dataclass(frozen=True, slots=True)
class Profile:
    user_id: str
    email: str | None
    plan: str
    created_at: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who an issuer says that somebody is."""

    user_id: str
    email: str | None
    # What the issuer wants to see when the identity is to be deleted; None where it is of no use.
    refresh_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Strava's tokens, in the clear: only in memory, never in a repr."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    expires_at: int


@dataclass(frozen=True, slots=True)
class Grant:
    """What Strava answers when somebody has agreed: the tokens, and whose they are."""

    athlete_id: int
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Connection:
    """A person's link to Strava.

    `sealed` holds the tokens, encrypted; `version` rises with every refresh.
    """

    user_id: str
    athlete_id: int
    sealed: str = field(repr=False)
    expires_at: int
    scope: str
    connected_at: str
    version: int = 1


@dataclass(frozen=True, slots=True)
class Session:
    """`session_hash` stands for the id, which only the browser has."""

    session_hash: str = field(repr=False)
    user_id: str
    created_at: str
    expires_at: int
    sealed: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class PendingState:
    """A sign-in or a link that was begun: good once, for ten minutes, in the browser that began it."""

    state: str = field(repr=False)
    purpose: str
    bound_to: str = field(repr=False)
    expires_at: int
    return_to: str = "/"
    sealed: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Workout:
    """An activity as Strava told of it.

    `event_time` is that of the event that it was last written for.
    """

    user_id: str
    activity_id: int
    name: str
    sport_type: str
    started_at: str
    distance: Number
    elevation: Number
    moving_seconds: int
    elapsed_seconds: int
    event_time: int
    is_deleted: bool = False
    deleted_at: str | None = None


class Effort(NamedTuple):
    """What of a workout counts: the projection that aggregation reads, thousands at a time."""

    sport_type: str
    started_at: str
    distance: Number
    elevation: Number
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a model: its name, its place in the drawing, and what it hangs on."""

    index: int
    name: str
    description: str
    mesh: tuple[Mapping[str, Any], ...]
    attach: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelMeta:
    """A statue in parts."""

    model_id: str
    name: str
    description: str
    parts_total: int


@dataclass(frozen=True, slots=True)
class Model:
    meta: ModelMeta
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """A goal, and how far it has come. `version` rises with every change."""

    milestone_id: str
    user_id: str
    model_id: str
    sport: Sport
    metric: Metric
    total_target: int
    parts_total: int
    period_start: str
    period_end: str | None
    created_at: str
    updated_at: str
    progress: Number = 0
    percent: int = 0
    parts_minted: int = 0
    status: Status = Status.ACTIVE
    completed_at: str | None = None
    version: int = 1


@dataclass(frozen=True, slots=True)
class Award:
    """A part that was earned, with all that is known of it copied in: models may change, awards do not."""

    user_id: str
    milestone_id: str
    model_id: str
    part: Part
    threshold: int
    awarded_at: str
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A milestone with its ledger."""

    milestone: Milestone
    awards: tuple[Award, ...] = ()

    @property
    def ledger(self) -> frozenset[int]:
        return frozenset(award.part.index for award in self.awards)


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """What Strava told, as it waits in the inbox.

    `key` is the same for every delivery of the event.
    """

    key: str
    object_type: str
    object_id: int
    aspect_type: str
    owner_id: int
    event_time: int
    is_deauthorisation: bool
    correlation_id: str
    received_ms: int
    attempts: int = 0
    not_before: int = 0


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """Something that happened, for whoever has to find out later. `facts` hold no secrets."""

    event_type: str
    user_id: str
    epoch: int
    request_id: str
    correlation_id: str
    facts: Mapping[str, str | int] = field(default_factory=dict)
    ip_hash: str | None = None


def check_user_id(value: object) -> str:
    """A subject that can be part of a key; or Invalid."""
    if not isinstance(value, str) or not _user_id.fullmatch(value):
        raise Invalid(
            "The issuer's subject cannot be used as a user id", code="invalid_subject", field="sub"
        )
    return value


def moment(raw: str, name: str) -> str:
    """An RFC 3339 moment in UTC and whole seconds, whose order as text is the order of time; or Invalid."""
    try:
        parsed = datetime.fromisoformat(raw)
    except ValueError as error:
        raise _no_moment(name) from error
    if parsed.tzinfo is None:
        raise _no_moment(name)
    try:
        return parsed.astimezone(UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"
    except OverflowError as error:
        raise _no_moment(name) from error


def _no_moment(name: str) -> Invalid:
    return Invalid(
        f"{name} must be a moment such as 2026-01-31T09:30:00Z", code="invalid_field", field=name
    )


def measure(value: Decimal | None) -> Decimal:
    """Metres to the millimetre, from nothing up; what makes no sense counts for nothing."""
    if value is None or not value.is_finite() or not 0 <= value < MAX_MEASURE:
        return Decimal(0)
    return value.quantize(Decimal("0.001"))
