"""The table `completed_actions`: what game servers vouched for, so that no action is vouched for twice."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from tally.errors import NotFound
from tally.scoreboard.model import ActionExists, CompletedAction
from tally.scoreboard.repository.database import Database

_COMPLETE: Final = """
INSERT INTO completed_actions (action_id, user_id, max_score, metadata, completed_at, expires_at)
SELECT $1, id, $3, $4, $5, $6 FROM users WHERE id = $2
RETURNING action_id
"""


@dataclass(frozen=True, slots=True)
class ActionRepository:
    """Completed actions by their id."""

    database: Database

    async def complete(self, action: CompletedAction) -> None:
        """Keep the action; ActionExists if its id was there before, NotFound if there is no such player."""
        try:
            kept = await self.database.value(
                "complete_action",
                _COMPLETE,
                action.action_id,
                action.user_id,
                action.max_score,
                dict(action.metadata),
                action.completed_at,
                action.expires_at,
            )
        except asyncpg.UniqueViolationError as error:
            raise ActionExists("This action was completed before", field="action_id") from error
        if kept is None:
            raise NotFound("No such user", code="user_not_found", field="user_id")

    async def delete_old(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` actions that were completed before that moment, the oldest first, and say how many."""
        return len(
            await self.database.rows(
                "delete_old_actions",
                "DELETE FROM completed_actions WHERE action_id = ANY(ARRAY("
                "SELECT action_id FROM completed_actions WHERE completed_at < $1 ORDER BY completed_at LIMIT $2"
                " FOR UPDATE SKIP LOCKED)) RETURNING action_id",
                before,
                limit,
            )
        )
