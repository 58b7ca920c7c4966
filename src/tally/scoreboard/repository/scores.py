"""The tables `scores`, `score_events` and `consumed_tokens`: points, how they came about, and which tokens are used up.

The order of the board is that of the index `idx_scores_leaderboard`, and the same as in Redis: more
points first, then who reached them first, then the greater user id. Reading a rank counts the
players ahead, which takes longer the further down a player is; Redis is there so that this is not
needed.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import asyncpg

from tally.errors import NotFound, Unavailable
from tally.kit.clock import Clock
from tally.kit.retry import RetryPolicy
from tally.scoreboard.model import (
    AppliedScoreChange,
    ForeignActionToken,
    LeaderboardPage,
    Score,
    ScoreChange,
    ScoreOverflow,
    Standing,
    is_canonical_user_id,
)
from tally.scoreboard.repository.database import Database, Row

_APPLY: Final = "SELECT * FROM apply_score_change($1, $2, $3, $4, $5, $6, $7)"
_KEEP_RESPONSE: Final = """
UPDATE consumed_tokens SET response = coalesce(response, $2) WHERE token_hash = $1 RETURNING response
"""

_ORDER: Final = "total_score DESC, score_first_reached_at ASC, user_id DESC"
# How many players there are, and when a score last changed: the newest event says so by the end of
# its index.
_TOTALS: Final = (
    "SELECT players, (SELECT max(created_at) FROM score_events) AS changed_at FROM board_size"
)
# Three counts, since each of them is a search of the index and nothing else.
_SAME_SCORE: Final = "SELECT count(*) FROM scores WHERE total_score = (SELECT total_score FROM me)"
_SAME_TIME: Final = "score_first_reached_at = (SELECT score_first_reached_at FROM me)"
_AHEAD: Final = f"""(
    (SELECT count(*) FROM scores WHERE total_score > (SELECT total_score FROM me))
    + ({_SAME_SCORE} AND score_first_reached_at < (SELECT score_first_reached_at FROM me))
    + ({_SAME_SCORE} AND {_SAME_TIME} AND user_id > (SELECT user_id FROM me))
)"""

_TOP: Final = f"""
WITH stretch AS MATERIALIZED (
    SELECT user_id, total_score, score_first_reached_at FROM scores ORDER BY {_ORDER} LIMIT $1 OFFSET $2
), totals AS ({_TOTALS})
SELECT $2::bigint AS start, players, changed_at, user_id, username, total_score, score_first_reached_at
FROM totals LEFT JOIN (stretch JOIN users ON users.id = stretch.user_id) ON true
ORDER BY {_ORDER}
"""

_PLACE: Final = f"""
WITH me AS (SELECT user_id, total_score, score_first_reached_at FROM scores WHERE user_id = $1)
SELECT me.user_id, username, total_score, score_first_reached_at, {_AHEAD} AS ahead, (SELECT players FROM board_size) AS players
FROM me JOIN users ON users.id = me.user_id
"""

# The same for many players by one walk through all scores, which counts how many lie between each
# two of theirs. One walk takes as long as the ranks of about five players one by one.
_PLACES: Final = """
WITH wanted AS MATERIALIZED (
    SELECT user_id, username, total_score, score_first_reached_at FROM scores JOIN users ON users.id = user_id
    WHERE user_id = ANY($1::uuid[])
), steps AS MATERIALIZED (
    SELECT array_agg(DISTINCT total_score + 1 ORDER BY total_score + 1) AS least FROM wanted
), counted AS MATERIALIZED (
    SELECT width_bucket(total_score, (SELECT least FROM steps)) AS step, count(*) AS players
    FROM scores WHERE total_score > (SELECT min(total_score) FROM wanted) GROUP BY step
)
SELECT me.user_id, username, total_score, score_first_reached_at, (SELECT players FROM board_size) AS players, (
    (SELECT coalesce(sum(players), 0) FROM counted WHERE step >= array_position((SELECT least FROM steps), me.total_score + 1))
    + (SELECT count(*) FROM scores s WHERE s.total_score = me.total_score
        AND s.score_first_reached_at < me.score_first_reached_at)
    + (SELECT count(*) FROM scores s WHERE s.total_score = me.total_score
        AND s.score_first_reached_at = me.score_first_reached_at AND s.user_id > me.user_id)
)::bigint AS ahead
FROM wanted AS me
"""

_AROUND: Final = f"""
WITH me AS (SELECT user_id, total_score, score_first_reached_at FROM scores WHERE user_id = $1),
totals AS ({_TOTALS}),
place AS (
    SELECT greatest(0, least({_AHEAD} - $2::bigint / 2, players - $2::bigint)) AS start FROM totals
), stretch AS MATERIALIZED (
    SELECT user_id, total_score, score_first_reached_at FROM scores WHERE EXISTS (SELECT FROM me)
    ORDER BY {_ORDER} LIMIT $2 OFFSET (SELECT start FROM place)
)
SELECT start, players, changed_at, user_id, username, total_score, score_first_reached_at
FROM totals CROSS JOIN place LEFT JOIN (stretch JOIN users ON users.id = stretch.user_id) ON true
ORDER BY {_ORDER}
"""

_SCORES: Final = "SELECT user_id, username, total_score, score_first_reached_at FROM scores JOIN users ON users.id = user_id"

# The time as a sorted set wants it: the earlier, the greater, always as long. See `board.py`.
GREATEST_TIME: Final = 10**16 - 1
TIME_DIGITS: Final = 16
_DIGITS: Final = f"lpad(({GREATEST_TIME} - extract(epoch FROM score_first_reached_at) * 1000000)::bigint::text, {TIME_DIGITS}, '0')"
_ENTRIES: Final = f"""
SELECT total_score::text, user_id::text || {_DIGITS} || username
FROM scores JOIN users ON users.id = user_id
"""
# The same in the form in which Redis answers, so that a page of both is compared as two lists.
_COMPARABLE: Final = f"""
SELECT user_id::text, convert_to(total_score::text, 'UTF8'), convert_to({_DIGITS} || username, 'UTF8')
FROM scores JOIN users ON users.id = user_id
"""
_LAST_FIRST: Final = "ORDER BY total_score ASC, score_first_reached_at DESC, user_id ASC"

# Raised by the function itself, so that the token is not used up: no such player, and too great a
# sum.
NO_PLAYER: Final = "TS404"
TOO_GREAT: Final = "TS409"


def _met_another(error: BaseException) -> bool:
    """Whether PostgreSQL ended a transaction because two of them met, which says nothing against doing it again."""
    return isinstance(error, Unavailable) and isinstance(
        error.__cause__, asyncpg.TransactionRollbackError
    )


_AGAIN: Final = RetryPolicy(attempts=5, base=0.01, cap=0.2, deadline=2, is_retryable=_met_another)


@dataclass(frozen=True, slots=True)
class ScoreRepository:
    """Scores by player and in the order of the board."""

    database: Database
    clock: Clock

    async def apply(self, change: ScoreChange) -> AppliedScoreChange:
        """Use up the token and add the points, in one transaction and one round trip; or tell what came of its first use.

        All uses of one token, also at the same time, add once. NotFound where there is no such
        player, ScoreOverflow, ForeignActionToken: then nothing was added, and the token is as it was.
        """
        return await _AGAIN.call(lambda: self._apply(change), self.clock)

    async def _apply(self, change: ScoreChange) -> AppliedScoreChange:
        try:
            row = await self.database.row(
                "apply_score_change",
                _APPLY,
                change.token_hash,
                change.action_id,
                change.user_id,
                change.score_delta,
                change.token_expires_at,
                change.at,
                dict(change.client_info),
            )
        except asyncpg.PostgresError as error:
            if error.sqlstate == NO_PLAYER:
                raise NotFound("No such user", code="user_not_found") from error
            if error.sqlstate == TOO_GREAT:
                raise ScoreOverflow("The score would be too great", field="score_delta") from error
            raise
        if row is None:  # used up long ago, and forgotten between two statements
            raise Unavailable("The action token is being forgotten", retry_after=1)
        if str(row["user_id"]) != change.user_id:
            raise ForeignActionToken(
                "The action token was used by another player", field="action_token"
            )
        response = row["response"]
        return AppliedScoreChange(
            change.user_id,
            row["username"],
            row["score_delta"],
            row["score_before"],
            row["score_after"],
            row["applied_at"],
            row["is_replay"],
            None if response is None else response.encode(),
        )

    async def store_response(self, token_hash: str, response: bytes) -> bytes:
        """Keep the answer that a token was given, for those who send it again; the first that is kept stands, and is returned."""
        kept = await self.database.value(
            "keep_response", _KEEP_RESPONSE, token_hash, response.decode()
        )
        return response if kept is None else str(kept).encode()

    async def find_response(self, token_hash: str) -> tuple[str, bytes | None] | None:
        """Who used up the token, and the answer kept for it; None if nobody has."""
        row = await self.database.row(
            "find_response",
            "SELECT user_id, response FROM consumed_tokens WHERE token_hash = $1",
            token_hash,
        )
        if row is None:
            return None
        return str(row["user_id"]), None if row["response"] is None else row["response"].encode()

    async def top(self, limit: int, offset: int = 0) -> LeaderboardPage:
        """A stretch of the board, from the rank `offset` + 1 on."""
        return _board(await self.database.rows("top", _TOP, limit, offset))

    async def around(self, user_id: str, limit: int) -> LeaderboardPage | None:
        """A stretch of the board with the player in its middle, as far as the ends allow; None if there is no such player."""
        rows = await self.database.rows("around", _AROUND, user_id, limit)
        return None if rows[0]["user_id"] is None else _board(rows)

    async def place(self, user_id: str) -> tuple[Standing, int] | None:
        """The player's standing, and how many players there are in all."""
        row = await self.database.row("place", _PLACE, user_id)
        return None if row is None else (_standing(row, row["ahead"] + 1), row["players"])

    async def places(self, user_ids: Sequence[str]) -> dict[str, tuple[Standing, int]]:
        """The same for several players at once, all at the same moment, without those who do not exist."""
        rows = await self.database.rows("places", _PLACES, user_ids)
        return {
            str(row["user_id"]): (_standing(row, row["ahead"] + 1), row["players"]) for row in rows
        }

    async def find(self, user_id: str) -> Score | None:
        """The player's score without the rank, which is cheap."""
        row = await self.database.row("find_score", f"{_SCORES} WHERE user_id = $1", user_id)
        return None if row is None else _score(row)

    async def find_many(self, user_ids: Sequence[str]) -> dict[str, Score]:
        """The scores of those of the players who exist; who has no good id does not."""
        good = [user_id for user_id in user_ids if is_canonical_user_id(user_id)]
        rows = await self.database.rows(
            "find_scores", f"{_SCORES} WHERE user_id = ANY($1::uuid[])", good
        )
        return {str(row["user_id"]): _score(row) for row in rows}

    async def entries(self, size: int) -> AsyncIterator[list[Row]]:
        """All scores as they are at one moment, `size` at a time, each as two texts that Redis takes as they are.

        The first is the score; the second is user id, digits of the time and username in one.
        PostgreSQL puts them together: to do so here would be most of the work where a million are
        loaded. The last of the board come first, since a sorted set takes in what is always greater
        than before with a third less work.
        """
        async for rows in self.database.stream("score_entries", _ENTRIES + _LAST_FIRST, size):
            yield rows

    async def comparable(self, size: int) -> AsyncIterator[Sequence[tuple[Any, ...]]]:
        """All scores as they are at one moment, `size` at a time: user ids, scores and entries, each as Redis would say it."""
        async for rows in self.database.stream("score_entries", _COMPARABLE, size):
            yield tuple(zip(*rows, strict=True))

    async def last_change(self) -> datetime | None:
        """When a score last changed, as far as the events go back."""
        found: datetime | None = await self.database.value(
            "last_change", "SELECT max(created_at) FROM score_events"
        )
        return found

    async def delete_expired_tokens(self, before: datetime, limit: int) -> int:
        """Forget up to `limit` used-up tokens that expired before that moment, the oldest first, and say how many."""
        return len(
            await self.database.rows(
                "delete_expired_tokens",
                "DELETE FROM consumed_tokens WHERE token_hash = ANY(ARRAY(SELECT token_hash FROM consumed_tokens"
                " WHERE expires_at < $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING token_hash",
                before,
                limit,
            )
        )


def _score(row: Row) -> Score:
    return Score(
        str(row["user_id"]), row["username"], row["total_score"], row["score_first_reached_at"]
    )


def _standing(row: Row, rank: int) -> Standing:
    return Standing(
        rank,
        str(row["user_id"]),
        row["username"],
        row["total_score"],
        row["score_first_reached_at"],
    )


def _board(rows: Sequence[Row]) -> LeaderboardPage:
    first = rows[0]
    found = [row for row in rows if row["user_id"] is not None]
    standings = tuple(
        _standing(row, first["start"] + index) for index, row in enumerate(found, start=1)
    )
    return LeaderboardPage(standings, first["players"], first["changed_at"])
