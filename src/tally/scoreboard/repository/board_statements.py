"""SQL of named boards: their standings in a season, and the rows of a player on all of them.

The scores of ascending boards are stored negated, so that the order is that of the global board.
The row of a deleted player in a closed season has no user, hence the outer joins.
"""

from typing import Final

from tally.scoreboard.repository.rank_statements import Ranking, season_ranking
from tally.scoreboard.repository.score_statements import ENTRY

# Parameters: offset or player, limit, board, season; of a player alone: player, board, season.
_PAGE: Final = season_ranking(3, 4)
_PLAYER: Final = season_ranking(2, 3)
_ALL: Final = season_ranking(1, 2)


def _me(ranking: Ranking) -> str:
    return f"""SELECT user_id, total_score, score_first_reached_at FROM board_scores
    WHERE user_id = $1 AND {ranking.condition}"""


def _last_change(ranking: Ranking) -> str:
    return f"SELECT max(score_first_reached_at) FROM board_scores WHERE {ranking.condition}"


_PAGE_COLUMNS: Final = f"""page AS MATERIALIZED ({_PAGE.page("$2::bigint")}
), totals AS (SELECT {_PAGE.players()} AS players, ({_last_change(_PAGE)}) AS changed_at)
SELECT start, players, changed_at, page.user_id, username, avatar_url, total_score,
    score_first_reached_at
FROM totals CROSS JOIN bounds LEFT JOIN (page LEFT JOIN users ON users.id = page.user_id) ON true
ORDER BY total_score DESC, score_first_reached_at ASC, page.user_id DESC
"""

TOP: Final = f"""
WITH bounds AS (SELECT $1::bigint AS start), band AS ({_PAGE.page_band()}),
{_PAGE_COLUMNS}
"""
AROUND: Final = f"""
WITH me AS ({_me(_PAGE)}), mine AS (
    WITH band AS ({_PAGE.player_band()}) SELECT {_PAGE.ahead()} AS ahead
), bounds AS (
    SELECT greatest(0, least(ahead - $2::bigint / 2, {_PAGE.players()} - $2::bigint)) AS start
    FROM me CROSS JOIN mine
), band AS ({_PAGE.page_band()}),
{_PAGE_COLUMNS}
"""
STANDING: Final = f"""
WITH me AS ({_me(_PLAYER)}), band AS ({_PLAYER.player_band()})
SELECT me.user_id, username, avatar_url, total_score, score_first_reached_at,
    {_PLAYER.ahead()} AS ahead, {_PLAYER.players()} AS players
FROM me LEFT JOIN users ON users.id = me.user_id
"""
PLAYERS: Final = f"SELECT {_ALL.players()}"
LAST_CHANGE: Final = _last_change(_ALL)

FIND_MANY: Final = f"""
SELECT user_id, username, avatar_url, total_score, score_first_reached_at, revision
FROM board_scores JOIN users ON users.id = user_id
WHERE user_id = ANY($1::uuid[]) AND {_PLAYER.condition}
"""
_JOINED: Final = f"FROM board_scores JOIN users ON users.id = user_id WHERE {_ALL.condition}"
ENTRIES: Final = f"""
SELECT total_score::text, user_id::text || {ENTRY} {_JOINED}
ORDER BY total_score ASC, score_first_reached_at DESC, user_id ASC
"""
COMPARABLE: Final = f"""
SELECT user_id::text, convert_to(total_score::text, 'UTF8'), convert_to({ENTRY}, 'UTF8') {_JOINED}
"""

_BOARD: Final = (
    "id, name, is_ascending, operator, schedule, time_zone, created_at, season, season_started_at,"
    " season_ends_at"
)
CREATE_BOARD: Final = f"""
INSERT INTO boards (id, name, is_ascending, operator, schedule, time_zone, created_at,
    season_started_at, season_ends_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8) ON CONFLICT DO NOTHING RETURNING {_BOARD}
"""
FIND_BOARD: Final = f"SELECT {_BOARD} FROM boards WHERE id = $1"
LIST_BOARDS: Final = f"SELECT {_BOARD} FROM boards WHERE id > $1 ORDER BY id LIMIT $2"
FIND_DUE: Final = f"""
SELECT {_BOARD} FROM boards WHERE season_ends_at <= $1 ORDER BY season_ends_at LIMIT $2
"""
EXISTING_BOARDS: Final = "SELECT id FROM boards WHERE id = ANY($1)"
ADD_FIRST_BAND: Final = """
INSERT INTO rank_bands VALUES
    ($1, $2, 9223372036854775807, '-infinity', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 0)
"""
LOCK_BOARD: Final = "SELECT pg_advisory_xact_lock(board_lock($1))"
# The season must still be the one that the caller knows.
CLOSE_SEASON: Final = f"""
UPDATE boards SET season = season + $3, season_started_at = $4, season_ends_at = $5
WHERE id = $1 AND season = $2 RETURNING {_BOARD}
"""
ADD_SEASONS: Final = """
INSERT INTO seasons (board, number, started_at, ended_at, players)
SELECT $1, $2 + position::integer - 1, coalesce(lag(ended_at) OVER (ORDER BY position), $3),
    ended_at, CASE position WHEN 1 THEN $5::bigint ELSE 0 END
FROM unnest($4::timestamptz[]) WITH ORDINALITY AS closed (ended_at, position)
"""
LIST_SEASONS: Final = """
SELECT number, started_at, ended_at, players FROM seasons
WHERE board = $1 AND number < $2 ORDER BY number DESC LIMIT $3
"""
FIND_SEASON: Final = """
SELECT number, started_at, ended_at, players FROM seasons WHERE board = $1 AND number = $2
"""

# The rows of player $1 in open seasons. Locking their boards first keeps these seasons open.
_OPEN: Final = "FROM boards b WHERE s.user_id = $1 AND s.board = b.id AND s.season = b.season"
LOCK_BOARDS: Final = """
SELECT pg_advisory_xact_lock_shared(board_lock(id)) FROM (
    SELECT id FROM boards b WHERE EXISTS (
        SELECT FROM board_scores s WHERE s.user_id = $1 AND s.board = b.id
    ) ORDER BY id
) played
"""
# A board with such a row whose season has ended by time $2 and has to be closed first.
FIND_DUE_BOARD: Final = """
SELECT b.id FROM boards b JOIN board_scores s ON s.board = b.id AND s.season = b.season
WHERE s.user_id = $1 AND b.season_ends_at <= $2 LIMIT 1
"""
HIDE: Final = f"""
UPDATE board_scores s SET is_hidden = true {_OPEN}
RETURNING s.board, s.season, s.revision
"""
SHOW: Final = f"""
UPDATE board_scores s SET is_hidden = false, revision = s.revision + 1 {_OPEN} AND s.is_hidden
RETURNING s.board, s.season, s.revision
"""
TOUCH: Final = f"""
UPDATE board_scores s SET revision = s.revision + 1 {_OPEN} AND NOT s.is_hidden
RETURNING s.board, s.season, s.revision
"""
DELETE_OPEN: Final = """
DELETE FROM board_scores s USING boards b
WHERE s.user_id = $1 AND s.board = b.id AND s.season = b.season
RETURNING s.board, s.season, s.revision
"""
# One id for all rows would tell that they are one person's.
ANONYMISE: Final = "UPDATE board_scores SET user_id = gen_random_uuid() WHERE user_id = $1"

FIND_PLACES: Final = """
SELECT s.board, s.season, s.revision
FROM board_scores s JOIN boards b ON b.id = s.board AND b.season = s.season
WHERE s.user_id = $1 AND NOT s.is_hidden ORDER BY s.board
"""
