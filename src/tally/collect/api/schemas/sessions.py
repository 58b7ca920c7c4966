"""Bodies about sessions and account deletions."""

from datetime import timedelta
from typing import Literal

from tally.collect.api.schemas.responses import CollectBody
from tally.collect.model.accounts import AccountDeletion
from tally.collect.model.records import BrowserSession
from tally.collect.service.sessions import public_session_id
from tally.kit.clock import EPOCH, rfc3339


class SessionBody(CollectBody, frozen=True):
    """A session. Its id identifies it and grants nothing; `last_used_at_utc` is to the hour."""

    session_id: str
    created_at_utc: str
    last_used_at_utc: str | None
    expires_at_utc: str
    current: bool


class SessionList(CollectBody, frozen=True):
    items: list[SessionBody]
    next_cursor: str | None = None


class DeletionAccepted(CollectBody, frozen=True):
    requested_at_utc: str
    status: Literal["pending"] = "pending"


class DeletionBody(CollectBody, frozen=True):
    """An account deletion in progress, for operators."""

    user_id: str
    requested_at_utc: str
    remaining_steps: list[str]
    attempts: int
    next_attempt_at_utc: str | None
    last_error: str | None
    correlation_id: str


class DeletionPage(CollectBody, frozen=True):
    items: list[DeletionBody]
    next_cursor: str | None


def session_body(session: BrowserSession, current: BrowserSession) -> SessionBody:
    return SessionBody(
        public_session_id(session),
        session.created_at,
        None if session.last_used_at is None else _time(session.last_used_at),
        _time(session.expires_at),
        session.session_hash == current.session_hash,
    )


def deletion_body(deletion: AccountDeletion) -> DeletionBody:
    retry = deletion.retry
    return DeletionBody(
        deletion.user_id,
        deletion.requested_at,
        [step.value for step in deletion.remaining],
        retry.attempts,
        _time(retry.not_before) if retry.not_before else None,
        retry.last_error,
        deletion.correlation_id,
    )


def _time(epoch_seconds: int) -> str:
    return rfc3339(EPOCH + timedelta(seconds=int(epoch_seconds)))
