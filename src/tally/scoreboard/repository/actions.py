"""The table `completed_actions`. Its primary key makes reporting an action idempotent."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from tally.errors import NotFound
from tally.scoreboard.model.errors import ActionExists
from tally.scoreboard.model.scores import CompletedAction
from tally.scoreboard.repository.database import Database

# The lock makes a concurrent deletion of the account either precede this statement, which then
# creates nothing, or find the action and delete it.
_CREATE: Final = """
INSERT INTO completed_actions (action_id, user_id, max_score, metadata, completed_at, expires_at,
    boards)
SELECT $1, id, $3, $4, $5, $6, $7 FROM users WHERE id = $2 FOR KEY SHARE
RETURNING action_id
"""
_RENEW: Final = """
UPDATE completed_actions SET expires_at = $5 WHERE action_id = $1
    AND user_id = $2::uuid AND max_score = $3 AND boards IS NOT DISTINCT FROM $4::varchar[]
RETURNING true
"""

# An action outlives its last token: the row says on which boards it counts.
_DELETE_OLD: Final = """
DELETE FROM completed_actions WHERE action_id = ANY(ARRAY(
    SELECT action_id FROM completed_actions WHERE completed_at < $1 AND expires_at < $1
    ORDER BY completed_at LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING action_id
"""


@dataclass(frozen=True, slots=True)
class ActionRepository:
    """Completed actions by id."""

    database: Database

    async def create(self, action: CompletedAction) -> bool:
        """Store the action, or renew it and return False if the same action was stored before.

        Raises ActionExists if its player, maximum or boards differ, or NotFound if the player does
        not exist.
        """
        boards = None if action.boards is None else list(action.boards)
        try:
            action_id = await self.database.value(
                "create_action",
                _CREATE,
                action.action_id,
                action.user_id,
                action.max_score,
                dict(action.metadata),
                action.completed_at,
                action.expires_at,
                boards,
            )
        except asyncpg.UniqueViolationError as error:
            is_same = await self.database.value(
                "renew_action",
                _RENEW,
                action.action_id,
                action.user_id,
                action.max_score,
                boards,
                action.expires_at,
            )
            if is_same:
                return False
            raise ActionExists(
                "This action was already reported with another user_id, max_score or boards",
                field="action_id",
            ) from error
        if action_id is None:
            raise NotFound("User does not exist", code="user_not_found", field="user_id")
        return True

    async def delete_old(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` actions last reported before a time; return the count."""
        return len(await self.database.rows("delete_old_actions", _DELETE_OLD, before, limit))
