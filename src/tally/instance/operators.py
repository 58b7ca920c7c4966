"""Operator accounts: creates, lists and removes them, authenticates tokens, and audits changes.

A token is `tally-{name}-{64 hexadecimal digits}`. It contains the name, so that authentication is
one GetItem, and no dot, so that it cannot be mistaken for a JSON Web Token. Only its hash is
stored.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tally.errors import Conflict, Invalid, NotFound, TallyError, Unauthenticated, Unavailable
from tally.instance.repository.operator_audit import AuditRecord, OperatorAuditRepository
from tally.instance.repository.operators import OperatorAccount, OperatorRepository
from tally.kit import logs
from tally.kit.auth import invalid_token, matches_secret
from tally.kit.clock import Clock, rfc3339
from tally.kit.ids import SortableIds
from tally.kit.masking import mask, mask_text
from tally.kit.operators import AUTOMATION, Operator, OperatorChange, Role, check_operator_name
from tally.kit.ttl_cache import TTLCache
from tally.settings import Secret, Settings
from tally.store.store import Store
from tally.store.values import Key

# Other instances accept the token of a removed operator for up to this long.
ACCOUNT_CACHE_SECONDS: Final = 5.0
MAX_CACHED_ACCOUNTS: Final = 1_000
LAST_USE_INTERVAL: Final = timedelta(minutes=5)
DEFAULT_LIFETIME: Final = timedelta(days=90)
MAX_TARGET_LENGTH: Final = 512
TOKEN_ID_LENGTH: Final = 16

_token = re.compile(r"tally-([a-z0-9-]{1,32})-[0-9a-f]{64}")
# Compared with the token of a name that does not exist.
_NO_HASH: Final = "0" * 64
_log = logs.logger()


@dataclass(frozen=True, slots=True)
class OperatorAccounts:
    """The operators of an installation, shared by all its instances.

    `cached` holds accounts by name. `recently_used` holds the names whose last use was recorded
    within `LAST_USE_INTERVAL`.
    """

    accounts: OperatorRepository
    audit: OperatorAuditRepository
    clock: Clock
    ids: SortableIds
    automation_token: Secret | None
    audit_seconds: int
    cached: TTLCache[str, OperatorAccount]
    recently_used: TTLCache[str, bool]

    async def authenticate(self, token: str) -> Operator:
        """Return the operator with this token, or raise Unauthenticated."""
        if self.automation_token is not None and matches_secret(token, self.automation_token):
            return _automation(self.automation_token)
        account = await self._find(token)
        if account is None:
            raise invalid_token("Invalid operator token")
        if self._is_expired(account):
            raise Unauthenticated("The operator token has expired", code="token_expired")
        await self._record_use(account.name)
        return _operator(account)

    async def is_valid(self, token: str) -> bool:
        """Return whether an account has this token, without recording its use."""
        account = await self._find(token)
        return account is not None and not self._is_expired(account)

    async def get(self, name: str) -> Operator | None:
        """Return the operator, or None if it does not exist or its token has expired."""
        if name == AUTOMATION:
            return None if self.automation_token is None else _automation(self.automation_token)
        account = self.cached.get(name) or await self._load(name)
        return None if account is None or self._is_expired(account) else _operator(account)

    async def find_active(self, session_ids: Sequence[str]) -> set[str]:
        """Return the `session_id` of those operators that were not removed and have not expired."""
        found = [await self.get(session_id.partition("/")[0]) for session_id in session_ids]
        return {operator.session_id for operator in found if operator is not None}

    async def add(self, name: str, role: Role, expires: datetime | None) -> str:
        """Create an operator whose token expires at this time or never, and return the token."""
        if check_operator_name(name) == AUTOMATION:
            raise Invalid(f"The name {AUTOMATION} is reserved for TALLY_OPERATOR_TOKEN")
        token = f"{operator_token_prefix(name)}{secrets.token_hex(32)}"
        if not await self.accounts.create(self._account(name, role, token, expires)):
            raise Conflict(f"Operator {name} exists already", code="operator_exists")
        return token

    async def is_initialized(self) -> bool:
        """Return whether there ever was an operator."""
        return await self.accounts.is_initialized()

    async def add_first(self, name: str, token: str) -> bool:
        """Create an operator with this token, unless there ever was one. Return whether it did."""
        account = self._account(name, Role.OPERATOR, token, None)
        return await self.accounts.create(account, only_first=True)

    async def list(self) -> Sequence[OperatorAccount]:
        return await self.accounts.all()

    async def remove(self, name: str) -> None:
        """Remove an operator; its token is invalid from now on, elsewhere after seconds."""
        is_removed = await self.accounts.remove(check_operator_name(name))
        self.cached.remove(name)
        if not is_removed:
            raise NotFound(f"Operator {name} does not exist", code="operator_not_found")

    async def record(self, operator: Operator, action: str, target: str, **details: object) -> None:
        """Record a change that is already complete."""
        await self._append(operator, action, target, "succeeded", details)

    @asynccontextmanager
    async def recording(
        self, operator: Operator, action: str, target: str, **details: object
    ) -> AsyncIterator[OperatorChange]:
        """Record a change: the intent before the body, the outcome after it.

        If the intent cannot be recorded, the body does not run.
        """
        change = OperatorChange()
        record_id = await self._append(operator, action, target, "started", details)
        try:
            yield change
        except Exception as error:
            change.error = error.code if isinstance(error, TallyError) else "internal_error"
            await self._finish(operator, record_id, change.error)
            raise
        await self._finish(operator, record_id, change.error)

    async def changes(
        self, operator: str | None, limit: int, start: Key | None = None
    ) -> tuple[Sequence[AuditRecord], Key | None]:
        """Return a page of recorded changes, newest first, and the start of the next page."""
        if operator is None:
            return await self.audit.newest(limit, start)
        return await self.audit.by_operator(operator, limit, start)

    async def _find(self, token: str) -> OperatorAccount | None:
        """Return the account with this token; an unknown name takes as long as a wrong token."""
        if not (match := _token.fullmatch(token)):
            return None
        name, token_hash = match[1], operator_token_hash(token)
        account = self.cached.get(name)
        if account is None or not hmac.compare_digest(account.token_hash, token_hash):
            account = await self._load(name)
        stored_hash = _NO_HASH if account is None else account.token_hash
        return account if hmac.compare_digest(stored_hash, token_hash) else None

    async def _load(self, name: str) -> OperatorAccount | None:
        """Read an account and cache it; use does not restart its time in the cache."""
        account = await self.accounts.get(name)
        if account is not None:
            self.cached.put(name, account)
        return account

    async def _append(
        self,
        operator: Operator,
        action: str,
        target: str,
        outcome: str,
        details: dict[str, object],
    ) -> str:
        record = AuditRecord(
            operator=operator.name,
            id=self.ids.next(),
            time=rfc3339(self.clock.now()),
            action=action,
            target=mask_text(target)[:MAX_TARGET_LENGTH],
            outcome=outcome,
            request_id=logs.current_context().request_id,
            details=mask(details),
        )
        await self.audit.append(record, self.clock.seconds() + self.audit_seconds)
        return record.id

    async def _finish(self, operator: Operator, record_id: str, error: str | None) -> None:
        outcome = "succeeded" if error is None else "failed"
        try:
            await self.audit.finish(operator.name, record_id, outcome, error)
        except Unavailable:
            # The change is made or refused: the record keeps saying "started".
            _log.error(
                "Recording the outcome of an operator's change failed",
                action="operator_audit_failed",
                record=record_id,
                outcome=outcome,
            )

    def _account(
        self, name: str, role: Role, token: str, expires: datetime | None
    ) -> OperatorAccount:
        expires_at = None if expires is None else rfc3339(expires)
        return OperatorAccount(
            name, role, operator_token_hash(token), rfc3339(self.clock.now()), expires_at
        )

    def _is_expired(self, account: OperatorAccount) -> bool:
        return account.expires_at is not None and account.expires_at <= rfc3339(self.clock.now())

    async def _record_use(self, name: str) -> None:
        if self.recently_used.get(name) is not None:
            return
        self.recently_used.put(name, True)
        now = self.clock.now()
        try:
            await self.accounts.update_last_used(
                name, rfc3339(now), rfc3339(now - LAST_USE_INTERVAL)
            )
        except Unavailable as error:
            # Operators must be able to inspect an instance whose disk is full.
            _log.warning(
                "Recording the use of an operator account failed",
                action="operator_use_failed",
                operator=name,
                error=error,
            )


def open_operators(settings: Settings, store: Store, clock: Clock) -> OperatorAccounts:
    return OperatorAccounts(
        OperatorRepository(store),
        OperatorAuditRepository(store),
        clock,
        SortableIds(clock),
        settings.operator_token,
        settings.operator_audit_days * 86_400,
        TTLCache(clock, ACCOUNT_CACHE_SECONDS, MAX_CACHED_ACCOUNTS),
        TTLCache(clock, LAST_USE_INTERVAL.total_seconds(), MAX_CACHED_ACCOUNTS),
    )


def operator_token_prefix(name: str) -> str:
    return f"tally-{name}-"


def operator_token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _operator(account: OperatorAccount) -> Operator:
    return Operator(account.name, account.role, account.token_hash[:TOKEN_ID_LENGTH])


def _automation(token: Secret) -> Operator:
    token_id = operator_token_hash(token.reveal())[:TOKEN_ID_LENGTH]
    return Operator(AUTOMATION, Role.OPERATOR, token_id)
