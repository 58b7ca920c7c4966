"""Account deletion: its steps and the record of a deletion in progress; and exported items."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class DeletionStep(StrEnum):
    """The steps of an account deletion, in the order in which they run."""

    STRAVA = "strava"
    ITEMS = "items"
    SESSIONS = "sessions"
    IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class DeletionRetry:
    """The failures of a deletion so far. Times are epoch seconds."""

    attempts: int = 0
    not_before: int = 0
    # The step that failed last and the code of its error, such as `strava: unavailable`.
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class AccountDeletion:
    """A requested deletion. It exists until every step is done.

    `encrypted_refresh_token` authorizes the deletion of the identity, and is removed with its step.
    """

    user_id: str
    requested_at: str
    correlation_id: str
    remaining: tuple[DeletionStep, ...] = tuple(DeletionStep)
    athlete_id: int | None = None
    encrypted_refresh_token: str | None = field(default=None, repr=False)
    retry: DeletionRetry = DeletionRetry()


class ExportedItem(NamedTuple):
    """An item in JSON types, and the section of the export that it belongs to."""

    section: str
    content: dict[str, Any]
