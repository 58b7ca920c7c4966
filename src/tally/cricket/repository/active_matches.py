"""The table `active-matches`: the pipeline state of each match between two polls.

Writes of the whole record are conditional on the version that was read, so that an instance that
has lost its match cannot overwrite the writes of its successor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import ClassVar, Final

from tally.cricket.model.events import KeyEvent
from tally.cricket.model.records import ActiveMatch, PollerState
from tally.cricket.repository.items import ItemMapper
from tally.cricket.repository.key_events import (
    CRICKET_KEY_EVENTS,
    MAX_EVENT_ITEMS,
    key_event_items,
)
from tally.store.access import (
    GetItem,
    PutItem,
    Scan,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Put
from tally.store.errors import ConditionFailed, TransactionCancelled
from tally.store.expressions import Action, Condition, F, exists, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

ACTIVE_MATCHES = Table(
    "active-matches",
    partition=S("matchId"),
    ttl="ttl",
    attributes=(
        Attribute("matchId", "S", required=True, about="The match being polled"),
        Attribute(
            "previousScores",
            "M",
            required=True,
            about="Last known scores per innings (for Tier0 detection)",
        ),
        Attribute("cooldowns", "M", required=True, about="Event type → expiry timestamp"),
        Attribute("lastBalls", "L", required=True, about="Last 30 balls (for Tier1 detection)"),
        Attribute("pollerState", "S", required=True, about="polling, paused, ended"),
        Attribute("lastUpdatedAt", "N", required=True, about="Epoch timestamp, milliseconds"),
        Attribute("owner", "S", about="the instance that processes it"),
        Attribute("version", "N", required=True, about="number of writes, for optimistic locking"),
        Attribute("extra", "M", required=True, about="private state of the pipeline"),
        Attribute("channelId", "S", about="the match's APNs broadcast channel"),
        Attribute("ttl", "N", about="epoch seconds, set when the match is over"),
    ),
)
_MAPPER: Final = ItemMapper(ActiveMatch, expires_at="ttl")
MAX_MATCHES: Final = 2_000


_KEY: Final = {"matchId": param("matchId")}


@dataclass(frozen=True, slots=True)
class ActiveMatchRepository:
    """Active matches by id, and all unfinished ones. Times are milliseconds."""

    store: Store
    tables: ClassVar = (ACTIVE_MATCHES, CRICKET_KEY_EVENTS)

    @access(
        "Get active match",
        GetItem(key=_KEY),
        table=ACTIVE_MATCHES,
        by="both",
        trigger="LiveScoreJob, MatchOrchestrator, GET /admin/matches/:id/state",
        frequency="Every 2.5s per live match",
    )
    async def get(self, match_id: str) -> ActiveMatch | None:
        item = await self.store.get(ACTIVE_MATCHES, {"matchId": match_id}, consistent=True)
        return None if item is None else _MAPPER.to_record(item)

    @access(
        "Create active match",
        PutItem(key=_KEY, condition=not_exists("matchId")),
        table=ACTIVE_MATCHES,
        by="system",
        trigger="MatchOrchestrator, LiveScoreJob",
        frequency="Once per match",
    )
    async def create(self, match: ActiveMatch) -> bool:
        """Create the record; return False if it exists."""
        try:
            await self.store.put(
                ACTIVE_MATCHES, _MAPPER.to_item(match), condition=not_exists("matchId")
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Save active match",
        PutItem(key=_KEY, condition=F("version") == param("read")),
        table=ACTIVE_MATCHES,
        by="system",
        trigger="LiveScoreJob",
        frequency="Every 2.5s per live match",
    )
    async def save(self, match: ActiveMatch) -> ActiveMatch | None:
        """Write the next version; return None if the record has changed or no longer exists."""
        saved = replace(match, version=match.version + 1)
        try:
            await self.store.put(
                ACTIVE_MATCHES, _MAPPER.to_item(saved), condition=F("version") == match.version
            )
        except ConditionFailed:
            return None
        return saved

    @access(
        "Save active match with key events",
        TransactWriteItems(
            PutItem(key=_KEY, condition=F("version") == param("read")),
            PutItem(
                table=CRICKET_KEY_EVENTS,
                key={"matchId": param("matchId"), "eventId": f"{param('read')}#{param('number')}"},
                requests=MAX_EVENT_ITEMS,
            ),
        ),
        table=ACTIVE_MATCHES,
        tables=(CRICKET_KEY_EVENTS,),
        by="system",
        trigger="LiveScoreJob",
        frequency="Per poll with key events",
    )
    async def save_with_events(
        self, match: ActiveMatch, events: Sequence[KeyEvent], expires_at: int
    ) -> ActiveMatch | None:
        """Write the next version and its new events; return None like `save`."""
        saved = replace(match, version=match.version + 1)
        record = Put(
            ACTIVE_MATCHES, _MAPPER.to_item(saved), condition=F("version") == match.version
        )
        items = key_event_items(match.match_id, match.version, events, expires_at)
        try:
            await self.store.transact([record, *(Put(CRICKET_KEY_EVENTS, item) for item in items)])
        except TransactionCancelled as error:
            if not error.reasons[0].condition_failed:
                raise
            return None
        return saved

    @access(
        "Renew active match",
        UpdateItem(key=_KEY, condition=F("owner") == param("owner")),
        table=ACTIVE_MATCHES,
        by="system",
        trigger="LiveScoreJob, where nothing has changed",
        frequency="Every 2.5s per live match",
    )
    async def renew(self, match_id: str, owner: str, now: int) -> bool:
        """Renew the record; return False if it has another owner."""
        return (
            await self._change(match_id, F("owner") == owner, F("lastUpdatedAt").set(now))
            is not None
        )

    @access(
        "Take over stale match",
        UpdateItem(
            key=_KEY,
            condition=exists("matchId") & ((F("lastUpdatedAt") <= param("before")) | exists("ttl")),
        ),
        table=ACTIVE_MATCHES,
        by="system",
        trigger="MatchOrchestrator",
        frequency="When an instance crashed, or a match resumes",
    )
    async def take_over(
        self, match_id: str, owner: str, now: int, before: int
    ) -> ActiveMatch | None:
        """Take over a record that was not renewed since `before` or is over; else return None."""
        is_abandoned = exists("matchId") & ((F("lastUpdatedAt") <= before) | exists("ttl"))
        return await self._change(
            match_id,
            is_abandoned,
            F("owner").set(owner),
            F("lastUpdatedAt").set(now),
            F("pollerState").set(PollerState.POLLING.value),
            F("version").add(1),
            F("ttl").remove(),
        )

    @access(
        "Set channel of match",
        UpdateItem(key=_KEY, condition=exists("matchId") & not_exists("channelId")),
        table=ACTIVE_MATCHES,
        by="system",
        trigger="MatchOrchestrator",
        frequency="Once per match",
    )
    async def set_channel(self, match_id: str, channel_id: str) -> ActiveMatch | None:
        """Set the channel; return None if the record has one or no longer exists."""
        has_no_channel = exists("matchId") & not_exists("channelId")
        return await self._change(
            match_id, has_no_channel, F("channelId").set(channel_id), F("version").add(1)
        )

    @access(
        "End active match",
        UpdateItem(key=_KEY, condition=exists("matchId")),
        table=ACTIVE_MATCHES,
        by="system",
        trigger="Match completion cleanup",
        frequency="Once per match end",
    )
    async def end(self, match_id: str, now: int, expires_at: int) -> ActiveMatch | None:
        """End the match and remove its channel; the record expires at `expires_at` seconds."""
        return await self._change(
            match_id,
            exists("matchId"),
            F("pollerState").set(PollerState.ENDED.value),
            F("lastUpdatedAt").set(now),
            F("channelId").remove(),
            F("ttl").set(expires_at),
            F("version").add(1),
        )

    @access(
        "Scan active matches",
        Scan(filter=(F("pollerState") != PollerState.ENDED.value) | not_exists("ttl")),
        table=ACTIVE_MATCHES,
        by="system",
        trigger="MatchOrchestrator, service startup",
        frequency="Every 30s",
        bound=MAX_MATCHES,
    )
    async def list_unfinished(self) -> list[ActiveMatch]:
        """Return matches that are not over or not cleaned up, by id."""
        is_unfinished = (F("pollerState") != PollerState.ENDED.value) | not_exists("ttl")
        items = self.store.scan_items(ACTIVE_MATCHES, filter=is_unfinished, consistent=True)
        return sorted([_MAPPER.to_record(item) async for item in items], key=attrgetter("match_id"))

    async def _change(
        self, match_id: str, condition: Condition, *actions: Action
    ) -> ActiveMatch | None:
        try:
            item = await self.store.update(
                ACTIVE_MATCHES,
                {"matchId": match_id},
                *actions,
                condition=condition,
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        return _MAPPER.to_record(item or {})
