"""The table `tally-console-sessions`: who is signed in to the console, by hash of the cookie."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tally.store.access import DeleteItem, GetItem, PutItem, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

CONSOLE_SESSIONS = Table(
    "tally-console-sessions",
    partition=S("sessionHash"),
    ttl="expiresAt",
    attributes=(
        Attribute("sessionHash", "S", required=True, about="SHA-256 of the cookie, hexadecimal"),
        Attribute("operatorName", "S", required=True, about="who signed in"),
        Attribute(
            "operatorTokenId",
            "S",
            required=True,
            about="tells the account from a later one with the same name",
        ),
        Attribute("endsAt", "N", required=True, about="absolute end of the session, epoch s"),
        Attribute("expiresAt", "N", required=True, about="end without further use, epoch s; TTL"),
    ),
)


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as stored; times are in epoch seconds."""

    session_hash: str
    operator_name: str
    operator_token_id: str
    ends_at: int
    expires_at: int


_KEY = {"sessionHash": param("sessionHash")}


@dataclass(frozen=True, slots=True)
class ConsoleSessionRepository:
    """Console sessions by the hash of their cookie."""

    store: Store
    tables: ClassVar = (CONSOLE_SESSIONS,)

    @access(
        "Create console session",
        PutItem(key=_KEY, condition=not_exists("sessionHash")),
        table=CONSOLE_SESSIONS,
        by="user",
        trigger="POST /console/login",
        frequency="Rare",
    )
    async def create(self, session: StoredSession) -> None:
        await self.store.put(
            CONSOLE_SESSIONS,
            {
                "sessionHash": session.session_hash,
                "operatorName": session.operator_name,
                "operatorTokenId": session.operator_token_id,
                "endsAt": session.ends_at,
                "expiresAt": session.expires_at,
            },
            condition=not_exists("sessionHash"),
        )

    @access(
        "Get console session",
        GetItem(key=_KEY),
        table=CONSOLE_SESSIONS,
        by="user",
        trigger="Pages of the console",
        frequency="Per page, and every 2 s while one is open",
    )
    async def get(self, session_hash: str) -> StoredSession | None:
        item = await self.store.get(
            CONSOLE_SESSIONS, {"sessionHash": session_hash}, consistent=True
        )
        return None if item is None else _session(item)

    @access(
        "Extend console session",
        UpdateItem(key=_KEY, condition=F("expiresAt") > param("now")),
        table=CONSOLE_SESSIONS,
        by="user",
        trigger="Use of the console",
        frequency="At most ten times per idle time-out",
    )
    async def extend(self, session_hash: str, expires_at: int, now: int) -> None:
        """Move the end of a session; one that has ended meanwhile stays ended."""
        try:
            await self.store.update(
                CONSOLE_SESSIONS,
                {"sessionHash": session_hash},
                F("expiresAt").set(expires_at),
                condition=F("expiresAt") > now,
            )
        except ConditionFailed:
            return

    @access(
        "Delete console session",
        DeleteItem(key=_KEY),
        table=CONSOLE_SESSIONS,
        by="user",
        trigger="Sign-out",
        frequency="Rare",
    )
    async def delete(self, session_hash: str) -> None:
        await self.store.delete(CONSOLE_SESSIONS, {"sessionHash": session_hash})


def _session(item: Mapping[str, Any]) -> StoredSession:
    return StoredSession(
        session_hash=item["sessionHash"],
        operator_name=item["operatorName"],
        operator_token_id=item["operatorTokenId"],
        ends_at=int(item["endsAt"]),
        expires_at=int(item["expiresAt"]),
    )
