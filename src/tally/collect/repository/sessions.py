"""The table `CommitCollectSessions`: sessions, and the OAuth states of sign-ins in progress.

A session is keyed by the SHA-256 of its id, which only the browser stores. Reads ignore expired
items, whether or not TTL has deleted them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tally.collect.model.records import BrowserSession, PendingState
from tally.store.access import BatchWriteItem, DeleteItem, GetItem, PutItem, Query, access
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
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
DELETE_BATCH_SIZE = 500


def _session_key(session_hash: str) -> Item:
    return {"PK": f"SESSION#{session_hash}", "SK": META}


def _state_key(state: str) -> Item:
    return {"PK": f"STATE#{state}", "SK": META}


@dataclass(frozen=True, slots=True)
class BrowserSessionRepository:
    """Sessions by hash and by user, and OAuth states."""

    store: Store
    tables: ClassVar = (COMMIT_COLLECT_SESSIONS,)

    @access(
        "Create session",
        PutItem.conditional,
        table=COMMIT_COLLECT_SESSIONS,
        key="PK=SESSION#{hash}, SK=META with attribute_not_exists(PK)",
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
        await self.store.put(COMMIT_COLLECT_SESSIONS, item, condition=not_exists("PK"))

    @access(
        "Resolve session",
        GetItem,
        table=COMMIT_COLLECT_SESSIONS,
        key="PK=SESSION#{hash}, SK=META",
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
        "Delete session",
        DeleteItem,
        table=COMMIT_COLLECT_SESSIONS,
        key="PK=SESSION#{hash}, SK=META",
        by="user",
        trigger="POST /auth/logout, GET /auth/callback",
        frequency="Per logout",
    )
    async def delete(self, session_hash: str) -> None:
        await self.store.delete(COMMIT_COLLECT_SESSIONS, _session_key(session_hash))

    @access(
        "Delete a user's sessions",
        Query.on("UserIndex") + BatchWriteItem,
        table=COMMIT_COLLECT_SESSIONS,
        key="userId = :userId, keys only; deletes in batches of 25",
        by="user",
        trigger="DELETE /account",
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
        PutItem.conditional,
        table=COMMIT_COLLECT_SESSIONS,
        key="PK=STATE#{state}, SK=META with attribute_not_exists(PK)",
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
        DeleteItem.conditional,
        table=COMMIT_COLLECT_SESSIONS,
        key="PK=STATE#{state}, SK=META with purpose, boundTo, expiresAtUtc > :now",
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


def _session(session_hash: str, item: Mapping[str, Any]) -> BrowserSession:
    return BrowserSession(
        session_hash, item["userId"], item["createdAtUtc"], item["expiresAtUtc"], item.get("sealed")
    )
