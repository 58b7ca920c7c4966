"""Items `STRAVA#CONNECTION` and `OWNER`: who has linked which athlete.

An athlete has one owner, a person one athlete.
"""

from collections.abc import Mapping
from typing import Any

from tally.collect.model import Connection
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    CONNECTION,
    OWNER,
    PROFILE,
    at,
    athlete,
    refuse_conflict,
    user,
)
from tally.store.access import DeleteItem, GetItem, Query, TransactWriteItems, UpdateItem, access
from tally.store.api import Check, Delete, Put, Write
from tally.store.errors import ConditionFailed, TransactionCancelled
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item


class Connections:
    """Links to Strava."""

    __slots__ = ()
    store: Store

    @access(
        "Get Strava connection",
        GetItem,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=STRAVA#CONNECTION",
        by="both",
        trigger="GET /strava/status, every event",
        frequency="Per request",
    )
    async def connection(self, user_id: str) -> Connection | None:
        item = await self.store.get(COMMIT_COLLECT, at(user(user_id), CONNECTION), consistent=True)
        return None if item is None else _connection(item)

    @access(
        "Get owner of athlete",
        GetItem,
        table=COMMIT_COLLECT,
        key="PK=STRAVA#ATHLETE#{athleteId}, SK=OWNER",
        by="system",
        trigger="Every event, GET /strava/callback",
        frequency="Per event",
    )
    async def owner(self, athlete_id: int) -> str | None:
        """The owner as of now; an index may lag behind a link that was just made."""
        item = await self.store.get(
            COMMIT_COLLECT, at(athlete(athlete_id), OWNER), project=("userId",), consistent=True
        )
        return None if item is None else str(item["userId"])

    @access(
        "Resolve athlete to users",
        Query,
        table=COMMIT_COLLECT,
        index="GSI1",
        key="GSI1PK=STRAVA#ATHLETE#{athleteId}",
        by="system",
        trigger="Deauthorisation by webhook",
        frequency="Rare",
        bound=10,
    )
    async def users_of(self, athlete_id: int) -> set[str]:
        """All that are known to be linked to the athlete, also one whose OWNER is missing."""
        there = F("GSI1PK") == athlete(athlete_id)
        page = await self.store.query(
            COMMIT_COLLECT, there, index="GSI1", project=("userId",), limit=10
        )
        return {str(item["userId"]) for item in page.items}

    @access(
        "Link athlete",
        TransactWriteItems,
        table=COMMIT_COLLECT,
        key="OWNER absent or mine; STRAVA#CONNECTION as it was read; PROFILE exists; the former OWNER deleted",
        by="user",
        trigger="GET /strava/callback",
        frequency="Rare",
    )
    async def link(self, connection: Connection, former: Connection | None) -> bool:
        """Whether all of it was done; False where the athlete is another's, or something moved since `former` was read."""
        mine = F("userId") == connection.user_id
        writes: list[Write] = [
            Put(COMMIT_COLLECT, _owner_item(connection), condition=not_exists("PK") | mine),
            Put(COMMIT_COLLECT, _connection_item(connection), condition=_as_read(former)),
            Check(COMMIT_COLLECT, at(user(connection.user_id), PROFILE), exists("PK")),
        ]
        if former is not None and former.athlete_id != connection.athlete_id:
            writes.append(
                Delete(
                    COMMIT_COLLECT,
                    at(athlete(former.athlete_id), OWNER),
                    condition=not_exists("PK") | mine,
                )
            )
        try:
            await self.store.transact(writes)
        except TransactionCancelled as cancelled:
            refuse_conflict(cancelled)
            return False
        return True

    @access(
        "Unlink athlete",
        TransactWriteItems,
        table=COMMIT_COLLECT,
        key="OWNER if absent or mine and STRAVA#CONNECTION if of this athlete, deleted together",
        by="both",
        trigger="DELETE /strava/connection, DELETE /account, deauthorisation",
        frequency="Rare",
    )
    async def unlink(self, user_id: str, athlete_id: int) -> bool:
        """Whether the connection is gone and the athlete free; False where the athlete has another owner by now."""
        is_this = not_exists("PK") | (F("athleteId") == athlete_id)
        writes = (
            Delete(
                COMMIT_COLLECT,
                at(athlete(athlete_id), OWNER),
                condition=not_exists("PK") | (F("userId") == user_id),
            ),
            Delete(COMMIT_COLLECT, at(user(user_id), CONNECTION), condition=is_this),
        )
        try:
            await self.store.transact(writes)
        except TransactionCancelled as cancelled:
            refuse_conflict(cancelled)
            return False
        return True

    @access(
        "Delete connection without its owner",
        DeleteItem.conditional,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=STRAVA#CONNECTION with this athleteId",
        by="both",
        trigger="DELETE /strava/connection where another owns the athlete",
        frequency="Never, unless data was damaged",
    )
    async def delete_connection(self, user_id: str, athlete_id: int) -> None:
        try:
            await self.store.delete(
                COMMIT_COLLECT,
                at(user(user_id), CONNECTION),
                condition=not_exists("PK") | (F("athleteId") == athlete_id),
            )
        except ConditionFailed:
            return  # another athlete has been linked meanwhile: that connection is none of this call's business

    @access(
        "Keep refreshed tokens",
        UpdateItem.conditional,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=STRAVA#CONNECTION with the version and athlete that were read",
        by="system",
        trigger="An event whose token is about to expire",
        frequency="Every 6 hours per active athlete",
    )
    async def keep_tokens(self, connection: Connection, sealed: str, expires_at: int) -> bool:
        """Whether these are now the newest; False where somebody else was first, or the link is gone."""
        try:
            await self.store.update(
                COMMIT_COLLECT,
                at(user(connection.user_id), CONNECTION),
                F("sealedTokens").set(sealed),
                F("tokensExpireAt").set(expires_at),
                F("version").set(connection.version + 1),
                condition=(F("version") == connection.version)
                & (F("athleteId") == connection.athlete_id),
            )
        except ConditionFailed:
            return False
        return True


def _as_read(former: Connection | None) -> Condition:
    if former is None:
        return not_exists("PK")
    return (F("athleteId") == former.athlete_id) & (F("version") == former.version)


def _owner_item(connection: Connection) -> Item:
    return at(athlete(connection.athlete_id), OWNER) | {
        "GSI1PK": athlete(connection.athlete_id),
        "userId": connection.user_id,
        "athleteId": connection.athlete_id,
        "createdAtUtc": connection.connected_at,
    }


def _connection_item(connection: Connection) -> Item:
    return at(user(connection.user_id), CONNECTION) | {
        "GSI1PK": athlete(connection.athlete_id),
        "userId": connection.user_id,
        "athleteId": connection.athlete_id,
        "sealedTokens": connection.sealed,
        "tokensExpireAt": connection.expires_at,
        "scope": connection.scope,
        "createdAtUtc": connection.connected_at,
        "version": connection.version,
    }


def _connection(item: Mapping[str, Any]) -> Connection:
    return Connection(
        user_id=item["userId"],
        athlete_id=item["athleteId"],
        sealed=item["sealedTokens"],
        expires_at=item["tokensExpireAt"],
        scope=item["scope"],
        connected_at=item["createdAtUtc"],
        version=item["version"],
    )
