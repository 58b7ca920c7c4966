"""The table `score_events`: the history of every score; deleted accounts' events are anonymous."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.scoreboard.model.scores import ScoreEvent, ScoreEventPage
from tally.scoreboard.repository.board_changes import board_changes
from tally.scoreboard.repository.database import Database, Row

_COLUMNS: Final = (
    "id, user_id, action_id, score_delta, score_before, score_after, metadata, client_info,"
    " created_at, boards"
)
_FIRST_PAGE: Final = f"""
SELECT {_COLUMNS} FROM score_events WHERE user_id = $1
ORDER BY created_at DESC, id DESC LIMIT $2
"""
_NEXT_PAGE: Final = f"""
SELECT {_COLUMNS} FROM score_events WHERE user_id = $1 AND (created_at, id) < ($3, $4::uuid)
ORDER BY created_at DESC, id DESC LIMIT $2
"""
_DELETE_OLD: Final = """
DELETE FROM score_events WHERE id = ANY(ARRAY(
    SELECT id FROM score_events WHERE created_at < $1
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING id
"""


@dataclass(frozen=True, slots=True)
class EventRepository:
    """Score events by player, newest first."""

    database: Database

    async def find_by_user(
        self, user_id: str, limit: int, after: tuple[datetime, str] | None = None
    ) -> ScoreEventPage:
        """Return a page of a player's events; `after` is the previous page's `next_key`."""
        if after is None:
            rows = await self.database.rows("find_events", _FIRST_PAGE, user_id, limit + 1)
        else:
            rows = await self.database.rows("find_events", _NEXT_PAGE, user_id, limit + 1, *after)
        events = tuple(_event(row) for row in rows[:limit])
        has_more = len(rows) > limit
        next_key = (events[-1].created_at, events[-1].event_id) if has_more else None
        return ScoreEventPage(events, next_key)

    async def delete_old(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` events created before a time, oldest first; return the count."""
        return len(await self.database.rows("delete_old_events", _DELETE_OLD, before, limit))


def _event(row: Row) -> ScoreEvent:
    return ScoreEvent(
        event_id=str(row["id"]),
        user_id=None if row["user_id"] is None else str(row["user_id"]),
        action_id=row["action_id"],
        score_delta=row["score_delta"],
        score_before=row["score_before"],
        score_after=row["score_after"],
        created_at=row["created_at"],
        metadata=row["metadata"],
        client_info=row["client_info"],
        boards=board_changes(row["boards"]),
    )
