"""The table `match-processing-state`: the ball log of each match, so that a restart skips no ball.

Instances cache the state in memory and load it from here at start. It never goes back: a late write
of an instance that has lost its match is rejected. Balls are compressed.
"""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.cricket.model.records import ProcessingState, has_expired
from tally.store.access import GetItem, PutItem, Scan, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

MATCH_PROCESSING_STATE = Table(
    "match-processing-state",
    partition=S("matchId"),
    ttl="ttl",
    attributes=(
        Attribute("matchId", "S", required=True, about="Fixture match ID"),
        Attribute(
            "ballByBall", "B", required=True, about="full ball data: JSON, compressed with zlib"
        ),
        Attribute("lastProcessedBall", "N", required=True, about="the id to resume from"),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
        Attribute("ttl", "N", required=True, about="epoch seconds, seven days later"),
    ),
)
MAX_MATCHES: Final = 5_000


_KEY: Final = {"matchId": param("matchId")}


@dataclass(frozen=True, slots=True)
class ProcessingRepository:
    """Processing states by match, without those expired at `now` seconds."""

    store: Store
    tables: ClassVar = (MATCH_PROCESSING_STATE,)

    @access(
        "Get last processed ball ID",
        GetItem(key=_KEY).with_note("on cache miss"),
        table=MATCH_PROCESSING_STATE,
        by="system",
        trigger="LiveScoreJob ball-by-ball processing",
        frequency="Per live match per tick (usually in-memory)",
    )
    async def get(self, match_id: str, now: int) -> ProcessingState | None:
        return await self._get(match_id, now)

    @access(
        "Set last processed ball ID",
        PutItem(
            key=_KEY,
            condition=not_exists("matchId")
            | (F("lastProcessedBall") <= param("ball"))
            | (F("ttl") <= param("now")),
        ).with_note("async write-through"),
        table=MATCH_PROCESSING_STATE,
        by="system",
        trigger="LiveScoreJob after processing a ball",
        frequency="Per new ball detected",
    )
    async def put(self, processing: ProcessingState) -> bool:
        """Write the state; return False if a later ball has been processed."""
        item = {
            "matchId": processing.match_id,
            "ballByBall": zlib.compress(processing.content.encode()),
            "lastProcessedBall": processing.last_ball_id,
            "updatedAt": processing.updated_at,
            "ttl": processing.expires_at,
        }
        has_passed = F("ttl") <= processing.updated_at // 1000
        is_progress = (
            not_exists("matchId") | (F("lastProcessedBall") <= processing.last_ball_id) | has_passed
        )
        try:
            await self.store.put(MATCH_PROCESSING_STATE, item, condition=is_progress)
        except ConditionFailed:
            return False
        return True

    @access(
        "Hydrate cache from DynamoDB",
        GetItem(key=_KEY, requests=MAX_MATCHES).with_note("per match") + Scan(),
        table=MATCH_PROCESSING_STATE,
        by="system",
        trigger="Service startup",
        frequency="Once on boot",
        bound=MAX_MATCHES,
    )
    async def hydrate(self, match_ids: Sequence[str] | None, now: int) -> list[ProcessingState]:
        """Return the states of these matches, or of all with None."""
        if match_ids is not None:
            states = await asyncio.gather(
                *(self._get(match_id, now) for match_id in dict.fromkeys(match_ids))
            )
            return [state for state in states if state is not None]
        items = self.store.scan_items(MATCH_PROCESSING_STATE, consistent=True)
        return [_processing(item) async for item in items if not has_expired(item["ttl"], now)]

    async def _get(self, match_id: str, now: int) -> ProcessingState | None:
        item: Item | None = await self.store.get(
            MATCH_PROCESSING_STATE, {"matchId": match_id}, consistent=True
        )
        return None if item is None or has_expired(item["ttl"], now) else _processing(item)


def _processing(item: Mapping[str, Any]) -> ProcessingState:
    return ProcessingState(
        match_id=item["matchId"],
        last_ball_id=item["lastProcessedBall"],
        content=zlib.decompress(item["ballByBall"]).decode(),
        updated_at=item["updatedAt"],
        expires_at=item["ttl"],
    )
