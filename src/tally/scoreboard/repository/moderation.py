"""Adjusted scores, and the table `banned_scores`.

A ban moves the score to `banned_scores`, so that no leaderboard query finds it. The score row is
locked first, as in a score change.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from tally.errors import NotFound
from tally.scoreboard.model.errors import ActionExists, ScoreUnderflow
from tally.scoreboard.model.scores import MAX_SCORE, Adjustment
from tally.scoreboard.repository.database import Connection, Database
from tally.scoreboard.repository.scores import player_banned, score_overflow

_ADJUST: Final = """
UPDATE scores SET total_score = $2, score_first_reached_at = $3, revision = revision + 1,
    updated_at = $3
WHERE user_id = $1
"""
_ADD_EVENT: Final = """
INSERT INTO score_events
    (user_id, action_token_hash, action_id, score_delta, score_before, score_after, metadata,
    created_at)
VALUES ($1, gen_random_uuid()::text, $2, $3::integer, $4::bigint, $4::bigint + $3::integer, $5, $6)
"""
_FIND_EVENT: Final = """
SELECT score_delta, score_after FROM score_events WHERE user_id = $1 AND action_id = $2
"""
_BAN: Final = """
WITH removed AS (
    DELETE FROM scores WHERE user_id = $1
    RETURNING user_id, total_score, score_first_reached_at, revision
)
INSERT INTO banned_scores SELECT *, $2 FROM removed RETURNING revision
"""
_UNBAN: Final = """
WITH restored AS (
    DELETE FROM banned_scores WHERE user_id = $1
    RETURNING user_id, total_score, score_first_reached_at, revision
)
INSERT INTO scores (user_id, total_score, score_first_reached_at, revision, updated_at)
SELECT user_id, total_score, score_first_reached_at, revision + 1, $2 FROM restored
RETURNING user_id
"""


@dataclass(frozen=True, slots=True)
class ModerationRepository:
    """What operators do to the scores of players; methods raise NotFound."""

    database: Database

    async def adjust(self, adjustment: Adjustment, at: datetime) -> tuple[int, int]:
        """Add an event and change the score; return the points added and the score after it.

        For a repeated adjustment, return the outcome of the first one. Raises PlayerBanned,
        ScoreOverflow, ScoreUnderflow or ActionExists.
        """
        try:
            async with self.database.use("adjust_score") as connection, connection.transaction():
                return await self._adjust(connection, adjustment, at)
        except asyncpg.UniqueViolationError as error:
            raise ActionExists(
                "This adjustment was already made to another player", field="adjustment_id"
            ) from error

    async def _adjust(
        self, connection: Connection, adjustment: Adjustment, at: datetime
    ) -> tuple[int, int]:
        user_id, delta = adjustment.user_id, adjustment.score_delta
        before = await connection.fetchval(
            "SELECT total_score FROM scores WHERE user_id = $1 FOR UPDATE", user_id
        )
        if before is None:
            await self._require_player(connection, user_id)
            raise player_banned()
        earlier = await connection.fetchrow(_FIND_EVENT, user_id, _action_id(adjustment))
        if earlier is not None:
            return earlier["score_delta"], earlier["score_after"]
        after = before + delta
        if after > MAX_SCORE:
            raise score_overflow()
        if after < 0:
            raise ScoreUnderflow(f"The score is {before}", field="score_delta")
        await connection.execute(_ADJUST, user_id, after, at)
        metadata = {"reason": adjustment.reason}
        await connection.execute(
            _ADD_EVENT, user_id, _action_id(adjustment), delta, before, metadata, at
        )
        return delta, after

    async def ban(self, user_id: str, at: datetime) -> int | None:
        """Hide the score and return its last revision; None if the player was banned before."""
        async with self.database.use("ban_player") as connection, connection.transaction():
            revision: int | None = await connection.fetchval(_BAN, user_id, at)
            if revision is None:
                await self._require_player(connection, user_id)
        return revision

    async def unban(self, user_id: str, at: datetime) -> bool:
        """Restore the score; return False if the player was not banned."""
        async with self.database.use("unban_player") as connection, connection.transaction():
            restored = await connection.fetchval(_UNBAN, user_id, at)
            if restored is None:
                await self._require_player(connection, user_id)
        return restored is not None

    async def _require_player(self, connection: Connection, user_id: str) -> None:
        if not await connection.fetchval("SELECT true FROM users WHERE id = $1", user_id):
            raise NotFound("User does not exist", code="user_not_found")


def _action_id(adjustment: Adjustment) -> str:
    """Return the id of the event, which no action of a game server has: those have no space."""
    return f"adjustment {adjustment.adjustment_id}"
