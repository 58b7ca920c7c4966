"""The table `cricket-match-follows`: which users follow which match, for which team."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import ClassVar, Final

from tally.cricket.model.records import Follow, has_expired
from tally.cricket.repository.items import ItemMapper, delete_match_items
from tally.store.access import BatchWriteItem, DeleteItem, GetItem, Query, UpdateItem, access
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

BY_USER: Final = "userId-index"

CRICKET_MATCH_FOLLOWS = Table(
    "cricket-match-follows",
    partition=S("matchId"),
    sort=S("userId"),
    indexes=(GlobalIndex(BY_USER, partition=S("userId"), sort=S("matchId")),),
    ttl="expiresAt",
    attributes=(
        Attribute("matchId", "S", required=True, about="Fixture match ID"),
        Attribute("userId", "S", required=True, about="Cognito user ID"),
        Attribute("teamId", "S", required=True, about='the followed team, or "neutral"'),
        Attribute("createdAt", "N", required=True, about="epoch milliseconds"),
        Attribute(
            "expiresAt", "N", required=True, about="epoch seconds, 48 hours after the match starts"
        ),
    ),
)
_MAPPER: Final = ItemMapper(Follow)
MAX_FOLLOWERS: Final = 2_000_000
PAGE: Final = 500


def _key(match_id: str, user_id: str) -> Item:
    return {"matchId": match_id, "userId": user_id}


@dataclass(frozen=True, slots=True)
class FollowRepository:
    """Follows by match and by user, without those expired at `now` seconds."""

    store: Store
    tables: ClassVar = (CRICKET_MATCH_FOLLOWS,)

    @access(
        "Check if user follows match",
        GetItem,
        table=CRICKET_MATCH_FOLLOWS,
        key="PK=matchId, SK=userId",
        by="user",
        trigger="GET /user/follow/:matchId",
        frequency="Per request",
    )
    async def get(self, match_id: str, user_id: str, now: int) -> Follow | None:
        item = await self.store.get(CRICKET_MATCH_FOLLOWS, _key(match_id, user_id), consistent=True)
        return (
            None if item is None or has_expired(item["expiresAt"], now) else _MAPPER.to_record(item)
        )

    @access(
        "Get all followers for match",
        Query,
        table=CRICKET_MATCH_FOLLOWS,
        key="PK=matchId (paginated)",
        by="system",
        trigger="TossDetectionJob, LiveActivityPushJob",
        frequency="Every 2.5s per live match",
        bound=MAX_FOLLOWERS,
    )
    async def list_by_match(self, match_id: str, now: int) -> AsyncGenerator[Follow, None]:
        """Yield all follows of a match by user id; reads page by page."""
        where, alive = F("matchId") == match_id, F("expiresAt") > now
        async for item in self.store.items(
            CRICKET_MATCH_FOLLOWS, where, filter=alive, page=PAGE, consistent=True
        ):
            yield _MAPPER.to_record(item)

    @access(
        "Follow a match",
        UpdateItem,
        table=CRICKET_MATCH_FOLLOWS,
        key="PK=matchId, SK=userId, SET teamId, expiresAt, createdAt = if_not_exists(...)",
        by="user",
        trigger="POST /user/follow/:matchId",
        frequency="User action",
    )
    async def follow(self, follow: Follow) -> Follow:
        """Upsert a follow; an existing one changes its team and keeps its creation time."""
        actions = (
            F("teamId").set(follow.team_id),
            F("expiresAt").set(follow.expires_at),
            F("createdAt").set(F("createdAt").if_not_exists(follow.created_at)),
        )
        key = _key(follow.match_id, follow.user_id)
        return _MAPPER.to_record(
            await self.store.update(CRICKET_MATCH_FOLLOWS, key, *actions, returns="ALL_NEW") or {}
        )

    @access(
        "Unfollow a match",
        DeleteItem,
        table=CRICKET_MATCH_FOLLOWS,
        key="PK=matchId, SK=userId with ReturnValues: ALL_OLD",
        by="user",
        trigger="DELETE /user/follow/:matchId",
        frequency="User action",
    )
    async def unfollow(self, match_id: str, user_id: str, now: int) -> Follow | None:
        """Delete a follow; return it unless it had expired."""
        item = await self.store.delete(
            CRICKET_MATCH_FOLLOWS, _key(match_id, user_id), returns="ALL_OLD"
        )
        return (
            None if item is None or has_expired(item["expiresAt"], now) else _MAPPER.to_record(item)
        )

    @access(
        "Update follow team",
        UpdateItem.conditional,
        table=CRICKET_MATCH_FOLLOWS,
        key="PK=matchId, SK=userId with ConditionExpression: attribute_exists(matchId)",
        by="user",
        trigger="PATCH /user/follow/:matchId",
        frequency="User action",
    )
    async def change_team(self, match_id: str, user_id: str, team_id: str, now: int) -> bool:
        """Change the team; return False if the user does not follow the match."""
        follows = exists("matchId") & (F("expiresAt") > now)
        key = _key(match_id, user_id)
        try:
            await self.store.update(
                CRICKET_MATCH_FOLLOWS, key, F("teamId").set(team_id), condition=follows
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Remove all follows for match",
        Query + BatchWriteItem,
        table=CRICKET_MATCH_FOLLOWS,
        key="Query PK=matchId, then batch delete all",
        by="system",
        trigger="Match completion cleanup",
        frequency="Once per match end",
        bound=MAX_FOLLOWERS,
    )
    async def remove_all(self, match_id: str) -> int:
        """Delete all follows of a match, including expired ones; return their number."""
        return await delete_match_items(self.store, CRICKET_MATCH_FOLLOWS, match_id)

    @access(
        "Get what a user follows",
        Query,
        table=CRICKET_MATCH_FOLLOWS,
        index=BY_USER,
        key="userId-index, userId = :user with filter expiresAt > :now",
        by="user",
        trigger="GET /user/follows",
        frequency="Per request",
    )
    async def list_by_user(
        self, user_id: str, now: int, limit: int, start: Key | None = None
    ) -> tuple[list[Follow], Key | None]:
        """Return a page of a user's follows by match id, and the next start key."""
        alive = F("expiresAt") > now
        page = await self.store.query(
            CRICKET_MATCH_FOLLOWS,
            F("userId") == user_id,
            index=BY_USER,
            filter=alive,
            limit=limit,
            start=start,
        )
        return [_MAPPER.to_record(item) for item in page.items], page.next
