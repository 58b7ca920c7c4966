"""The table `score_events`: the history of every score, which outlives the accounts, without their names."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.scoreboard.model import ScoreEvent, ScoreEventPage
from tally.scoreboard.repository.database import Database, Row

_COLUMNS: Final = "id, user_id, action_id, score_delta, score_before, score_after, metadata, client_info, created_at"
_FIRST: Final = f"SELECT {_COLUMNS} FROM score_events WHERE user_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2"
_NEXT: Final = f"""
SELECT {_COLUMNS} FROM score_events WHERE user_id = $1 AND (created_at, id) < ($3, $4::uuid)
ORDER BY created_at DESC, id DESC LIMIT $2
"""


@dataclass(frozen=True, slots=True)
class EventRepository:
    """Events by player, newest first."""

    database: Database

    async def of_user(
        self, user_id: str, limit: int, after: tuple[datetime, str] | None = None
    ) -> ScoreEventPage:
        """A page of a player's history; `after` is the `next_key` of the page before."""
        if after is None:
            rows = await self.database.rows("events_of_user", _FIRST, user_id, limit + 1)
        else:
            rows = await self.database.rows("events_of_user", _NEXT, user_id, limit + 1, *after)
        events = tuple(_event(row) for row in rows[:limit])
        is_more = len(rows) > limit
        return ScoreEventPage(
            events, (events[-1].created_at, events[-1].event_id) if is_more else None
        )

    async def delete_old(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` events from before that moment, the oldest first, and say how many."""
        return len(
            await self.database.rows(
                "delete_old_events",
                "DELETE FROM score_events WHERE id = ANY(ARRAY(SELECT id FROM score_events"
                " WHERE created_at < $1 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING id",
                before,
                limit,
            )
        )


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
    )
