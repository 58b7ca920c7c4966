"""Items `STRAVA#CONNECTION` and `OWNER`: the links between users and athletes.

An athlete has one owner, and a user one athlete.
"""

from collections.abc import Mapping
from typing import Any

from tally.collect.model.records import StravaConnection
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    CONNECTION,
    OWNER,
    PROFILE,
    athlete_pk,
    item_key,
    transact_if_met,
    user_pk,
)
from tally.store.access import DeleteItem, GetItem, Query, TransactWriteItems, UpdateItem, access
from tally.store.api import Check, Delete, Put, Write
from tally.store.errors import ConditionFailed
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item


class Connections:
    """Access patterns of Strava connections."""

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
    async def connection(self, user_id: str) -> StravaConnection | None:
        item = await self.store.get(
            COMMIT_COLLECT, item_key(user_pk(user_id), CONNECTION), consistent=True
        )
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
        """Return the user who linked an athlete. Strongly consistent, unlike the index."""
        item = await self.store.get(
            COMMIT_COLLECT,
            item_key(athlete_pk(athlete_id), OWNER),
            project=("userId",),
            consistent=True,
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
    async def linked_users(self, athlete_id: int) -> set[str]:
        """Return all users linked to an athlete, even if the OWNER item is missing."""
        is_linked = F("GSI1PK") == athlete_pk(athlete_id)
        page = await self.store.query(
            COMMIT_COLLECT, is_linked, index="GSI1", project=("userId",), limit=10
        )
        return {str(item["userId"]) for item in page.items}

    @access(
        "Link athlete",
        TransactWriteItems,
        table=COMMIT_COLLECT,
        key="OWNER absent or of this user; STRAVA#CONNECTION unchanged; PROFILE exists;"
        " deletes the former OWNER",
        by="user",
        trigger="GET /strava/callback",
        frequency="Rare",
    )
    async def link(self, connection: StravaConnection, former: StravaConnection | None) -> bool:
        """Link an athlete. Return False if another user owns it or `former` is outdated."""
        is_own = F("userId") == connection.user_id
        writes: list[Write] = [
            Put(COMMIT_COLLECT, _owner_item(connection), condition=not_exists("PK") | is_own),
            Put(COMMIT_COLLECT, _connection_item(connection), condition=_is_unchanged(former)),
            Check(COMMIT_COLLECT, item_key(user_pk(connection.user_id), PROFILE), exists("PK")),
        ]
        if former is not None and former.athlete_id != connection.athlete_id:
            writes.append(
                Delete(
                    COMMIT_COLLECT,
                    item_key(athlete_pk(former.athlete_id), OWNER),
                    condition=not_exists("PK") | is_own,
                )
            )
        return await transact_if_met(self.store, writes)

    @access(
        "Unlink athlete",
        TransactWriteItems,
        table=COMMIT_COLLECT,
        key="OWNER if absent or of this user, and STRAVA#CONNECTION if of this athlete",
        by="both",
        trigger="DELETE /strava/connection, DELETE /account, deauthorisation",
        frequency="Rare",
    )
    async def unlink(self, user_id: str, athlete_id: int) -> bool:
        """Delete connection and ownership. Return False if either belongs to someone else."""
        is_athlete = not_exists("PK") | (F("athleteId") == athlete_id)
        writes = (
            Delete(
                COMMIT_COLLECT,
                item_key(athlete_pk(athlete_id), OWNER),
                condition=not_exists("PK") | (F("userId") == user_id),
            ),
            Delete(COMMIT_COLLECT, item_key(user_pk(user_id), CONNECTION), condition=is_athlete),
        )
        return await transact_if_met(self.store, writes)

    @access(
        "Delete connection without its owner",
        DeleteItem.conditional,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=STRAVA#CONNECTION with this athleteId",
        by="both",
        trigger="DELETE /strava/connection if another user owns the athlete",
        frequency="Never, unless data is damaged",
    )
    async def delete_connection(self, user_id: str, athlete_id: int) -> None:
        try:
            await self.store.delete(
                COMMIT_COLLECT,
                item_key(user_pk(user_id), CONNECTION),
                condition=not_exists("PK") | (F("athleteId") == athlete_id),
            )
        except ConditionFailed:
            return  # the user has linked another athlete in the meantime

    @access(
        "Keep refreshed tokens",
        UpdateItem.conditional,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=STRAVA#CONNECTION with version = :read and athleteId = :read",
        by="system",
        trigger="An event whose token is about to expire",
        frequency="Every 6 hours per active athlete",
    )
    async def store_tokens(
        self, connection: StravaConnection, encrypted_tokens: str, expires_at: int
    ) -> bool:
        """Store refreshed tokens. Return False if the connection has changed or is deleted."""
        try:
            await self.store.update(
                COMMIT_COLLECT,
                item_key(user_pk(connection.user_id), CONNECTION),
                F("sealedTokens").set(encrypted_tokens),
                F("tokensExpireAt").set(expires_at),
                F("version").set(connection.version + 1),
                condition=(F("version") == connection.version)
                & (F("athleteId") == connection.athlete_id),
            )
        except ConditionFailed:
            return False
        return True


def _is_unchanged(former: StravaConnection | None) -> Condition:
    if former is None:
        return not_exists("PK")
    return (F("athleteId") == former.athlete_id) & (F("version") == former.version)


def _owner_item(connection: StravaConnection) -> Item:
    return item_key(athlete_pk(connection.athlete_id), OWNER) | {
        "GSI1PK": athlete_pk(connection.athlete_id),
        "userId": connection.user_id,
        "athleteId": connection.athlete_id,
        "createdAtUtc": connection.connected_at,
    }


def _connection_item(connection: StravaConnection) -> Item:
    return item_key(user_pk(connection.user_id), CONNECTION) | {
        "GSI1PK": athlete_pk(connection.athlete_id),
        "userId": connection.user_id,
        "athleteId": connection.athlete_id,
        "sealedTokens": connection.encrypted_tokens,
        "tokensExpireAt": connection.expires_at,
        "scope": connection.scope,
        "createdAtUtc": connection.connected_at,
        "version": connection.version,
    }


def _connection(item: Mapping[str, Any]) -> StravaConnection:
    return StravaConnection(
        user_id=item["userId"],
        athlete_id=item["athleteId"],
        encrypted_tokens=item["sealedTokens"],
        expires_at=item["tokensExpireAt"],
        scope=item["scope"],
        connected_at=item["createdAtUtc"],
        version=item["version"],
    )
