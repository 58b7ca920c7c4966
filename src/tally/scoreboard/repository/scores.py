"""The tables `scores` and `consumed_tokens`: score changes, and the leaderboard in PostgreSQL."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import asyncpg

from tally.errors import NotFound, Unavailable
from tally.kit.clock import Clock
from tally.kit.retry import RetryPolicy
from tally.scoreboard.model.accounts import is_canonical_user_id
from tally.scoreboard.model.errors import ForeignActionToken, PlayerBanned, ScoreOverflow
from tally.scoreboard.model.scores import (
    MAX_SCORE,
    AppliedScoreChange,
    LeaderboardPage,
    Score,
    ScoreChange,
    Standing,
)
from tally.scoreboard.repository import score_statements as statements
from tally.scoreboard.repository.board_changes import board_changes, translate_board_error
from tally.scoreboard.repository.database import Database, Row

# SQLSTATEs that `apply_score_change` raises; raising rolls back the use of the token.
USER_BANNED: Final = "TS403"
USER_NOT_FOUND: Final = "TS404"
SCORE_OVERFLOW: Final = "TS409"
# The unique index that makes an action score once, whichever token is used.
ACTION_INDEX: Final = "idx_score_events_action"


def _is_transaction_conflict(error: BaseException) -> bool:
    """Return whether PostgreSQL rolled back because of a concurrent transaction."""
    return isinstance(error, Unavailable) and isinstance(
        error.__cause__, asyncpg.TransactionRollbackError
    )


_CONFLICT_RETRY: Final = RetryPolicy(
    attempts=5, base=0.01, cap=0.2, deadline=2, is_retryable=_is_transaction_conflict
)


@dataclass(frozen=True, slots=True)
class ScoreRepository:
    """Scores by player and in the order of the leaderboard."""

    database: Database
    clock: Clock

    async def apply(self, change: ScoreChange) -> AppliedScoreChange:
        """Consume the token and add the points in one transaction and one round trip.

        If the action was scored before, with this or another token, return the outcome of its
        first use; concurrent uses add once. Raises NotFound, ScoreOverflow, ForeignActionToken or
        SeasonDue, and then changes nothing.
        """
        return await _CONFLICT_RETRY.call(lambda: self._apply(change), self.clock)

    async def _apply(self, change: ScoreChange) -> AppliedScoreChange:
        try:
            row = await self.database.row(
                "apply_score_change",
                statements.APPLY,
                change.token_hash,
                change.action_id,
                change.user_id,
                change.score_delta,
                change.token_expires_at,
                change.at,
                dict(change.client_info),
            )
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name != ACTION_INDEX:
                raise
            return await self._find_use(change)
        except asyncpg.PostgresError as error:
            if error.sqlstate == USER_NOT_FOUND:
                raise NotFound("User does not exist", code="user_not_found") from error
            if error.sqlstate == USER_BANNED:
                raise player_banned() from error
            if error.sqlstate == SCORE_OVERFLOW:
                raise score_overflow() from error
            raise translate_board_error(error) or error from error
        if row is None:
            return await self._find_use(change)
        score = Score(
            change.user_id,
            row["username"],
            row["score_after"],
            row["reached_at"],
            row["revision"],
            row["avatar_url"],
        )
        return AppliedScoreChange(
            change.token_hash,
            score,
            change.score_delta,
            row["score_before"],
            row["score_after"],
            change.at,
            is_replay=False,
            boards=board_changes(row["boards"]),
        )

    async def _find_use(self, change: ScoreChange) -> AppliedScoreChange:
        """Return the first use of the action; raises ForeignActionToken."""
        row = await self.database.row("find_use", statements.FIND_USE, change.action_id)
        if row is None:  # retention deleted it between two statements
            raise Unavailable("The action token is being deleted", retry_after=1)
        if str(row["user_id"]) != change.user_id:
            raise ForeignActionToken(
                "The action token was used by another player", field="action_token"
            )
        response = row["response"]
        return AppliedScoreChange(
            row["action_token_hash"],
            None,
            row["score_delta"],
            row["score_before"],
            row["score_after"],
            row["created_at"],
            is_replay=True,
            response=None if response is None else response.encode(),
            boards=board_changes(row["boards"]),
        )

    async def store_response(self, token_hash: str, response: bytes) -> bytes:
        """Store the response for replays, and return the one that was stored first."""
        stored = await self.database.value(
            "store_response", statements.STORE_RESPONSE, token_hash, response.decode()
        )
        return response if stored is None else str(stored).encode()

    async def find_response(self, action_id: str) -> tuple[str, bytes | None] | None:
        """Return who scored the action and the stored response; None if it was not scored."""
        row = await self.database.row("find_response", statements.FIND_RESPONSE, action_id)
        if row is None:
            return None
        return str(row["user_id"]), None if row["response"] is None else row["response"].encode()

    async def top(self, limit: int, offset: int = 0) -> LeaderboardPage:
        """Return `limit` standings from rank `offset` + 1."""
        return _page(await self.database.rows("top", statements.TOP, offset, limit))

    async def around(self, user_id: str, limit: int) -> LeaderboardPage | None:
        """Return `limit` standings centred on the player; None if the player does not exist."""
        rows = await self.database.rows("around", statements.AROUND, user_id, limit)
        return _page(rows) if rows else None

    async def standing(self, user_id: str) -> tuple[Standing, int] | None:
        """Return the player's standing and the number of players."""
        row = await self.database.row("standing", statements.STANDING, user_id)
        return None if row is None else (_standing(row, row["ahead"] + 1), row["players"])

    async def find(self, user_id: str) -> Score | None:
        """Return the player's score without the rank, which is cheap."""
        row = await self.database.row("find_score", statements.FIND, user_id)
        return None if row is None else _score(row)

    async def find_many(self, user_ids: Sequence[str]) -> dict[str, Score]:
        """Return the scores of the players that exist; invalid ids are ignored."""
        valid_ids = [user_id for user_id in user_ids if is_canonical_user_id(user_id)]
        rows = await self.database.rows("find_scores", statements.FIND_MANY, valid_ids)
        return {str(row["user_id"]): _score(row) for row in rows}

    async def is_banned(self, user_id: str) -> bool:
        """Return whether the player is banned, and so has no score here."""
        return bool(
            await self.database.value(
                "is_banned", "SELECT EXISTS (SELECT FROM banned_scores WHERE user_id = $1)", user_id
            )
        )

    async def entries(self, size: int) -> AsyncIterator[list[Row]]:
        """Iterate over one snapshot of all scores as text for Redis, `size` at a time.

        Each row is the score, and the user id and entry in one string. PostgreSQL
        concatenates them because doing so here would dominate the load of a million players.
        """
        async for rows in self.database.stream("score_entries", statements.ENTRIES, size):
            yield rows

    async def comparable(self, size: int) -> AsyncIterator[Sequence[tuple[Any, ...]]]:
        """Iterate over one snapshot of all user ids, scores and entries, `size` at a time.

        Scores and entries have the form of Redis' replies.
        """
        async for rows in self.database.stream("score_entries", statements.COMPARABLE, size):
            yield tuple(zip(*rows, strict=True))

    async def last_change(self) -> datetime | None:
        """Return the time of the last score change in the retained history."""
        changed_at: datetime | None = await self.database.value(
            "last_change", statements.LAST_CHANGE
        )
        return changed_at

    async def delete_expired_tokens(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` tokens expired before a time, oldest first; return the count."""
        rows = await self.database.rows(
            "delete_expired_tokens", statements.DELETE_EXPIRED_TOKENS, before, limit
        )
        return len(rows)


def player_banned() -> PlayerBanned:
    return PlayerBanned("This player is banned")


def score_overflow() -> ScoreOverflow:
    return ScoreOverflow(f"The score would exceed {MAX_SCORE}", field="score_delta")


def _score(row: Row) -> Score:
    return Score(
        str(row["user_id"]),
        row["username"],
        row["total_score"],
        row["score_first_reached_at"],
        row["revision"],
        row["avatar_url"],
    )


def _standing(row: Row, rank: int) -> Standing:
    return Standing(
        rank,
        str(row["user_id"]),
        row["username"],
        row["total_score"],
        row["score_first_reached_at"],
        row["avatar_url"],
    )


def _page(rows: Sequence[Row]) -> LeaderboardPage:
    first = rows[0]
    players = [row for row in rows if row["user_id"] is not None]
    standings = tuple(
        _standing(row, first["start"] + index) for index, row in enumerate(players, start=1)
    )
    return LeaderboardPage(standings, first["players"], first["changed_at"])
