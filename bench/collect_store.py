"""The store operations of one Strava event, on the embedded engine alone."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.collect_dataset import BenchUser, workout_item
from tally.collect.repository.idempotency import COMMIT_COLLECT_IDEMPOTENCY
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    WORKOUT_PREFIX,
    event_sk,
    inbox_pk,
    item_key,
    user_pk,
)
from tally.store.api import Check, Delete, Put, Query, Transaction, Update
from tally.store.expressions import F, exists, not_exists
from tally.store.sqlite import SqliteEngine, open_sqlite

_USERS = 300
_AWARD = {
    "mesh": [{"shape": "box", "position": [0, 1, 0], "scale": [1, 1, 1], "colour": "#aabbcc"}] * 3
}


@dataclass(frozen=True, slots=True)
class RawEvents:
    """The writes of an event in the order of the worker, on separate tables."""

    engine: SqliteEngine
    count: "itertools.count[int]"

    @classmethod
    @asynccontextmanager
    async def open(cls, directory: Path) -> AsyncIterator["RawEvents"]:
        async with open_sqlite(directory) as engine:
            for table in (COMMIT_COLLECT, COMMIT_COLLECT_IDEMPOTENCY):
                await engine.ensure_table(table)
            for number in range(_USERS):
                await engine.put(
                    Put(
                        COMMIT_COLLECT,
                        item_key(user_pk(str(number)), "STRAVA#CONNECTION") | {"athleteId": number},
                    )
                )
                await engine.put(Put(COMMIT_COLLECT, _milestone(number, 0)))
            yield cls(engine, itertools.count())

    def numbers(self, count: int) -> list[int]:
        return [next(self.count) for _ in range(count)]

    async def receive(self, number: int) -> None:
        """Write what is durable before the webhook responds."""
        await self.engine.put(Put(COMMIT_COLLECT, _event(number), condition=not_exists("PK")))

    async def apply(self, number: int) -> None:
        """Make all writes of an event. Every fourth event mints a part."""
        user_number, key = number % _USERS, {"IdempotencyKey": f"STRAVA#{number:040}"}
        await self.receive(number)
        claim = (
            F("status").set("claimed"),
            F("claimedBy").set("x" * 36),
            F("leaseUntil").set(1),
            F("expiresAt").set(4_000_000_000),
        )
        await self.engine.update(
            Update(COMMIT_COLLECT_IDEMPOTENCY, key, claim, condition=not_exists("IdempotencyKey"))
        )
        user = BenchUser(number % _USERS, "", "")
        workout = workout_item(user, number) | item_key(
            user_pk(str(user_number)), f"{WORKOUT_PREFIX}{number:012}"
        )
        is_linked = Check(
            COMMIT_COLLECT,
            item_key(user_pk(str(user_number)), "STRAVA#CONNECTION"),
            F("athleteId") == user_number,
        )
        await self.engine.transact(
            Transaction((Put(COMMIT_COLLECT, workout, condition=not_exists("PK")), is_linked))
        )
        writes = [Put(COMMIT_COLLECT, _milestone(user_number, number), condition=exists("PK"))]
        if number % 4 == 0:
            award = item_key(user_pk(str(user_number)), f"MILESTONE#M#AWARD#{number}") | _AWARD
            writes.append(Put(COMMIT_COLLECT, award, condition=not_exists("PK")))
        await self.engine.transact(Transaction(tuple(writes)))
        done = (F("status").set("done"), F("expiresAt").set(4_000_000_000))
        await self.engine.update(
            Update(COMMIT_COLLECT_IDEMPOTENCY, key, done, condition=F("claimedBy") == "x" * 36)
        )
        await self.engine.delete(Delete(COMMIT_COLLECT, COMMIT_COLLECT.primary_key(_event(number))))

    @staticmethod
    async def pending(engine: SqliteEngine, shard: int) -> int:
        """Count the events in a shard of the inbox, up to one page."""
        return len((await engine.query(Query(COMMIT_COLLECT, F("PK") == inbox_pk(shard)))).items)

    @staticmethod
    async def read_workouts(engine: SqliteEngine, user: BenchUser) -> int:
        """Read all workouts of a user in pages; return their number."""
        where = (F("PK") == user_pk(user.user_id)) & F("SK").begins_with(WORKOUT_PREFIX)
        read, start = 0, None
        while True:
            page = await engine.query(Query(COMMIT_COLLECT, where, start=start))
            read, start = read + len(page.items), page.next
            if start is None:
                return read


def _event(number: int) -> dict[str, Any]:
    key = f"{number:040}"
    return item_key(inbox_pk(number % 8), event_sk(1_767_225_600, key)) | {
        "eventKey": key,
        "objectType": "activity",
        "objectId": number,
        "aspectType": "create",
        "ownerId": number % _USERS,
        "eventTime": 1_767_225_600,
        "isDeauthorisation": False,
        "correlationId": "6f1d2c3b-6f1d-2c3b-6f1d-2c3b6f1d2c3b",
        "receivedAtMs": 1_767_225_600_000,
        "attempts": 0,
        "notBefore": 0,
    }


def _milestone(number: int, progress: int) -> dict[str, Any]:
    return item_key(user_pk(str(number)), "MILESTONE#M") | {
        "userId": str(number),
        "milestoneId": "M" * 26,
        "modelId": "fox",
        "sport": "RIDE",
        "metric": "DISTANCE_METERS",
        "totalTarget": 480_000,
        "partsTotal": 12,
        "periodStartAtUtc": "2026-01-01T00:00:00Z",
        "createdAtUtc": "2026-01-01T00:00:00Z",
        "updatedAtUtc": "2026-01-01T00:00:00Z",
        "progress": progress,
        "percent": 10,
        "partsMinted": 1,
        "status": "ACTIVE",
        "version": progress,
    }
