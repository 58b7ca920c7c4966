"""The table `CommitCollectSessions`: who is signed in where, and sign-ins and links that were begun.

A session is found by the SHA-256 of its id, which only the browser has. What has expired counts as
gone at every read, whether or not it has been swept away.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tally.collect.model import PendingState, Session
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
        Attribute("userId", "S", about="of a session"),
        Attribute("createdAtUtc", "S", about="of a session, RFC 3339"),
        Attribute(
            "expiresAtUtc", "N", required=True, about="epoch seconds; also checked at every read"
        ),
        Attribute("purpose", "S", about="of a state: login or strava"),
        Attribute(
            "boundTo", "S", about="of a state: a hash of what only the browser that began it has"
        ),
        Attribute("returnTo", "S", about="of a state: the path to go to afterwards"),
        Attribute(
            "sealed",
            "S",
            about="encrypted: of a state, nonce and code verifier; of a session, the issuer's refresh token",
        ),
    ),
)

META = "META"
MAX_SESSIONS = 500


def _session_key(session_hash: str) -> Item:
    return {"PK": f"SESSION#{session_hash}", "SK": META}


def _state_key(state: str) -> Item:
    return {"PK": f"STATE#{state}", "SK": META}


@dataclass(frozen=True, slots=True)
class SessionRepository:
    """Sessions by hash and by person, and states."""

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
    async def create(self, session: Session) -> None:
        item: Item = _session_key(session.session_hash) | {
            "userId": session.user_id,
            "createdAtUtc": session.created_at,
            "expiresAtUtc": session.expires_at,
        }
        if session.sealed is not None:
            item["sealed"] = session.sealed
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
    async def find(self, session_hash: str, now: int) -> Session | None:
        """The session, if its time is not over."""
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
        key="userId = :userId, keys alone; deletes in batches of 25",
        by="user",
        trigger="DELETE /account",
        frequency="Rare",
        bound=MAX_SESSIONS,
    )
    async def delete_some_of(self, user_id: str) -> int:
        """Delete up to 500 sessions of a person, and say how many there were."""
        mine = F("userId") == user_id
        keys = [
            COMMIT_COLLECT_SESSIONS.key_of(item)
            async for item in self.store.items(
                COMMIT_COLLECT_SESSIONS, mine, index="UserIndex", overflow="stop"
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
        if pending.sealed is not None:
            item["sealed"] = pending.sealed
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
        """The state, which is gone with this; None where it is not there, too old, or another browser's."""
        is_mine = (F("purpose") == purpose) & (F("boundTo") == bound_to) & (F("expiresAtUtc") > now)
        try:
            item = await self.store.delete(
                COMMIT_COLLECT_SESSIONS, _state_key(state), condition=is_mine, returns="ALL_OLD"
            )
        except ConditionFailed:
            return None
        if item is None:
            return None
        return PendingState(
            state, purpose, bound_to, item["expiresAtUtc"], item["returnTo"], item.get("sealed")
        )


def _session(session_hash: str, item: Mapping[str, Any]) -> Session:
    return Session(
        session_hash, item["userId"], item["createdAtUtc"], item["expiresAtUtc"], item.get("sealed")
    )
