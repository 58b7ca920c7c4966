"""The table `CommitCollectSessions`: sessions, and the OAuth states of sign-ins in progress.

A session is keyed by the SHA-256 of its id, which only the browser stores. Reads ignore expired
items, whether or not TTL has deleted them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tally.collect.model.records import BrowserSession, PendingState
from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    DeleteItem,
    GetItem,
    PutItem,
    Query,
    UpdateItem,
    access,
    param,
)
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import KEYS_ONLY, Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item

COMMIT_COLLECT_SESSIONS = Table(
    "CommitCollectSessions",
    partition=S("PK"),
    sort=S("SK"),
    indexes=(GlobalIndex("UserIndex", partition=S("userId"), projection=KEYS_ONLY),),
    ttl="expiresAtUtc",
    attributes=(
        Attribute(
            "PK", "S", required=True, about="SESSION#{SHA-256 of the session id} or STATE#{state}"
        ),
        Attribute("SK", "S", required=True, about="always META"),
        Attribute("userId", "S", about="session"),
        Attribute("createdAtUtc", "S", about="session: RFC 3339"),
        Attribute("sessionEpoch", "S", about="session: equals that of PROFILE while it is valid"),
        Attribute("lastUsedAt", "N", about="session: epoch seconds, to the hour"),
        Attribute(
            "expiresAtUtc", "N", required=True, about="epoch seconds; also checked on every read"
        ),
        Attribute("purpose", "S", about="state: login or strava"),
        Attribute("boundTo", "S", about="state: hash of a secret of the browser that started it"),
        Attribute("returnTo", "S", about="state: path to redirect to"),
        Attribute(
            "sealed",
            "S",
            about="encrypted nonce and code verifier (state) or OIDC refresh token (session)",
        ),
    ),
)

META = "META"
SESSION_PREFIX = "SESSION#"
MAX_STREAM_SESSIONS = 100_000
MAX_LISTED_SESSIONS = 500
DELETE_BATCH_SIZE = 500
_WITHOUT_SECRETS = (
    "PK",
    "userId",
    "createdAtUtc",
    "expiresAtUtc",
    "sessionEpoch",
    "lastUsedAt",
)


def _session_key(session_hash: str) -> Item:
    return {"PK": f"{SESSION_PREFIX}{session_hash}", "SK": META}


def _state_key(state: str) -> Item:
    return {"PK": f"STATE#{state}", "SK": META}


_SESSION_KEY = _session_key(param("hash"))
_STATE_KEY = _state_key(param("state"))


@dataclass(frozen=True, slots=True)
class BrowserSessionRepository:
    """Sessions by hash and by user, and OAuth states."""

    store: Store
    tables: ClassVar = (COMMIT_COLLECT_SESSIONS,)

    @access(
        "Create session",
        PutItem(key=_SESSION_KEY, condition=not_exists("PK")),
        table=COMMIT_COLLECT_SESSIONS,
        by="user",
        trigger="GET /auth/callback",
        frequency="Per login",
    )
    async def create(self, session: BrowserSession) -> None:
        item: Item = _session_key(session.session_hash) | {
            "userId": session.user_id,
            "createdAtUtc": session.created_at,
            "expiresAtUtc": session.expires_at,
        }
        if session.encrypted_refresh_token is not None:
            item["sealed"] = session.encrypted_refresh_token
        if session.epoch:
            item["sessionEpoch"] = session.epoch
        if session.last_used_at is not None:
            item["lastUsedAt"] = session.last_used_at
        await self.store.put(COMMIT_COLLECT_SESSIONS, item, condition=not_exists("PK"))

    @access(
        "Resolve session",
        GetItem(key=_SESSION_KEY),
        table=COMMIT_COLLECT_SESSIONS,
        by="user",
        trigger="Every request with a cookie",
        frequency="Per request",
    )
    async def find(self, session_hash: str, now: int) -> BrowserSession | None:
        """Return the session unless it has expired."""
        item = await self.store.get(
            COMMIT_COLLECT_SESSIONS, _session_key(session_hash), consistent=True
        )
        if item is None or item["expiresAtUtc"] <= now:
            return None
        return _session(session_hash, item)

    @access(
        "Find active sessions",
        BatchGetItem(key=_SESSION_KEY, project=_WITHOUT_SECRETS),
        table=COMMIT_COLLECT_SESSIONS,
        by="system",
        trigger="Job streams: sessions with open streams",
        frequency="Every 2 s per instance with streams",
        bound=MAX_STREAM_SESSIONS,
    )
    async def find_unexpired(self, session_hashes: Sequence[str], now: int) -> list[BrowserSession]:
        """Return those of the sessions that exist and have not expired."""
        keys = [_session_key(session_hash) for session_hash in session_hashes]
        found = await self.store.get_many(
            COMMIT_COLLECT_SESSIONS, keys, project=_WITHOUT_SECRETS, consistent=True
        )
        return _unexpired(found, now)

    @access(
        "List a user's sessions",
        Query(where=F("userId") == param("userId"), index="UserIndex")
        + BatchGetItem(key=_SESSION_KEY, project=_WITHOUT_SECRETS),
        table=COMMIT_COLLECT_SESSIONS,
        by="user",
        trigger="GET /sessions, DELETE /sessions/{sessionId}, GET /account/export",
        frequency="Rare",
        bound=MAX_LISTED_SESSIONS,
    )
    async def by_user(self, user_id: str, now: int) -> list[BrowserSession]:
        """Return up to 500 sessions of a user that have not expired."""
        keys = [
            COMMIT_COLLECT_SESSIONS.primary_key(item)
            async for item in self.store.items(
                COMMIT_COLLECT_SESSIONS,
                F("userId") == user_id,
                index="UserIndex",
                overflow="stop",
            )
        ]
        found = await self.store.get_many(
            COMMIT_COLLECT_SESSIONS, keys, project=_WITHOUT_SECRETS, consistent=True
        )
        return _unexpired(found, now)

    @access(
        "Record use of session",
        UpdateItem(key=_SESSION_KEY, condition=exists("PK")),
        table=COMMIT_COLLECT_SESSIONS,
        by="user",
        trigger="A request with a cookie",
        frequency="Once an hour per session in use",
    )
    async def record_use(self, session_hash: str, now: int) -> None:
        """Store the time of use, unless the session has ended."""
        try:
            await self.store.update(
                COMMIT_COLLECT_SESSIONS,
                _session_key(session_hash),
                F("lastUsedAt").set(now),
                condition=exists("PK"),
            )
        except ConditionFailed:
            return

    @access(
        "Delete session",
        DeleteItem(key=_SESSION_KEY),
        table=COMMIT_COLLECT_SESSIONS,
        by="user",
        trigger="POST /auth/logout, DELETE /sessions/{sessionId}, GET /auth/callback",
        frequency="Per logout",
    )
    async def delete(self, session_hash: str) -> None:
        await self.store.delete(COMMIT_COLLECT_SESSIONS, _session_key(session_hash))

    @access(
        "Delete a user's sessions",
        Query(where=F("userId") == param("userId"), index="UserIndex")
        + BatchWriteItem(key=_SESSION_KEY),
        table=COMMIT_COLLECT_SESSIONS,
        by="both",
        trigger="DELETE /sessions, job collect-deletions",
        frequency="Rare",
        bound=DELETE_BATCH_SIZE,
    )
    async def delete_batch(self, user_id: str) -> int:
        """Delete up to 500 sessions of a user; return how many were found."""
        is_own = F("userId") == user_id
        keys = [
            COMMIT_COLLECT_SESSIONS.primary_key(item)
            async for item in self.store.items(
                COMMIT_COLLECT_SESSIONS, is_own, index="UserIndex", overflow="stop"
            )
        ]
        await self.store.write_many(COMMIT_COLLECT_SESSIONS, deletes=keys)
        return len(keys)

    @access(
        "Begin state",
        PutItem(key=_STATE_KEY, condition=not_exists("PK")),
        table=COMMIT_COLLECT_SESSIONS,
        by="user",
        trigger="GET /auth/login, GET /strava/connect",
        frequency="Per login or link",
    )
    async def begin(self, pending: PendingState) -> None:
        item: Item = _state_key(pending.state) | {
            "purpose": pending.purpose,
            "boundTo": pending.bound_to,
            "expiresAtUtc": pending.expires_at,
            "returnTo": pending.return_to,
        }
        if pending.encrypted_secrets is not None:
            item["sealed"] = pending.encrypted_secrets
        await self.store.put(COMMIT_COLLECT_SESSIONS, item, condition=not_exists("PK"))

    @access(
        "Use state once",
        DeleteItem(
            key=_STATE_KEY,
            condition=(F("purpose") == param("purpose"))
            & (F("boundTo") == param("boundTo"))
            & (F("expiresAtUtc") > param("now")),
        ),
        table=COMMIT_COLLECT_SESSIONS,
        by="user",
        trigger="GET /auth/callback, GET /strava/callback",
        frequency="Per login or link",
    )
    async def use(self, state: str, purpose: str, bound_to: str, now: int) -> PendingState | None:
        """Delete and return a state; None if it is missing, expired or of another browser."""
        is_valid = (
            (F("purpose") == purpose) & (F("boundTo") == bound_to) & (F("expiresAtUtc") > now)
        )
        try:
            item = await self.store.delete(
                COMMIT_COLLECT_SESSIONS, _state_key(state), condition=is_valid, returns="ALL_OLD"
            )
        except ConditionFailed:
            return None
        if item is None:
            return None
        return PendingState(
            state, purpose, bound_to, item["expiresAtUtc"], item["returnTo"], item.get("sealed")
        )


def _unexpired(items: Sequence[Mapping[str, Any]], now: int) -> list[BrowserSession]:
    return [
        _session(item["PK"].removeprefix(SESSION_PREFIX), item)
        for item in items
        if item["expiresAtUtc"] > now
    ]


def _session(session_hash: str, item: Mapping[str, Any]) -> BrowserSession:
    return BrowserSession(
        session_hash,
        item["userId"],
        item["createdAtUtc"],
        item["expiresAtUtc"],
        item.get("sealed"),
        item.get("sessionEpoch", ""),
        item.get("lastUsedAt"),
    )
