"""Adjusted scores, and the table `banned_scores`.

A ban moves the score to `banned_scores`, so that no leaderboard query finds it. The score row is
locked first, as in a score change.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import asyncpg

from tally.errors import NotFound, Unavailable
from tally.scoreboard.model.boards import BoardPlace
from tally.scoreboard.model.errors import ActionExists, ScoreUnderflow
from tally.scoreboard.model.scores import MAX_SCORE, Adjustment, AppliedAdjustment
from tally.scoreboard.repository.board_changes import (
    SCORE_UNDERFLOW,
    hide_scores,
    show_scores,
    translate_board_error,
)
from tally.scoreboard.repository.database import Connection, Database, Row
from tally.scoreboard.repository.scores import SCORE_OVERFLOW, player_banned, score_overflow

_ADJUST: Final = """
UPDATE scores SET total_score = $2, score_first_reached_at = $3, revision = revision + 1,
    updated_at = $3
WHERE user_id = $1
"""
_ADD_EVENT: Final = """
INSERT INTO score_events
    (user_id, action_token_hash, action_id, score_delta, score_before, score_after, metadata,
    created_at, boards)
VALUES ($1, gen_random_uuid()::text, $2, $3::integer, $4, $5, $6, $7, $8)
"""
_FIND_EVENT: Final = """
SELECT score_delta, score_after, boards FROM score_events WHERE user_id = $1 AND action_id = $2
"""
_ADJUST_BOARD: Final = "SELECT apply_board_change($1, $2::uuid, $3::bigint, true, $4)"
_BAN: Final = """
WITH removed AS (
    DELETE FROM scores WHERE user_id = $1
    RETURNING user_id, total_score, score_first_reached_at, revision
)
INSERT INTO banned_scores SELECT *, $2 FROM removed RETURNING revision
"""
_FIND_BAN: Final = "SELECT revision FROM banned_scores WHERE user_id = $1 FOR SHARE"
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
class Ban:
    """The last revision of a banned player's score, and the player's places in open seasons."""

    revision: int
    places: list[BoardPlace]
    is_new: bool


@dataclass(frozen=True, slots=True)
class ModerationRepository:
    """What operators do to the scores of players; methods raise NotFound."""

    database: Database

    async def adjust(self, adjustment: Adjustment, at: datetime) -> AppliedAdjustment:
        """Add an event and change the score.

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
    ) -> AppliedAdjustment:
        user_id, delta = adjustment.user_id, adjustment.score_delta
        before = await connection.fetchval(
            "SELECT total_score FROM scores WHERE user_id = $1 FOR UPDATE", user_id
        )
        if before is None:
            await self._require_player(connection, user_id)
            raise player_banned()
        earlier = await connection.fetchrow(_FIND_EVENT, user_id, _action_id(adjustment))
        if earlier is not None:
            return _outcome(adjustment, earlier)
        total, change = before, None
        if adjustment.board is None:
            total = await self._adjust_total(connection, adjustment, before, at)
        else:
            change = await self._adjust_board(connection, adjustment.board, adjustment, at)
        await connection.execute(
            _ADD_EVENT,
            user_id,
            _action_id(adjustment),
            delta,
            before,
            total,
            {"reason": adjustment.reason},
            at,
            change,
        )
        return _applied(adjustment, total, change)

    async def _adjust_total(
        self, connection: Connection, adjustment: Adjustment, before: int, at: datetime
    ) -> int:
        after = before + adjustment.score_delta
        if after > MAX_SCORE:
            raise score_overflow()
        if after < 0:
            raise ScoreUnderflow(f"The score is {before}", field="score_delta")
        await connection.execute(_ADJUST, adjustment.user_id, after, at)
        return after

    async def _adjust_board(
        self, connection: Connection, board: str, adjustment: Adjustment, at: datetime
    ) -> dict[str, Any]:
        try:
            change = await connection.fetchval(
                _ADJUST_BOARD, board, adjustment.user_id, adjustment.score_delta, at
            )
        except asyncpg.PostgresError as error:
            if error.sqlstate == SCORE_OVERFLOW:
                raise score_overflow() from error
            if error.sqlstate == SCORE_UNDERFLOW:
                raise ScoreUnderflow(str(error), field="score_delta") from error
            raise translate_board_error(error) or error from error
        return {board: {name: change[name] for name in ("season", "before", "after")}}

    async def ban(self, user_id: str, at: datetime) -> Ban:
        """Hide the scores; closed seasons do not change.

        A repeated ban changes nothing, and returns what may still be in Redis.
        """
        async with self.database.use("ban_player") as connection, connection.transaction():
            revision: int | None = await connection.fetchval(_BAN, user_id, at)
            is_new = revision is not None
            if revision is None:
                await self._require_player(connection, user_id)
                revision = await connection.fetchval(_FIND_BAN, user_id)
            if revision is None:
                raise Unavailable("The ban has just ended", retry_after=1)
            places = await hide_scores(connection, user_id, at)
        return Ban(revision, places, is_new=is_new)

    async def unban(self, user_id: str, at: datetime) -> bool:
        """Restore the scores; return False if the player was not banned."""
        async with self.database.use("unban_player") as connection, connection.transaction():
            restored = await connection.fetchval(_UNBAN, user_id, at)
            if restored is None:
                await self._require_player(connection, user_id)
                return False
            await show_scores(connection, user_id, at)
        return True

    async def _require_player(self, connection: Connection, user_id: str) -> None:
        if not await connection.fetchval("SELECT true FROM users WHERE id = $1", user_id):
            raise NotFound("User does not exist", code="user_not_found")


def _action_id(adjustment: Adjustment) -> str:
    """Return the id of the event, which no action of a game server has: those have no space."""
    return f"adjustment {adjustment.adjustment_id}"


def _applied(
    adjustment: Adjustment, total: int, boards: dict[str, Any] | None
) -> AppliedAdjustment:
    if adjustment.board is None or boards is None:
        return AppliedAdjustment(adjustment.score_delta, total)
    change = boards[adjustment.board]
    return AppliedAdjustment(adjustment.score_delta, change["after"], change["season"])


def _outcome(adjustment: Adjustment, event: Row) -> AppliedAdjustment:
    """Return what the first request of the adjustment changed; raises ActionExists.

    The reason is not compared, like the metadata of actions: that of the first request is kept.
    """
    if event["score_delta"] != adjustment.score_delta:
        raise ActionExists(
            "This adjustment was already made with another score_delta", field="adjustment_id"
        )
    if set(event["boards"] or {}) != ({adjustment.board} - {None}):
        raise ActionExists(
            "This adjustment was already made to another board", field="adjustment_id"
        )
    return _applied(adjustment, event["score_after"], event["boards"])
