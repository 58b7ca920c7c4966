"""An example backend for access patterns and schemas: matches, followers and locks.

It has one pattern of each kind that the backends need.
"""

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import ClassVar

from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    DeleteItem,
    GetItem,
    PutItem,
    Query,
    Scan,
    TransactGetItems,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Engine, Get, Page, Put, Update
from tally.store.catalogue import Catalogue
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import KEYS_ONLY, Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item

FIXTURES = Table(
    "example-fixtures",
    partition=S("matchId"),
    indexes=(
        GlobalIndex("league-index", partition=S("leagueCode"), sort=S("startTime")),
        GlobalIndex("live-index", partition=S("live"), sort=S("startTime"), projection=KEYS_ONLY),
    ),
    attributes=(
        Attribute("leagueCode", "S", required=True),
        Attribute("startTime", "S", required=True),
        Attribute("venue", "S"),
        Attribute("live", "S", about='"1" while the match is live, absent otherwise'),
    ),
)

FOLLOWS = Table(
    "example-follows",
    partition=S("matchId"),
    sort=S("userId"),
    ttl="expiresAt",
    attributes=(Attribute("teamId", "S"), Attribute("expiresAt", "N", required=True)),
)

FOLLOW_COUNTS = Table(
    "example-follow-counts",
    partition=S("matchId"),
    attributes=(Attribute("followers", "N", required=True),),
)

LOCKS = Table(
    "example-locks",
    partition=S("lockKey"),
    ttl="expiresAt",
    attributes=(Attribute("owner", "S", required=True),),
)


FIXTURE_KEY = {"matchId": param("matchId")}
FOLLOW_KEY = {"matchId": param("matchId"), "userId": param("userId")}
LOCK_KEY = {"lockKey": param("lockKey")}


@dataclass(frozen=True, slots=True)
class Fixtures:
    """All matches."""

    store: Store
    tables: ClassVar = (FIXTURES,)

    @access(
        "Get fixture by ID",
        GetItem(key=FIXTURE_KEY),
        table=FIXTURES,
        by="both",
        trigger="GET /matches/:id, LiveScoreJob",
        frequency="per request, every 2.5 s per live match",
    )
    async def get(self, match_id: str) -> Item | None:
        return await self.store.get(FIXTURES, {"matchId": match_id})

    @access(
        "Batch get fixtures",
        BatchGetItem(key=FIXTURE_KEY),
        table=FIXTURES,
        by="both",
        bound=1000,
    )
    async def get_many(self, match_ids: Iterable[str]) -> list[Item]:
        return await self.store.get_many(
            FIXTURES, ({"matchId": match_id} for match_id in match_ids)
        )

    @access(
        "Get matches by date range",
        Query(
            where=(F("leagueCode") == param("code"))
            & F("startTime").between(param("from"), param("to")),
            index="league-index",
        ),
        table=FIXTURES,
        by="user",
        trigger="GET /matches?league=&from=&to=",
        frequency="per request",
    )
    async def of_league(
        self,
        league: str,
        start: str,
        end: str,
        *,
        limit: int | None = None,
        after: Item | None = None,
    ) -> Page:
        where = (F("leagueCode") == league) & F("startTime").between(start, end)
        return await self.store.query(
            FIXTURES, where, index="league-index", limit=limit, start=after
        )

    @access(
        "Scan live fixtures",
        Scan(index="live-index"),
        table=FIXTURES,
        trigger="LiveScoreJob",
        frequency="every 2.5 s",
        bound=20,
    )
    async def live(self) -> list[Item]:
        return (await self.store.scan(FIXTURES, index="live-index")).items

    @access(
        "Get fixtures by venue (admin)",
        Scan(filter=F("venue") == param("venue")),
        table=FIXTURES,
        by="user",
        frequency="rare",
        bound=500,
    )
    async def at_venue(self, venue: str) -> list[Item]:
        return [
            item
            async for item in self.store.scan_items(FIXTURES, filter=F("venue") == venue, page=2)
        ]

    @access(
        "Batch write fixtures",
        BatchWriteItem(key=FIXTURE_KEY),
        table=FIXTURES,
        bound=10_000,
    )
    async def put_many(self, fixtures: Iterable[Item]) -> None:
        await self.store.write_many(FIXTURES, puts=fixtures)

    @access(
        "Archive fixture",
        UpdateItem(key=FIXTURE_KEY, condition=exists("matchId")),
        table=FIXTURES,
        trigger="LiveScoreJob",
    )
    async def archive(self, match_id: str) -> bool:
        try:
            await self.store.update(
                FIXTURES, {"matchId": match_id}, F("live").remove(), condition=exists("matchId")
            )
        except ConditionFailed:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Follows:
    """The followers of each match, and their number."""

    store: Store
    tables: ClassVar = (FOLLOWS, FOLLOW_COUNTS)
    reads: ClassVar = (FIXTURES,)

    @access(
        "Get all followers for match",
        Query(where=F("matchId") == param("matchId")),
        table=FOLLOWS,
        frequency="every 2.5 s",
        bound=200,
    )
    async def list_by_match(self, match_id: str) -> AsyncGenerator[Item, None]:
        async for follow in self.store.items(FOLLOWS, F("matchId") == match_id, page=3):
            yield follow

    @access(
        "Follow a match and count it",
        TransactWriteItems(
            PutItem(key=FOLLOW_KEY, condition=not_exists("matchId")),
            UpdateItem(table=FOLLOW_COUNTS, key=FIXTURE_KEY),
        ),
        table=FOLLOWS,
        tables=(FOLLOW_COUNTS,),
        by="user",
        trigger="POST /user/follow/:matchId",
        frequency="user action",
    )
    async def follow(self, match_id: str, user_id: str, expires_at: int) -> None:
        follow = {"matchId": match_id, "userId": user_id, "expiresAt": expires_at}
        count = Update(FOLLOW_COUNTS, {"matchId": match_id}, (F("followers").add(1),))
        await self.store.transact([Put(FOLLOWS, follow, condition=not_exists("matchId")), count])

    @access(
        "See a follow and its match",
        TransactGetItems(GetItem(key=FOLLOW_KEY), GetItem(table=FIXTURES, key=FIXTURE_KEY)),
        table=FOLLOWS,
        tables=(FIXTURES,),
        by="user",
    )
    async def with_match(self, match_id: str, user_id: str) -> list[Item | None]:
        follow = Get(FOLLOWS, {"matchId": match_id, "userId": user_id})
        return await self.store.transact_get([follow, Get(FIXTURES, {"matchId": match_id})])

    @access(
        "Remove all follows for match",
        Query(where=F("matchId") == param("matchId")) + BatchWriteItem(key=FOLLOW_KEY),
        table=FOLLOWS,
        bound=200,
    )
    async def remove_all(self, match_id: str) -> int:
        keys = [
            FOLLOWS.primary_key(item)
            async for item in self.store.items(FOLLOWS, F("matchId") == match_id)
        ]
        await self.store.write_many(FOLLOWS, deletes=keys)
        return len(keys)


@dataclass(frozen=True, slots=True)
class Locks:
    """Locks with one holder at a time."""

    store: Store
    tables: ClassVar = (LOCKS,)

    @access(
        "Acquire lock",
        PutItem(key=LOCK_KEY, condition=not_exists("lockKey") | (F("expiresAt") < param("now"))),
        table=LOCKS,
        trigger="any job",
        frequency="every 2.5 s",
    )
    async def acquire(self, key: str, owner: str, now: int) -> bool:
        free = not_exists("lockKey") | (F("expiresAt") < now)
        try:
            await self.store.put(
                LOCKS, {"lockKey": key, "owner": owner, "expiresAt": now + 10}, condition=free
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Release lock",
        DeleteItem(key=LOCK_KEY, condition=F("owner") == param("owner")),
        table=LOCKS,
        trigger="any job",
    )
    async def release(self, key: str, owner: str) -> Item | None:
        return await self.store.delete(
            LOCKS, {"lockKey": key}, condition=F("owner") == owner, returns="ALL_OLD"
        )


CATALOGUE = Catalogue({"example": (Fixtures, Follows, Locks)})


async def make_tables(engine: Engine) -> None:
    """Create all tables of the example on an engine."""
    for table in CATALOGUE.tables():
        await engine.create_table(table)
