"""The table `cricket-match-timelines`: the key events of finished matches.

While a match is live, its record in `active-matches` has them; that record expires after two days.
"""

import zlib
from dataclasses import dataclass
from typing import ClassVar

from tally.cricket.model.records import MatchTimeline, has_expired
from tally.store.access import GetItem, PutItem, access, param
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

CRICKET_MATCH_TIMELINES = Table(
    "cricket-match-timelines",
    partition=S("matchId"),
    ttl="ttl",
    attributes=(
        Attribute("matchId", "S", required=True, about="Fixture match ID"),
        Attribute("events", "B", required=True, about="the events: JSON, compressed with zlib"),
        Attribute("ttl", "N", required=True, about="epoch seconds"),
    ),
)


_KEY = {"matchId": param("matchId")}


@dataclass(frozen=True, slots=True)
class TimelineRepository:
    """Timelines by match, without those expired at `now` seconds."""

    store: Store
    tables: ClassVar = (CRICKET_MATCH_TIMELINES,)

    @access(
        "Get match timeline",
        GetItem(key=_KEY),
        table=CRICKET_MATCH_TIMELINES,
        by="user",
        trigger="GET /matches/:id/timeline",
        frequency="Per request, for a match without an active record",
    )
    async def get(self, match_id: str, now: int) -> MatchTimeline | None:
        item = await self.store.get(CRICKET_MATCH_TIMELINES, {"matchId": match_id})
        if item is None or has_expired(item["ttl"], now):
            return None
        return MatchTimeline(match_id, zlib.decompress(item["events"]).decode(), item["ttl"])

    @access(
        "Put match timeline",
        PutItem(key=_KEY),
        table=CRICKET_MATCH_TIMELINES,
        by="system",
        trigger="LiveScoreJob",
        frequency="At the end of a match, and per correction of its result",
    )
    async def put(self, timeline: MatchTimeline) -> None:
        await self.store.put(
            CRICKET_MATCH_TIMELINES,
            {
                "matchId": timeline.match_id,
                "events": zlib.compress(timeline.content.encode()),
                "ttl": timeline.expires_at,
            },
        )
