"""The table `cricket-deleted-follows`: follows of finished matches, for a day.

An operator can restore the follows of a match that was finished by mistake. A follow that its user
ended is not in the table.
"""

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from tally.cricket.model.records import Follow, has_expired
from tally.cricket.repository.items import ItemMapper, delete_match_items, match_deletion
from tally.store.access import BatchWriteItem, DeleteItem, Query, access, param
from tally.store.expressions import F
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store

BY_USER: Final = "userId-index"
KEPT_SECONDS: Final = 86_400

CRICKET_DELETED_FOLLOWS = Table(
    "cricket-deleted-follows",
    partition=S("matchId"),
    sort=S("userId"),
    indexes=(GlobalIndex(BY_USER, partition=S("userId"), sort=S("matchId")),),
    ttl="ttl",
    attributes=(
        Attribute("matchId", "S", required=True, about="Fixture match ID"),
        Attribute("userId", "S", required=True, about="Cognito user ID"),
        Attribute("follow", "M", required=True, about="the deleted item"),
        Attribute("ttl", "N", required=True, about="epoch seconds, a day after the deletion"),
    ),
)
_MAPPER: Final = ItemMapper(Follow)
MAX_FOLLOWERS: Final = 2_000_000
MAX_MATCHES: Final = 2_000
PAGE: Final = 500


_KEY: Final = {"matchId": param("matchId"), "userId": param("userId")}
_OF_MATCH: Final = F("matchId") == param("matchId")


@dataclass(frozen=True, slots=True)
class DeletedFollowRepository:
    """Deleted follows by match and by user. Times are seconds."""

    store: Store
    tables: ClassVar = (CRICKET_DELETED_FOLLOWS,)

    @access(
        "Keep deleted follows",
        BatchWriteItem(key=_KEY),
        table=CRICKET_DELETED_FOLLOWS,
        by="system",
        trigger="Match completion cleanup",
        frequency="Once per match end",
        bound=MAX_FOLLOWERS,
    )
    async def keep(self, follows: Iterable[Follow], now: int) -> None:
        """Store follows that are about to be deleted, for a day."""
        puts = [
            {
                "matchId": follow.match_id,
                "userId": follow.user_id,
                "follow": _MAPPER.to_item(follow),
                "ttl": now + KEPT_SECONDS,
            }
            for follow in follows
        ]
        await self.store.write_many(CRICKET_DELETED_FOLLOWS, puts=puts)

    @access(
        "Get deleted follows of match",
        Query(where=_OF_MATCH),
        table=CRICKET_DELETED_FOLLOWS,
        by="system",
        trigger="POST /admin/matches/:id/restore-follows",
        frequency="Rare, admin-only",
        bound=MAX_FOLLOWERS,
    )
    async def pages(self, match_id: str, now: int) -> AsyncGenerator[list[Follow], None]:
        """Yield the deleted follows of a match page by page."""
        page: list[Follow] = []
        async for item in self.store.items(
            CRICKET_DELETED_FOLLOWS, F("matchId") == match_id, page=PAGE, consistent=True
        ):
            if not has_expired(item["ttl"], now):
                page.append(_MAPPER.to_record(item["follow"]))
            if len(page) == PAGE:
                yield page
                page = []
        if page:
            yield page

    @access(
        "Forget deleted follows of match",
        match_deletion(CRICKET_DELETED_FOLLOWS, MAX_FOLLOWERS),
        table=CRICKET_DELETED_FOLLOWS,
        by="system",
        trigger="POST /admin/matches/:id/restore-follows",
        frequency="Rare, admin-only",
        bound=MAX_FOLLOWERS,
    )
    async def remove_all(self, match_id: str) -> int:
        return await delete_match_items(self.store, CRICKET_DELETED_FOLLOWS, match_id)

    @access(
        "Forget deleted follow",
        DeleteItem(key=_KEY),
        table=CRICKET_DELETED_FOLLOWS,
        by="user",
        trigger="DELETE /user/follow/:matchId",
        frequency="User action",
    )
    async def remove(self, match_id: str, user_id: str) -> None:
        """Forget a follow that its user would not want to be restored."""
        key = {"matchId": match_id, "userId": user_id}
        await self.store.delete(CRICKET_DELETED_FOLLOWS, key)

    @access(
        "Get deleted follows of user",
        Query(where=F("userId") == param("user"), index=BY_USER),
        table=CRICKET_DELETED_FOLLOWS,
        by="user",
        trigger="DELETE /user",
        frequency="User action",
        bound=MAX_MATCHES,
    )
    async def match_ids(self, user_id: str) -> list[str]:
        """Return the matches whose deleted follows include one of this user."""
        found = self.store.items(CRICKET_DELETED_FOLLOWS, F("userId") == user_id, index=BY_USER)
        return [item["matchId"] async for item in found]
