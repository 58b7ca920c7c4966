"""Items `STRAVA#CONNECTION` and `OWNER`: the links between users and athletes.

An athlete has one owner, and a user one athlete.
"""

from tally.collect.model.records import StravaConnection
from tally.collect.repository.connection_items import connection_item, owner_item, read_connection
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
from tally.store.access import (
    ConditionCheck,
    DeleteItem,
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Check, Delete, Put, Write
from tally.store.errors import ConditionFailed
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.store import Store

_CONNECTION_KEY = item_key(user_pk(param("userId")), CONNECTION)
_OWNER_KEY = item_key(athlete_pk(param("athleteId")), OWNER)
_IS_FREE = not_exists("PK") | (F("userId") == param("userId"))
# The forms of `is_link` and `_is_unchanged`.
IS_LINK = (
    F("linkId") == param("linkId"),
    not_exists("linkId") & (F("athleteId") == param("athleteId")),
)
_IS_ABSENT_OR_LINK = tuple(not_exists("PK") | form for form in IS_LINK)
_IS_UNCHANGED = tuple(form & (F("version") == param("read")) for form in IS_LINK)


class Connections:
    """Access patterns of Strava connections."""

    __slots__ = ()
    store: Store

    @access(
        "Get Strava connection",
        GetItem(key=_CONNECTION_KEY),
        table=COMMIT_COLLECT,
        by="both",
        trigger="GET /strava/status, every event",
        frequency="Per request",
    )
    async def connection(self, user_id: str) -> StravaConnection | None:
        item = await self.store.get(
            COMMIT_COLLECT, item_key(user_pk(user_id), CONNECTION), consistent=True
        )
        return None if item is None else read_connection(item)

    @access(
        "Get owner of athlete",
        GetItem(key=_OWNER_KEY, project=("userId",)),
        table=COMMIT_COLLECT,
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
        Query(
            where=F("GSI1PK") == athlete_pk(param("athleteId")),
            index="GSI1",
            project=("userId",),
            limit=10,
        ),
        table=COMMIT_COLLECT,
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
        TransactWriteItems(
            PutItem(key=_OWNER_KEY, condition=_IS_FREE),
            PutItem(key=_CONNECTION_KEY, condition=(not_exists("PK"), *_IS_UNCHANGED)),
            ConditionCheck(key=item_key(user_pk(param("userId")), PROFILE), condition=exists("PK")),
            DeleteItem(key=_OWNER_KEY, condition=_IS_FREE).optional(),
        ),
        table=COMMIT_COLLECT,
        by="user",
        trigger="GET /strava/callback",
        frequency="Rare",
    )
    async def link(self, connection: StravaConnection, former: StravaConnection | None) -> bool:
        """Link an athlete. Return False if another user owns it or `former` is outdated."""
        is_own = F("userId") == connection.user_id
        writes: list[Write] = [
            Put(COMMIT_COLLECT, owner_item(connection), condition=not_exists("PK") | is_own),
            Put(COMMIT_COLLECT, connection_item(connection), condition=_is_unchanged(former)),
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
        TransactWriteItems(
            DeleteItem(key=_OWNER_KEY, condition=_IS_FREE),
            DeleteItem(key=_CONNECTION_KEY, condition=_IS_ABSENT_OR_LINK),
        ),
        table=COMMIT_COLLECT,
        by="both",
        trigger="DELETE /strava/connection, DELETE /account, deauthorisation",
        frequency="Rare",
    )
    async def unlink(self, connection: StravaConnection) -> bool:
        """Delete a link and its ownership. Return False if either has changed since."""
        owner = item_key(athlete_pk(connection.athlete_id), OWNER)
        writes = (
            Delete(
                COMMIT_COLLECT,
                owner,
                condition=not_exists("PK") | (F("userId") == connection.user_id),
            ),
            Delete(
                COMMIT_COLLECT,
                item_key(user_pk(connection.user_id), CONNECTION),
                condition=not_exists("PK") | is_link(connection),
            ),
        )
        return await transact_if_met(self.store, writes)

    @access(
        "Delete connection without its owner",
        DeleteItem(key=_CONNECTION_KEY, condition=_IS_ABSENT_OR_LINK),
        table=COMMIT_COLLECT,
        by="both",
        trigger="DELETE /strava/connection if another user owns the athlete",
        frequency="Never, unless data is damaged",
    )
    async def delete_connection(self, connection: StravaConnection) -> None:
        try:
            await self.store.delete(
                COMMIT_COLLECT,
                item_key(user_pk(connection.user_id), CONNECTION),
                condition=not_exists("PK") | is_link(connection),
            )
        except ConditionFailed:
            return  # the user has linked again in the meantime

    @access(
        "Keep refreshed tokens",
        UpdateItem(key=_CONNECTION_KEY, condition=_IS_UNCHANGED),
        table=COMMIT_COLLECT,
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
                F("needsRelink").remove(),
                F("refreshUntil").remove(),
                condition=_is_unchanged(connection),
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Claim token refresh",
        UpdateItem(
            key=_CONNECTION_KEY,
            condition=tuple(
                form & (not_exists("refreshUntil") | (F("refreshUntil") <= param("now")))
                for form in _IS_UNCHANGED
            ),
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="An event whose token is about to expire",
        frequency="Every 6 hours per active athlete",
    )
    async def claim_refresh(self, connection: StravaConnection, now: int, until: int) -> bool:
        """Claim the refresh of the tokens, so that a rejection cannot be due to another one."""
        is_free = not_exists("refreshUntil") | (F("refreshUntil") <= now)
        try:
            await self.store.update(
                COMMIT_COLLECT,
                item_key(user_pk(connection.user_id), CONNECTION),
                F("refreshUntil").set(until),
                condition=_is_unchanged(connection) & is_free,
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Mark connection for relinking",
        UpdateItem(
            key=_CONNECTION_KEY,
            condition=tuple(form & not_exists("needsRelink") for form in _IS_UNCHANGED),
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="A refresh token that Strava rejects",
        frequency="Once per revoked link",
    )
    async def require_relink(self, connection: StravaConnection) -> bool:
        """Mark a link whose tokens are revoked. Return False if it has changed or is marked."""
        try:
            await self.store.update(
                COMMIT_COLLECT,
                item_key(user_pk(connection.user_id), CONNECTION),
                F("needsRelink").set(True),
                F("refreshUntil").remove(),
                condition=_is_unchanged(connection) & not_exists("needsRelink"),
            )
        except ConditionFailed:
            return False
        return True


def is_link(connection: StravaConnection) -> Condition:
    """The stored connection is this link. Links of earlier versions have no id."""
    if connection.link_id:
        return F("linkId") == connection.link_id
    return not_exists("linkId") & (F("athleteId") == connection.athlete_id)


def _is_unchanged(former: StravaConnection | None) -> Condition:
    if former is None:
        return not_exists("PK")
    return is_link(former) & (F("version") == former.version)
