"""SQL statements of the leaderboard in PostgreSQL.

The order is that of the index `idx_scores_leaderboard`, and the same as in Redis: highest score,
then earliest time, then greatest user id. A rank counts the players ahead, so it costs more the
lower the player ranks.
"""

from typing import Final

APPLY: Final = "SELECT * FROM apply_score_change($1, $2, $3, $4, $5, $6, $7)"
STORE_RESPONSE: Final = """
UPDATE consumed_tokens SET response = coalesce(response, $2) WHERE token_hash = $1
RETURNING response
"""
FIND_RESPONSE: Final = "SELECT user_id, response FROM consumed_tokens WHERE token_hash = $1"
DELETE_EXPIRED_TOKENS: Final = """
DELETE FROM consumed_tokens WHERE token_hash = ANY(ARRAY(
    SELECT token_hash FROM consumed_tokens WHERE expires_at < $1
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING token_hash
"""

_ORDER: Final = "total_score DESC, score_first_reached_at ASC, user_id DESC"
LAST_CHANGE: Final = "SELECT max(created_at) FROM score_events"
# The number of players and the time of the last score change, each one index lookup.
_TOTALS: Final = f"SELECT players, ({LAST_CHANGE}) AS changed_at FROM board_size"
# Three separate counts, because each is a pure index range scan.
_SAME_SCORE: Final = "SELECT count(*) FROM scores WHERE total_score = (SELECT total_score FROM me)"
_SAME_TIME: Final = "score_first_reached_at = (SELECT score_first_reached_at FROM me)"
_AHEAD: Final = f"""(
    (SELECT count(*) FROM scores WHERE total_score > (SELECT total_score FROM me))
    + ({_SAME_SCORE} AND score_first_reached_at < (SELECT score_first_reached_at FROM me))
    + ({_SAME_SCORE} AND {_SAME_TIME} AND user_id > (SELECT user_id FROM me))
)"""

TOP: Final = f"""
WITH page AS MATERIALIZED (
    SELECT user_id, total_score, score_first_reached_at FROM scores
    ORDER BY {_ORDER} LIMIT $1 OFFSET $2
), totals AS ({_TOTALS})
SELECT $2::bigint AS start, players, changed_at, user_id, username, total_score,
    score_first_reached_at
FROM totals LEFT JOIN (page JOIN users ON users.id = page.user_id) ON true
ORDER BY {_ORDER}
"""

STANDING: Final = f"""
WITH me AS (SELECT user_id, total_score, score_first_reached_at FROM scores WHERE user_id = $1)
SELECT me.user_id, username, total_score, score_first_reached_at, {_AHEAD} AS ahead,
    (SELECT players FROM board_size) AS players
FROM me JOIN users ON users.id = me.user_id
"""

# The same for many players with one scan of all scores, which counts the players between each two
# requested scores. The scan costs as much as about five single ranks.
STANDINGS: Final = """
WITH requested AS MATERIALIZED (
    SELECT user_id, username, total_score, score_first_reached_at
    FROM scores JOIN users ON users.id = user_id
    WHERE user_id = ANY($1::uuid[])
), bounds AS MATERIALIZED (
    SELECT array_agg(DISTINCT total_score + 1 ORDER BY total_score + 1) AS lower FROM requested
), counted AS MATERIALIZED (
    SELECT width_bucket(total_score, (SELECT lower FROM bounds)) AS bucket, count(*) AS players
    FROM scores WHERE total_score > (SELECT min(total_score) FROM requested) GROUP BY bucket
)
SELECT me.user_id, username, total_score, score_first_reached_at,
    (SELECT players FROM board_size) AS players, (
    (SELECT coalesce(sum(players), 0) FROM counted
        WHERE bucket >= array_position((SELECT lower FROM bounds), me.total_score + 1))
    + (SELECT count(*) FROM scores s WHERE s.total_score = me.total_score
        AND s.score_first_reached_at < me.score_first_reached_at)
    + (SELECT count(*) FROM scores s WHERE s.total_score = me.total_score
        AND s.score_first_reached_at = me.score_first_reached_at AND s.user_id > me.user_id)
)::bigint AS ahead
FROM requested AS me
"""

AROUND: Final = f"""
WITH me AS (SELECT user_id, total_score, score_first_reached_at FROM scores WHERE user_id = $1),
totals AS ({_TOTALS}),
bounds AS (
    SELECT greatest(0, least({_AHEAD} - $2::bigint / 2, players - $2::bigint)) AS start FROM totals
), page AS MATERIALIZED (
    SELECT user_id, total_score, score_first_reached_at FROM scores WHERE EXISTS (SELECT FROM me)
    ORDER BY {_ORDER} LIMIT $2 OFFSET (SELECT start FROM bounds)
)
SELECT start, players, changed_at, user_id, username, total_score, score_first_reached_at
FROM totals CROSS JOIN bounds LEFT JOIN (page JOIN users ON users.id = page.user_id) ON true
ORDER BY {_ORDER}
"""

_SCORES: Final = """
SELECT user_id, username, total_score, score_first_reached_at
FROM scores JOIN users ON users.id = user_id
"""
FIND: Final = f"{_SCORES} WHERE user_id = $1"
FIND_MANY: Final = f"{_SCORES} WHERE user_id = ANY($1::uuid[])"

# The time in the sorted set's members: 16 digits in descending order. See `leaderboard.py`.
MAX_TIME: Final = 10**16 - 1
TIME_DIGITS: Final = 16
_MICROSECONDS: Final = "extract(epoch FROM score_first_reached_at) * 1000000"
_SORTABLE_TIME: Final = f"lpad(({MAX_TIME} - {_MICROSECONDS})::bigint::text, {TIME_DIGITS}, '0')"
# Lowest rank first: a sorted set inserts ascending members with a third less work.
ENTRIES: Final = f"""
SELECT total_score::text, user_id::text || {_SORTABLE_TIME} || username
FROM scores JOIN users ON users.id = user_id
ORDER BY total_score ASC, score_first_reached_at DESC, user_id ASC
"""
# In the form of Redis' replies, so that a page is compared as two lists.
COMPARABLE: Final = f"""
SELECT user_id::text, convert_to(total_score::text, 'UTF8'),
    convert_to({_SORTABLE_TIME} || username, 'UTF8')
FROM scores JOIN users ON users.id = user_id
"""
