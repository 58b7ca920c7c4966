"""Users, workouts, models, milestones and awards as immutable records, and their limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, TypeAlias

from tally.errors import Unavailable

# The start key of the next page. Only the repository knows its structure.
PageKey: TypeAlias = Mapping[str, Any]
Number: TypeAlias = int | Decimal

# Milestones that are not archived, and all that an account keeps.
MAX_MILESTONES: Final = 50
MAX_KEPT_MILESTONES: Final = 1000
MAX_PARTS: Final = 99
MAX_TARGET: Final = 1_000_000_000
SESSION_SECONDS: Final = 30 * 86_400
STATE_SECONDS: Final = 600
LAST_USE_SECONDS: Final = 3600
AUDIT_TTL_SECONDS: Final = 90 * 86_400
IDEMPOTENCY_TTL_SECONDS: Final = 7 * 86_400
ANONYMOUS: Final = "anonymous"


class Sport(StrEnum):
    """The sport families that a milestone can count."""

    RIDE = "RIDE"
    RUN = "RUN"
    SWIM = "SWIM"
    WALK = "WALK"


class Metric(StrEnum):
    """What a milestone sums."""

    DISTANCE_METERS = "DISTANCE_METERS"
    ELEVATION_METERS = "ELEVATION_METERS"


class MilestoneStatus(StrEnum):
    """A completed milestone never becomes active again."""

    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"


class TokensRevoked(Exception):
    """Strava rejected the tokens of a connection."""


class TokensUnreadable(TokensRevoked):
    """The stored tokens cannot be decrypted; Strava was not asked."""


class ApplicationInactive(Unavailable):
    """Strava has deactivated the application: a problem of the operator, not of an athlete."""

    default_code = "strava_inactive"


@dataclass(frozen=True, slots=True)
class Profile:
    """A user account."""

    user_id: str
    email: str | None
    plan: str
    created_at: str
    # Sessions of another epoch are invalid; a new epoch ends all sessions at once.
    session_epoch: str = ""


@dataclass(frozen=True, slots=True)
class OidcIdentity:
    """A user as identified by the OIDC provider."""

    user_id: str
    email: str | None
    # Needed to delete the identity at the provider; None if deletion is not configured.
    refresh_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StravaTokens:
    """Decrypted Strava tokens. Kept in memory only, and out of every repr."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    expires_at: int


@dataclass(frozen=True, slots=True)
class AthleteTokens:
    """The result of a code exchange: the tokens and their athlete."""

    athlete_id: int
    tokens: StravaTokens


@dataclass(frozen=True, slots=True)
class StravaConnection:
    """The link between a user and a Strava athlete. Every token refresh increments `version`.

    Every link has another `link_id`, also of the same athlete; links of earlier versions have none.
    Flat, because it mirrors one table item.
    """

    user_id: str
    athlete_id: int
    encrypted_tokens: str = field(repr=False)
    expires_at: int
    scope: str
    connected_at: str
    version: int = 1
    link_id: str = ""
    linked_ms: int = 0
    needs_relink: bool = False

    @property
    def reads_private_activities(self) -> bool:
        return "activity:read_all" in self.scope.split(",")


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A signed-in session, identified by the hash of an id that only the browser stores."""

    session_hash: str = field(repr=False)
    user_id: str
    created_at: str
    expires_at: int
    encrypted_refresh_token: str | None = field(default=None, repr=False)
    # That of the profile at sign-in; the session is valid while they are equal.
    epoch: str = ""
    # Epoch seconds, updated at most once an hour; None in sessions of older versions.
    last_used_at: int | None = None


@dataclass(frozen=True, slots=True)
class PendingState:
    """The OAuth state of a sign-in or link in progress.

    Valid once, for ten minutes, in the browser that started it.
    """

    state: str = field(repr=False)
    purpose: str
    bound_to: str = field(repr=False)
    expires_at: int
    return_to: str = "/"
    encrypted_secrets: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a model: its name, its mesh, and the part that it is attached to."""

    index: int
    name: str
    description: str
    mesh: tuple[Mapping[str, Any], ...]
    attach: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelMeta:
    """A model without its parts."""

    model_id: str
    name: str
    description: str
    parts_total: int
    # Whether workouts that were typed in count for milestones with this model.
    counts_manual: bool = True


@dataclass(frozen=True, slots=True)
class Model:
    """A model with all its parts."""

    meta: ModelMeta
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """A goal and its progress. Every change increments `version`.

    Flat, because it mirrors one table item.
    """

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
    status: MilestoneStatus = MilestoneStatus.ACTIVE
    completed_at: str | None = None
    # Copied from the model, which may change.
    counts_manual: bool = True
    # Set while the milestone cannot advance: the code of the error.
    stalled_reason: str | None = None
    # An archived milestone keeps its awards and does not advance.
    archived_at: str | None = None
    version: int = 1

    @property
    def can_advance(self) -> bool:
        return self.status is MilestoneStatus.ACTIVE and self.archived_at is None


@dataclass(frozen=True, slots=True)
class Award:
    """A minted part. It contains a copy of the part, because models may change."""

    user_id: str
    milestone_id: str
    model_id: str
    part: Part
    threshold: int
    awarded_at: str
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class MilestoneWithAwards:
    """A milestone with its ledger of minted parts."""

    milestone: Milestone
    awards: tuple[Award, ...] = ()

    @property
    def ledger(self) -> frozenset[int]:
        return frozenset(award.part.index for award in self.awards)


@dataclass(frozen=True, slots=True)
class DeletedMilestone:
    """The ids of a milestone that was deleted."""

    user_id: str
    milestone_id: str


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """A Strava event in the inbox. All deliveries of an event have the same `key`.

    Flat, because it mirrors one table item.
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
class StravaSubscription:
    """The webhook subscription of the application. The callback URL contains a secret."""

    subscription_id: int
    callback_url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class InboxWakeUp:
    """Tells the worker to look at the events of an athlete. Every write changes the token."""

    athlete_id: int
    due: int
    sort_key: str
    token: str


@dataclass(frozen=True, slots=True)
class ParkedEvent:
    """An event that waits until its athlete links again or an operator retries it."""

    event: WebhookEvent
    reason: str
    parked_at: str


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """An entry of the audit trail. `facts` contains no secrets."""

    event_type: str
    user_id: str
    epoch: int
    request_id: str
    correlation_id: str
    facts: Mapping[str, str | int] = field(default_factory=dict)
    ip_hash: str | None = None
