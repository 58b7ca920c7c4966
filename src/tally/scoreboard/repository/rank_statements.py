"""SQL of ranks in PostgreSQL, from counts per band of scores.

`rank_bands` has the number of players of each band, and `rank_changes` the changes since it was
counted; one statement reads both and the scores in one snapshot, so its ranks are exact. A rank is
the number of players ahead of the band, and a count within the band. A page starts at a band at or
before its first rank. The migration that creates the tables says who maintains them.

The order is that of the index `idx_scores_leaderboard`, and the same as in Redis: highest score,
then earliest time, then greatest user id. Conditions are split into ranges of that index, because
PostgreSQL cannot compare rows in a mixed order.
"""

from dataclasses import dataclass
from typing import Final

ORDER: Final = "total_score DESC, score_first_reached_at ASC, user_id DESC"
_NIL: Final = "'00000000-0000-0000-0000-000000000000'::uuid"
# Places: of the player, and of the start of the band.
_MY_SCORE: Final = "(SELECT total_score FROM me)"
_MY_TIME: Final = "(SELECT score_first_reached_at FROM me)"
_MY_ID: Final = "(SELECT user_id FROM me)"
_BAND_SCORE: Final = "(SELECT score FROM band)"
_BAND_TIME: Final = "(SELECT reached_at FROM band)"
_BAND_ID: Final = "(SELECT user_id FROM band)"


@dataclass(frozen=True, slots=True)
class Ranking:
    """A table of scores; `condition` selects a board's rows, and `bands` its bands."""

    table: str
    condition: str
    bands: str

    def players(self) -> str:
        """Return an expression for the number of players."""
        return _counted(self.bands)

    def player_band(self) -> str:
        """Return a query for the start of the band of the player in `me`."""
        return find_band(self.bands, _MY_SCORE, _MY_TIME, _MY_ID)

    def page_band(self) -> str:
        """Return a query for the start of a band at or before rank `start` + 1 of `bounds`.

        As many players as there are changes may be missing in the counts.
        """
        return f"""
    SELECT score, reached_at, user_id FROM (
        SELECT score, reached_at, user_id,
            sum(players) OVER (ORDER BY score DESC, reached_at ASC, user_id DESC) - players AS ahead
        FROM rank_bands WHERE {self.bands}
    ) counted
    WHERE score = 9223372036854775807
        OR ahead + (SELECT count(*) FROM rank_changes WHERE {self.bands})
            <= (SELECT start FROM bounds)
    ORDER BY score ASC, reached_at DESC, user_id ASC LIMIT 1"""

    def ahead_of_band(self) -> str:
        """Return an expression for the number of players ahead of the band in `band`."""
        is_tied_ahead = f"(reached_at = {_BAND_TIME} AND user_id > {_BAND_ID})"
        return _counted(f"""{self.bands} AND (score > {_BAND_SCORE} OR (score = {_BAND_SCORE}
        AND (reached_at < {_BAND_TIME} OR {is_tied_ahead})))""")

    def ahead(self) -> str:
        """Return an expression for the number of players ahead of `me`, in the band `band`."""
        count = f"SELECT count(*) FROM {self.table} WHERE {self.condition}"
        is_same_score = f"{_BAND_SCORE} = {_MY_SCORE}"
        is_same_time = f"({is_same_score} AND {_BAND_TIME} = {_MY_TIME})"
        return f"""({self.ahead_of_band()}
    + ({count} AND total_score = {_BAND_SCORE} AND score_first_reached_at = {_BAND_TIME}
        AND user_id <= {_BAND_ID}
        AND user_id >= CASE WHEN {is_same_time} THEN {_MY_ID} ELSE {_NIL} END
        AND NOT ({is_same_time} AND user_id = {_MY_ID}))
    + ({count} AND total_score = {_BAND_SCORE} AND score_first_reached_at > {_BAND_TIME}
        AND score_first_reached_at < CASE WHEN {is_same_score} THEN {_MY_TIME} ELSE 'infinity' END)
    + ({count} AND total_score < {_BAND_SCORE} AND total_score > {_MY_SCORE})
    + ({count} AND total_score = {_MY_SCORE} AND NOT {is_same_score}
        AND score_first_reached_at < {_MY_TIME})
    + ({count} AND total_score = {_MY_SCORE} AND score_first_reached_at = {_MY_TIME}
        AND NOT {is_same_time} AND user_id > {_MY_ID})
)"""

    def page(self, limit: str) -> str:
        """Return a query for the scores from rank `start` + 1 of `bounds`, in the band `band`."""
        skip = f"((SELECT start FROM bounds) - {self.ahead_of_band()})"
        rows = _rows_from(
            self.table,
            self.condition,
            (_BAND_SCORE, _BAND_TIME, _BAND_ID),
            f"{limit} + {skip}",
        )
        return f"{rows} ORDER BY {ORDER} LIMIT {limit} OFFSET {skip}"


def _counted(condition: str) -> str:
    """Return an expression for the number of players, by counted bands and by changes."""
    return f"""(
    (SELECT coalesce(sum(players), 0) FROM rank_bands WHERE {condition})
    + (SELECT coalesce(sum(players), 0) FROM rank_changes WHERE {condition})
)::bigint"""


def find_band(bands: str, score: str, time: str, user_id: str) -> str:
    """Return a query for the start of the band of a place."""
    start = f"SELECT score, reached_at, user_id FROM rank_bands WHERE {bands}"
    return f"""
    ({start} AND score = {score} AND reached_at = {time} AND user_id >= {user_id}
        ORDER BY user_id ASC LIMIT 1)
    UNION ALL
    ({start} AND score = {score} AND reached_at < {time}
        ORDER BY reached_at DESC, user_id ASC LIMIT 1)
    UNION ALL
    ({start} AND score > {score} ORDER BY score ASC, reached_at DESC, user_id ASC LIMIT 1)
    LIMIT 1"""


def _rows_from(table: str, condition: str, start: tuple[str, str, str], limit: str) -> str:
    """Return a query, which the caller orders and limits, for the scores from a place on."""
    score, time, user_id = start
    columns = "user_id, total_score, score_first_reached_at"
    rows = f"SELECT {columns} FROM {table} WHERE {condition}"
    end = f"ORDER BY {ORDER} LIMIT {limit}"
    return f"""
    SELECT {columns} FROM (
        ({rows} AND total_score = {score} AND score_first_reached_at = {time}
            AND user_id <= {user_id} {end})
        UNION ALL
        ({rows} AND total_score = {score} AND score_first_reached_at > {time} {end})
        UNION ALL
        ({rows} AND total_score < {score} {end})
    ) following"""


GLOBAL: Final = Ranking("scores", "true", "board = 'global' AND season = 0")


def season_ranking(board: int, season: int) -> Ranking:
    """Return the ranking of a season; the arguments are the numbers of statement parameters."""
    bands = f"board = ${board}::varchar AND season = ${season}::integer"
    return Ranking("board_scores", f"{bands} AND NOT is_hidden", bands)


_START: Final = "board, season, score, reached_at, user_id"
_SAME_BAND: Final = (
    "(b.board, b.season, b.score, b.reached_at, b.user_id)"
    " = (m.board, m.season, m.score, m.reached_at, m.user_id)"
)
_BAND_OF_PLACE: Final = find_band(
    "board = p.board AND season = p.season", "p.score", "p.reached_at", "p.user_id"
)

# Adds the changes to the bands. Returns their number, the boards and seasons that changed, and the
# players who left a place and no longer exist.
FOLD: Final = f"""
WITH drained AS (
    DELETE FROM rank_changes RETURNING {_START}, players
), places AS MATERIALIZED (
    SELECT {_START}, sum(players) AS players FROM drained
    GROUP BY {_START} HAVING sum(players) <> 0
), moved AS (
    SELECT p.board, p.season, b.score, b.reached_at, b.user_id, sum(p.players) AS players
    FROM places p CROSS JOIN LATERAL ({_BAND_OF_PLACE}) b
    GROUP BY p.board, p.season, b.score, b.reached_at, b.user_id HAVING sum(p.players) <> 0
), updated AS (
    UPDATE rank_bands b SET players = b.players + m.players FROM moved m WHERE {_SAME_BAND}
)
SELECT count(*) AS changes,
    ARRAY(SELECT DISTINCT board || ' ' || season FROM drained) AS seasons,
    ARRAY(SELECT DISTINCT d.user_id FROM drained d
        WHERE players < 0 AND NOT EXISTS (SELECT FROM users u WHERE u.id = d.user_id)) AS departed
FROM drained
"""

# Merges every other band of the boards and seasons $2 into the one before it if both together have
# at most $1 players.
MERGE: Final = f"""
WITH pairs AS (
    SELECT {_START}, players, row_number() OVER board_order AS position,
        lag(players) OVER board_order AS players_before,
        lag(score) OVER board_order AS score_before,
        lag(reached_at) OVER board_order AS reached_before,
        lag(user_id) OVER board_order AS user_before
    FROM rank_bands WHERE board || ' ' || season = ANY($2) WINDOW board_order AS (
        PARTITION BY board, season ORDER BY score DESC, reached_at ASC, user_id DESC)
), merged AS MATERIALIZED (
    SELECT * FROM pairs WHERE position % 2 = 0 AND players + players_before <= $1
), enlarged AS (
    UPDATE rank_bands b SET players = b.players + m.players FROM merged m
    WHERE (b.board, b.season, b.score, b.reached_at, b.user_id)
        = (m.board, m.season, m.score_before, m.reached_before, m.user_before)
)
DELETE FROM rank_bands b USING merged m WHERE {_SAME_BAND}
"""


def split_bands(table: str, condition: str, bands: str) -> str:
    """Return a statement that splits bands of more than $1 players into parts of $2.

    `bands` selects the bands of this table, and `condition` relates its rows to the band `big`.
    """
    start = ("big.score", "big.reached_at", "big.user_id")
    rows = _rows_from(table, condition, start, "big.players")
    return f"""
WITH big AS MATERIALIZED (
    SELECT * FROM rank_bands WHERE {bands} AND players > $1
), ranked AS (
    SELECT big.board, big.season, big.players, big.score AS start, big.reached_at AS start_at,
        big.user_id AS start_id, total_score, score_first_reached_at, r.user_id,
        row_number() OVER (PARTITION BY big.board, big.season, big.score, big.reached_at,
            big.user_id ORDER BY total_score DESC, score_first_reached_at ASC, r.user_id DESC
        ) AS position
    FROM big CROSS JOIN LATERAL ({rows} ORDER BY {ORDER} LIMIT big.players) r
), parts AS MATERIALIZED (
    SELECT *, least($2, players - position + 1) AS part FROM ranked WHERE position % $2 = 1
), reduced AS (
    UPDATE rank_bands b SET players = part FROM parts p WHERE position = 1
        AND (b.board, b.season, b.score, b.reached_at, b.user_id)
            = (p.board, p.season, p.start, p.start_at, p.start_id)
)
INSERT INTO rank_bands
SELECT board, season, total_score, score_first_reached_at, user_id, part
FROM parts WHERE position > 1
"""


SPLIT_GLOBAL: Final = split_bands("scores", "true", "board = 'global'")
_SAME_SEASON: Final = "board = {0}.board AND season = {0}.season AND NOT is_hidden"
SPLIT_SEASONS: Final = split_bands("board_scores", _SAME_SEASON.format("big"), "board <> 'global'")


def restart_bands(table: str, condition: str, bands: str) -> str:
    """Return a statement that lets bands that begin at a player of $1 begin at the next one.

    The players of $1 have no place any more, so no player changes the band.
    """
    rows = _rows_from(table, condition, ("b.score", "b.reached_at", "b.user_id"), "1")
    return f"""
UPDATE rank_bands b SET (score, reached_at, user_id) = (
    SELECT total_score, score_first_reached_at, user_id FROM ({rows}) r ORDER BY {ORDER} LIMIT 1
)
WHERE {bands} AND players > 0 AND b.user_id = ANY($1)
"""


RESTART_GLOBAL: Final = restart_bands("scores", "true", "b.board = 'global'")
RESTART_SEASONS: Final = restart_bands(
    "board_scores", _SAME_SEASON.format("b"), "b.board <> 'global'"
)
DELETE_EMPTY: Final = "DELETE FROM rank_bands WHERE players = 0 AND user_id = ANY($1)"
