"""Items `STRAVA#SYNC` of users, and the queue of syncs in the partition `SYNC#QUEUE`.

An entry of the queue is due at the time in its sort key. `DAILY#` entries are also due after a gap
in the deliveries. The item of the user names its entry: other entries are obsolete. One partition
suffices, because Strava's rate limits bound the number of syncs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tally.collect.model.sync import KnownPage, StravaSync, SyncCursor
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    CONNECTION,
    item_key,
    transact_if_met,
    user_pk,
)
from tally.collect.repository.workouts import read_workout
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
from tally.store.expressions import F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item

SYNC: Final = "STRAVA#SYNC"
QUEUE: Final = "SYNC#QUEUE"
HEARTBEAT: Final = "HEARTBEAT"
WAITING_PREFIX: Final = "WAIT#"
DAILY_PREFIX: Final = "DAILY#"
MAX_DUE_SYNCS: Final = 100
MAX_KNOWN_WORKOUTS: Final = 600


@dataclass(frozen=True, slots=True)
class SyncEntry:
    """An entry of the queue."""

    user_id: str
    due_at: int
    is_daily: bool

    def is_of(self, sync: StravaSync) -> bool:
        return (self.due_at, self.is_daily) == (sync.due_at, sync.is_daily)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """When an instance last received events, and when the last gap in the deliveries ended."""

    beaten_at: int
    gap_ended_at: int


def _entry_key(entry: SyncEntry) -> Item:
    prefix = DAILY_PREFIX if entry.is_daily else WAITING_PREFIX
    return item_key(QUEUE, f"{prefix}{entry.due_at:012}#{entry.user_id}")


_SYNC_KEY: Final = item_key(user_pk(param("userId")), SYNC)
_ENTRY_KEYS: Final = tuple(
    _entry_key(SyncEntry(param("userId"), param("due"), is_daily)) for is_daily in (False, True)
)


class Syncs:
    """Access patterns of the sync."""

    __slots__ = ()
    store: Store

    @access(
        "Get sync",
        GetItem(key=_SYNC_KEY),
        table=COMMIT_COLLECT,
        by="both",
        trigger="GET /strava/status, POST /strava/sync, POST /milestones, job collect-sync,"
        " events of links of earlier versions",
        frequency="Per request",
    )
    async def sync(self, user_id: str) -> StravaSync | None:
        item = await self.store.get(
            COMMIT_COLLECT, item_key(user_pk(user_id), SYNC), consistent=True
        )
        return None if item is None else _sync(item)

    @access(
        "Put sync",
        TransactWriteItems(
            PutItem(key=_SYNC_KEY, condition=(not_exists("PK"), F("version") == param("read"))),
            ConditionCheck(
                key=item_key(user_pk(param("userId")), CONNECTION), condition=exists("PK")
            ).optional(),
            DeleteItem(key=_ENTRY_KEYS).optional(),
            PutItem(key=_ENTRY_KEYS).optional(),
        ),
        table=COMMIT_COLLECT,
        by="both",
        trigger="Linking, POST /strava/sync, POST /milestones, every page of a sync",
        frequency="Per page of 200 activities",
    )
    async def put_sync(self, sync: StravaSync, former: StravaSync | None) -> StravaSync | None:
        """Replace the state and its entry in the queue; None if `former` is outdated."""
        version = 0 if former is None else former.version
        written = replace(sync, version=version + 1)
        condition = not_exists("PK") if former is None else F("version") == version
        writes: list[Write] = [Put(COMMIT_COLLECT, _sync_item(written), condition=condition)]
        if written.due_at is not None:
            # Nothing is written for an account that is being deleted.
            connection = item_key(user_pk(sync.user_id), CONNECTION)
            writes.append(Check(COMMIT_COLLECT, connection, exists("PK")))
        entry, next_entry = None if former is None else _entry(former), _entry(written)
        if entry != next_entry:
            if entry is not None:
                writes.append(Delete(COMMIT_COLLECT, _entry_key(entry)))
            if next_entry is not None:
                item = _entry_key(next_entry) | _entry_attributes(next_entry)
                writes.append(Put(COMMIT_COLLECT, item))
        return written if await transact_if_met(self.store, writes) else None

    @access(
        "List due syncs",
        Query(
            where=tuple(
                (F("PK") == QUEUE) & F("SK").between(prefix, f"{prefix}{param('now')}~")
                for prefix in (WAITING_PREFIX, DAILY_PREFIX)
            ),
            limit=MAX_DUE_SYNCS,
            requests=2,
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-sync",
        frequency="Every 5 seconds",
        bound=2 * MAX_DUE_SYNCS,
    )
    async def due_syncs(self, waiting_until: int, daily_until: int) -> list[SyncEntry]:
        """Return entries that are due, at most 100 of each kind: the longest waiting first."""
        found: list[SyncEntry] = []
        for prefix, until in ((WAITING_PREFIX, waiting_until), (DAILY_PREFIX, daily_until)):
            is_due = F("SK").between(prefix, f"{prefix}{until:012}~")
            page = await self.store.query(
                COMMIT_COLLECT, (F("PK") == QUEUE) & is_due, limit=MAX_DUE_SYNCS, consistent=True
            )
            found += [
                SyncEntry(item["userId"], item["dueAt"], item["isDaily"]) for item in page.items
            ]
        return found

    @access(
        "Remove obsolete sync",
        DeleteItem(key=_ENTRY_KEYS),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-sync, after an athlete was unlinked",
        frequency="Rare",
    )
    async def remove_sync_entry(self, entry: SyncEntry) -> None:
        await self.store.delete(COMMIT_COLLECT, _entry_key(entry))

    @access(
        "Get heartbeat",
        GetItem(key=item_key(QUEUE, HEARTBEAT)),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-sync",
        frequency="Every 5 seconds",
    )
    async def heartbeat(self) -> Heartbeat | None:
        item = await self.store.get(COMMIT_COLLECT, item_key(QUEUE, HEARTBEAT), consistent=True)
        return None if item is None else Heartbeat(item["heartbeatAt"], item["gapEndedAt"])

    @access(
        "Put heartbeat",
        UpdateItem(key=item_key(QUEUE, HEARTBEAT)),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-heartbeat, tally collect subscribe",
        frequency="Every 10 seconds",
    )
    async def put_heartbeat(self, now: int, gap_ended_at: int | None) -> None:
        """Record that this instance receives events; `gap_ended_at` only if a gap was found."""
        actions = [F("heartbeatAt").set(now)]
        if gap_ended_at is not None:
            actions.append(F("gapEndedAt").set(gap_ended_at))
        await self.store.update(COMMIT_COLLECT, item_key(QUEUE, HEARTBEAT), *actions)

    @access(
        "List known workouts",
        Query(
            where=(F("GSI3PK") == user_pk(param("userId")))
            & (F("GSI3SK") >= param("startDateUtc")),
            index="GSI3",
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Every page of a sync",
        frequency="Per page of 200 activities",
        bound=MAX_KNOWN_WORKOUTS,
    )
    async def known_workouts(self, user_id: str, start: str) -> KnownPage:
        """Return up to 600 workouts that start at `start` or later, without deleted ones."""
        items = [
            item
            async for item in self.store.items(
                COMMIT_COLLECT,
                (F("GSI3PK") == user_pk(user_id)) & (F("GSI3SK") >= start),
                index="GSI3",
                overflow="stop",
            )
        ]
        workouts = [read_workout(item) for item in items]
        return KnownPage(workouts, is_last=len(workouts) < MAX_KNOWN_WORKOUTS)


def _entry(sync: StravaSync) -> SyncEntry | None:
    return None if sync.due_at is None else SyncEntry(sync.user_id, sync.due_at, sync.is_daily)


def _entry_attributes(entry: SyncEntry) -> Item:
    return {"userId": entry.user_id, "dueAt": entry.due_at, "isDaily": entry.is_daily}


def _sync_item(sync: StravaSync) -> Item:
    cursor = sync.cursor
    optional: dict[str, str | int | None] = {
        "linkId": sync.link_id or None,  # links of earlier versions have no id
        "dueAt": sync.due_at,
        "syncedAt": sync.synced_at,
        "syncedFrom": sync.synced_from,
        "rangeStart": None if cursor is None else cursor.range_start,
        "syncedUntil": None if cursor is None else cursor.after,
        "startedAt": None if cursor is None else cursor.started_at,
    }
    item: Item = item_key(user_pk(sync.user_id), SYNC) | {
        "userId": sync.user_id,
        "athleteId": sync.athlete_id,
        "isDaily": sync.is_daily,
        "requestedAt": sync.requested_at,
        "attempts": sync.attempts,
        "leaseUntil": sync.lease_until,
        "version": sync.version,
    }
    return item | {name: value for name, value in optional.items() if value is not None}


def _sync(item: Mapping[str, Any]) -> StravaSync:
    return StravaSync(
        user_id=item["userId"],
        athlete_id=item["athleteId"],
        link_id=item.get("linkId", ""),
        due_at=item.get("dueAt"),
        is_daily=item["isDaily"],
        synced_at=item.get("syncedAt"),
        synced_from=item.get("syncedFrom"),
        cursor=(
            SyncCursor(item["rangeStart"], item["syncedUntil"], item["startedAt"])
            if "startedAt" in item
            else None
        ),
        requested_at=item["requestedAt"],
        attempts=item["attempts"],
        lease_until=item["leaseUntil"],
        version=item["version"],
    )
