"""The table `cricket-state-hashes`: the hash of the content last pushed to each view of a match."""

from dataclasses import dataclass
from typing import ClassVar, Final

from tally.cricket.model.records import StateHash, view_key
from tally.cricket.repository.items import ItemMapper
from tally.store.access import DeleteItem, GetItem, PutItem, access, param
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

CRICKET_STATE_HASHES = Table(
    "cricket-state-hashes",
    partition=S("matchTeamKey"),
    attributes=(
        Attribute(
            "matchTeamKey",
            "S",
            required=True,
            about="{matchId}#{teamId}; the team id of the neutral view is neutral",
        ),
        Attribute("matchId", "S", required=True),
        Attribute("teamId", "S", required=True),
        Attribute("hash", "S", required=True),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
    ),
)
_MAPPER: Final = ItemMapper(StateHash)


def _key(match_id: str, team_id: str) -> Item:
    return {"matchTeamKey": view_key(match_id, team_id)}


_KEY: Final = _key(param("matchId"), param("teamId"))


@dataclass(frozen=True, slots=True)
class StateHashRepository:
    """Hashes by match and view."""

    store: Store
    tables: ClassVar = (CRICKET_STATE_HASHES,)

    @access(
        "Get stored hash",
        GetItem(key=_KEY),
        table=CRICKET_STATE_HASHES,
        by="system",
        trigger="LiveScoreJob change detection",
        frequency="Every 2.5s per live match per team",
    )
    async def get(self, match_id: str, team_id: str) -> StateHash | None:
        item = await self.store.get(CRICKET_STATE_HASHES, _key(match_id, team_id), consistent=True)
        return None if item is None else _MAPPER.to_record(item)

    @access(
        "Update stored hash",
        PutItem(key=_KEY),
        table=CRICKET_STATE_HASHES,
        by="system",
        trigger="LiveScoreJob (when state changed)",
        frequency="On each state change",
    )
    async def put(self, state: StateHash) -> None:
        await self.store.put(
            CRICKET_STATE_HASHES, _key(state.match_id, state.team_id) | _MAPPER.to_item(state)
        )

    @access(
        "Delete hash",
        DeleteItem(key=_KEY),
        table=CRICKET_STATE_HASHES,
        by="system",
        trigger="Match completion cleanup",
        frequency="Once per match end",
    )
    async def delete(self, match_id: str, team_id: str) -> None:
        await self.store.delete(CRICKET_STATE_HASHES, _key(match_id, team_id))
