"""The table `cricket-match-follows`: which users follow which match, for which team."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from tally.cricket.model.events import AlertChoice
from tally.cricket.model.records import Follow, has_expired
from tally.cricket.repository.items import ItemMapper, delete_match_items, match_deletion
from tally.cricket.repository.team_follows import (
    CRICKET_TEAM_FOLLOWS,
    TeamFollowPatterns,
    team_follow_key,
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
from tally.store.api import Check, Put
from tally.store.batching import chunks
from tally.store.errors import ConditionFailed, StoreUnavailable, TransactionCancelled
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
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
        Attribute("viaTeamId", "S", about="the followed team that created the follow"),
        Attribute(
            "declinedAt",
            "N",
            about="epoch milliseconds; a follower of one of the teams unfollowed this match",
        ),
        Attribute("alerts", "S", about="all (also if absent), milestones or result"),
        Attribute("createdAt", "N", required=True, about="epoch milliseconds"),
        Attribute(
            "expiresAt", "N", required=True, about="epoch seconds, 48 hours after the match starts"
        ),
    ),
)
_MAPPER: Final = ItemMapper(Follow)
_DECLINED: Final = "declinedAt"
MAX_ADDED: Final = 50
# Each follow is a check and a put; every DynamoDB service accepts ten writes in a transaction.
_PER_TRANSACTION: Final = 5
_MAX_ATTEMPTS: Final = 5
MAX_FOLLOWERS: Final = 2_000_000
MAX_PER_USER: Final = 1_000
PAGE: Final = 500


def _key(match_id: str, user_id: str) -> Item:
    return {"matchId": match_id, "userId": user_id}


def _is_current(now: int) -> Condition:
    return (F("expiresAt") > now) & not_exists(_DECLINED)


def _current(item: Item | None, now: int) -> Follow | None:
    if item is None or has_expired(item["expiresAt"], now) or _DECLINED in item:
        return None
    return _MAPPER.to_record(item)


def _team_writes(follow: Follow) -> tuple[Check, Put]:
    team_id = follow.via_team_id or ""
    is_absent = not_exists("matchId") | (F("expiresAt") <= follow.created_at // 1000)
    return (
        Check(CRICKET_TEAM_FOLLOWS, team_follow_key(team_id, follow.user_id), exists("teamId")),
        Put(CRICKET_MATCH_FOLLOWS, _MAPPER.to_item(follow), condition=is_absent),
    )


_KEY: Final = _key(param("matchId"), param("userId"))
_OF_MATCH: Final = F("matchId") == param("matchId")


@dataclass(frozen=True, slots=True)
class FollowRepository(TeamFollowPatterns):
    """Follows by match and by user, without those expired at `now` seconds; follows of teams."""

    tables: ClassVar = (CRICKET_MATCH_FOLLOWS, CRICKET_TEAM_FOLLOWS)

    @access(
        "Check if user follows match",
        GetItem(key=_KEY),
        table=CRICKET_MATCH_FOLLOWS,
        by="user",
        trigger="GET /user/follow/:matchId",
        frequency="Per request",
    )
    async def get(self, match_id: str, user_id: str, now: int) -> Follow | None:
        item = await self.store.get(CRICKET_MATCH_FOLLOWS, _key(match_id, user_id), consistent=True)
        return _current(item, now)

    @access(
        "Get all followers for match",
        Query(where=_OF_MATCH, filter=_is_current(param("now"))),
        table=CRICKET_MATCH_FOLLOWS,
        by="system",
        trigger="TossDetectionJob, LiveActivityPushJob",
        frequency="Every 2.5s per live match",
        bound=MAX_FOLLOWERS,
    )
    async def list_by_match(self, match_id: str, now: int) -> AsyncGenerator[Follow, None]:
        """Yield all follows of a match by user id; reads page by page."""
        where, alive = F("matchId") == match_id, _is_current(now)
        async for item in self.store.items(
            CRICKET_MATCH_FOLLOWS, where, filter=alive, page=PAGE, consistent=True
        ):
            yield _MAPPER.to_record(item)

    @access(
        "Follow a match",
        UpdateItem(key=_KEY),
        table=CRICKET_MATCH_FOLLOWS,
        by="user",
        trigger="POST /user/follow/:matchId",
        frequency="User action",
    )
    async def follow(self, follow: Follow, *, keep_alerts: bool = False) -> Follow:
        """Upsert a follow; an existing one changes its team and keeps its creation time.

        With `keep_alerts`, an existing one keeps its alert choice as well.
        """
        alerts = F("alerts")
        actions = (
            alerts.set(
                alerts.if_not_exists(follow.alerts.value) if keep_alerts else follow.alerts.value
            ),
            F("teamId").set(follow.team_id),
            F("expiresAt").set(follow.expires_at),
            F("createdAt").set(F("createdAt").if_not_exists(follow.created_at)),
            F("viaTeamId").remove(),
            F(_DECLINED).remove(),
        )
        key = _key(follow.match_id, follow.user_id)
        return _MAPPER.to_record(
            await self.store.update(CRICKET_MATCH_FOLLOWS, key, *actions, returns="ALL_NEW") or {}
        )

    @access(
        "Unfollow a match",
        DeleteItem(key=_KEY),
        table=CRICKET_MATCH_FOLLOWS,
        by="user",
        trigger="DELETE /user/follow/:matchId",
        frequency="User action",
    )
    async def unfollow(self, match_id: str, user_id: str, now: int) -> Follow | None:
        """Delete a follow; return it unless it had expired."""
        item = await self.store.delete(
            CRICKET_MATCH_FOLLOWS, _key(match_id, user_id), returns="ALL_OLD"
        )
        return _current(item, now)

    @access(
        "Decline a match of a followed team",
        UpdateItem(key=_KEY).with_note("upsert"),
        table=CRICKET_MATCH_FOLLOWS,
        by="user",
        trigger="DELETE /user/follow/:matchId",
        frequency="User action",
    )
    async def decline(self, follow: Follow) -> None:
        """Unfollow a match so that following its teams does not follow it again."""
        await self.store.update(
            CRICKET_MATCH_FOLLOWS,
            _key(follow.match_id, follow.user_id),
            F(_DECLINED).set(follow.created_at),
            F("expiresAt").set(follow.expires_at),
            F("teamId").set(F("teamId").if_not_exists(follow.team_id)),
            F("createdAt").set(F("createdAt").if_not_exists(follow.created_at)),
            F("viaTeamId").remove(),
        )

    @access(
        "Follow a match for followers of a team",
        TransactWriteItems(
            ConditionCheck(
                table=CRICKET_TEAM_FOLLOWS,
                key=team_follow_key(param("teamId"), param("userId")),
                condition=exists("teamId"),
                requests=_PER_TRANSACTION,
            ),
            PutItem(
                key=_KEY,
                condition=not_exists("matchId") | (F("expiresAt") <= param("now")),
                requests=_PER_TRANSACTION,
            ),
            requests=_MAX_ATTEMPTS * MAX_ADDED // _PER_TRANSACTION,
        ),
        table=CRICKET_MATCH_FOLLOWS,
        tables=(CRICKET_TEAM_FOLLOWS,),
        by="both",
        trigger="TeamFollowJob, PUT /user/follow/team/:teamId",
        frequency="Per 5 followers of a new fixture's team",
        bound=2 * MAX_ADDED,
    )
    async def add_for_team(self, follows: Sequence[Follow]) -> list[Follow]:
        """Add follows of users who still follow the team and have none; return those added.

        A user who declined the match has an item, and so gets no follow.
        """
        added = await asyncio.gather(
            *(self._add_together(chunk) for chunk in chunks(follows, _PER_TRANSACTION))
        )
        return [follow for part in added for follow in part]

    async def _add_together(self, follows: Sequence[Follow]) -> Sequence[Follow]:
        """Add those follows whose conditions hold, in one transaction."""
        for _ in range(_MAX_ATTEMPTS):
            if not follows:
                break
            writes = [write for follow in follows for write in _team_writes(follow)]
            try:
                await self.store.transact(writes)
            except TransactionCancelled as cancelled:
                failed = {
                    index // 2
                    for index, reason in enumerate(cancelled.reasons)
                    if reason.condition_failed
                }
                follows = [follow for index, follow in enumerate(follows) if index not in failed]
            else:
                return follows
        if follows:
            raise StoreUnavailable("Follows changed during every attempt to add a team's match")
        return ()

    @access(
        "Unfollow a match with its team",
        DeleteItem(key=_KEY, condition=F("viaTeamId") == param("team")),
        table=CRICKET_MATCH_FOLLOWS,
        by="user",
        trigger="DELETE /user/follow/team/:teamId",
        frequency="Per match of the team",
    )
    async def remove_for_team(self, follow: Follow) -> bool:
        """Delete a follow that its team created; return False if it is the user's own by now."""
        try:
            await self.store.delete(
                CRICKET_MATCH_FOLLOWS,
                _key(follow.match_id, follow.user_id),
                condition=F("viaTeamId") == follow.via_team_id,
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Assign a follow to the other team",
        UpdateItem(key=_KEY, condition=F("viaTeamId") == param("team")),
        table=CRICKET_MATCH_FOLLOWS,
        by="user",
        trigger="DELETE /user/follow/team/:teamId",
        frequency="Per match between two followed teams",
    )
    async def assign_to_team(self, follow: Follow, team_id: str) -> bool:
        """Keep a follow because of the other team; return False if it has changed."""
        try:
            await self.store.update(
                CRICKET_MATCH_FOLLOWS,
                _key(follow.match_id, follow.user_id),
                F("viaTeamId").set(team_id),
                condition=F("viaTeamId") == follow.via_team_id,
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Update follow team",
        UpdateItem(key=_KEY, condition=exists("matchId") & _is_current(param("now"))),
        table=CRICKET_MATCH_FOLLOWS,
        by="user",
        trigger="PATCH /user/follow/:matchId",
        frequency="User action",
    )
    async def change(
        self,
        match_id: str,
        user_id: str,
        now: int,
        *,
        team_id: str | None = None,
        alerts: AlertChoice | None = None,
    ) -> Follow | None:
        """Change the team, the alert choice or both; return None without such a follow."""
        changes = {"team_id": team_id, "alerts": alerts}
        actions = _MAPPER.update_actions(
            {name: value for name, value in changes.items() if value is not None}
        )
        follows = exists("matchId") & _is_current(now)
        try:
            item = await self.store.update(
                CRICKET_MATCH_FOLLOWS,
                _key(match_id, user_id),
                *actions,
                condition=follows,
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        return _MAPPER.to_record(item or {})

    @access(
        "Remove all follows for match",
        match_deletion(CRICKET_MATCH_FOLLOWS, MAX_FOLLOWERS),
        table=CRICKET_MATCH_FOLLOWS,
        by="system",
        trigger="Match completion cleanup",
        frequency="Once per match end",
        bound=MAX_FOLLOWERS,
    )
    async def remove_all(self, match_id: str) -> int:
        """Delete all follows of a match, including expired ones; return their number."""
        return await delete_match_items(self.store, CRICKET_MATCH_FOLLOWS, match_id)

    @access(
        "Move follows of match",
        Query(
            where=_OF_MATCH,
            filter=(F("expiresAt") > param("now")) & (F("expiresAt") != param("expiresAt")),
        )
        + UpdateItem(key=_KEY, condition=exists("matchId"), requests=MAX_FOLLOWERS),
        table=CRICKET_MATCH_FOLLOWS,
        by="system",
        trigger="FixtureSyncJob",
        frequency="When a match is moved or postponed",
        bound=MAX_FOLLOWERS,
    )
    async def move(self, match_id: str, expires_at: int, now: int) -> int:
        """Set the expiry of all follows of a match; return how many it changed."""

        async def move(user_id: str) -> bool:
            action = F("expiresAt").set(expires_at)
            try:
                await self.store.update(
                    CRICKET_MATCH_FOLLOWS,
                    _key(match_id, user_id),
                    action,
                    condition=exists("matchId"),
                )
            except ConditionFailed:
                return False
            return True

        where, alive = F("matchId") == match_id, F("expiresAt") > now
        moved, start = 0, None
        while True:
            page = await self.store.query(
                CRICKET_MATCH_FOLLOWS,
                where,
                filter=alive & (F("expiresAt") != expires_at),
                limit=PAGE,
                start=start,
                consistent=True,
            )
            moved += sum(await asyncio.gather(*(move(item["userId"]) for item in page.items)))
            start = page.next
            if start is None:
                return moved

    @access(
        "Restore follow",
        PutItem(key=_KEY, condition=not_exists("matchId")),
        table=CRICKET_MATCH_FOLLOWS,
        by="system",
        trigger="POST /admin/matches/:id/restore-follows",
        frequency="Rare, admin-only",
    )
    async def restore(self, follow: Follow) -> bool:
        """Write a deleted follow again; return False if the user follows the match."""
        try:
            await self.store.put(
                CRICKET_MATCH_FOLLOWS, _MAPPER.to_item(follow), condition=not_exists("matchId")
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Get what a user follows",
        Query(where=F("userId") == param("user"), index=BY_USER, filter=_is_current(param("now"))),
        table=CRICKET_MATCH_FOLLOWS,
        by="user",
        trigger="GET /user/follows",
        frequency="Per request",
    )
    async def list_by_user(
        self, user_id: str, now: int, limit: int, start: Key | None = None
    ) -> tuple[list[Follow], Key | None]:
        """Return a page of a user's follows by match id, and the next start key."""
        alive = _is_current(now)
        page = await self.store.query(
            CRICKET_MATCH_FOLLOWS,
            F("userId") == user_id,
            index=BY_USER,
            filter=alive,
            limit=limit,
            start=start,
        )
        return [_MAPPER.to_record(item) for item in page.items], page.next

    @access(
        "Remove all follows of user",
        Query(where=F("userId") == param("user"), index=BY_USER)
        + DeleteItem(key=_KEY, requests=MAX_PER_USER),
        table=CRICKET_MATCH_FOLLOWS,
        by="user",
        trigger="DELETE /user",
        frequency="Rare",
        bound=2 * MAX_PER_USER,
    )
    async def remove_by_user(self, user_id: str) -> list[str]:
        """Delete a user's follows, including expired and declined ones; return the match IDs."""
        items = self.store.items(
            CRICKET_MATCH_FOLLOWS,
            F("userId") == user_id,
            index=BY_USER,
            bound=MAX_PER_USER,
            overflow="stop",
        )
        match_ids = [str(item["matchId"]) async for item in items]
        for match_id in match_ids:
            await self.store.delete(CRICKET_MATCH_FOLLOWS, _key(match_id, user_id))
        return match_ids
