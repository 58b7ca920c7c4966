"""The table `DisplayStateCache`: computed display states with a short TTL."""

from dataclasses import dataclass
from typing import ClassVar, Final

from tally.cricket.model.records import CachedDisplay, display_key, has_expired
from tally.cricket.repository.items import ItemMapper
from tally.kit.latest_results import LatestResults
from tally.store.access import GetItem, PutItem, access, param
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

DISPLAY_STATE_CACHE = Table(
    "DisplayStateCache",
    partition=S("cacheKey"),
    ttl="ttl",
    stream="KEYS_ONLY",
    attributes=(
        Attribute("cacheKey", "S", required=True, about="DISPLAY#{matchId}#{teamId}"),
        Attribute("matchId", "S", required=True),
        Attribute("teamId", "S", required=True),
        Attribute("content", "S", required=True, about="the display state as JSON"),
        Attribute("computedAt", "N", required=True, about="epoch milliseconds"),
        Attribute("ttl", "N", required=True, about="epoch seconds; also checked on every read"),
    ),
)
_MAPPER: Final = ItemMapper(CachedDisplay, expires_at="ttl")
_RECENT: Final = LatestResults[str, Item, CachedDisplay](_MAPPER.to_record)


def _key(match_id: str, team_id: str) -> Item:
    return {"cacheKey": display_key(match_id, team_id)}


_KEY: Final = _key(param("matchId"), param("teamId"))


@dataclass(frozen=True, slots=True)
class DisplayCacheRepository:
    """Display states by match and view."""

    store: Store
    tables: ClassVar = (DISPLAY_STATE_CACHE,)

    @access(
        "Get cached display state",
        GetItem(key=_KEY),
        table=DISPLAY_STATE_CACHE,
        by="both",
        trigger="GET /matches/:id/display, LiveScoreJob",
        frequency="Per request / per tick",
    )
    async def get(self, match_id: str, team_id: str, now: int) -> CachedDisplay | None:
        """Return the state unless it has expired at `now` seconds."""
        item = await self.store.get(DISPLAY_STATE_CACHE, _key(match_id, team_id))
        if item is None or has_expired(item["ttl"], now):
            return None
        return _RECENT.get(item["cacheKey"], item)

    @access(
        "Set cached display state",
        PutItem(key=_KEY),
        table=DISPLAY_STATE_CACHE,
        by="both",
        trigger="DisplayStateService after computation",
        frequency="After each state computation",
    )
    async def put(self, display: CachedDisplay) -> None:
        await self.store.put(
            DISPLAY_STATE_CACHE, _key(display.match_id, display.team_id) | _MAPPER.to_item(display)
        )
