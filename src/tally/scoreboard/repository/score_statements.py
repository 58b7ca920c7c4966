"""SQL statements of scores and used tokens in PostgreSQL, and of the global leaderboard."""

from typing import Final

from tally.scoreboard.repository.rank_statements import GLOBAL, ORDER, Ranking

APPLY: Final = "SELECT * FROM apply_score_change($1, $2, $3, $4, $5, $6, $7)"
STORE_RESPONSE: Final = """
UPDATE consumed_tokens SET response = coalesce(response, $2) WHERE token_hash = $1
RETURNING response
"""
FIND_RESPONSE: Final = """
SELECT c.user_id, c.response FROM score_events e
JOIN consumed_tokens c ON c.token_hash = e.action_token_hash
WHERE e.action_id = $1
"""
# The first use of an action, by whichever token.
FIND_USE: Final = """
SELECT e.action_token_hash, e.user_id, e.score_delta, e.score_before, e.score_after, e.created_at,
    c.response, e.boards
FROM score_events e LEFT JOIN consumed_tokens c ON c.token_hash = e.action_token_hash
WHERE e.action_id = $1
"""
DELETE_EXPIRED_TOKENS: Final = """
DELETE FROM consumed_tokens WHERE token_hash = ANY(ARRAY(
    SELECT token_hash FROM consumed_tokens WHERE expires_at < $1
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING token_hash
"""

LAST_CHANGE: Final = "SELECT max(created_at) FROM score_events"
_ME: Final = """SELECT user_id, total_score, score_first_reached_at FROM scores
    WHERE user_id = $1"""


def _page(ranking: Ranking, last_change: str) -> str:
    """Return the columns of a page; the statement before it defines `bounds` and `band`."""
    return f"""page AS MATERIALIZED ({ranking.page("$2::bigint")}
), totals AS (SELECT {ranking.players()} AS players, ({last_change}) AS changed_at)
SELECT start, players, changed_at, user_id, username, avatar_url, total_score,
    score_first_reached_at
FROM totals CROSS JOIN bounds LEFT JOIN (page JOIN users ON users.id = page.user_id) ON true
ORDER BY {ORDER}
"""


TOP: Final = f"""
WITH bounds AS (SELECT $1::bigint AS start), band AS ({GLOBAL.page_band()}),
{_page(GLOBAL, LAST_CHANGE)}
"""

STANDING: Final = f"""
WITH me AS ({_ME}), band AS ({GLOBAL.player_band()})
SELECT me.user_id, username, avatar_url, total_score, score_first_reached_at,
    {GLOBAL.ahead()} AS ahead, {GLOBAL.players()} AS players
FROM me JOIN users ON users.id = me.user_id
"""

AROUND: Final = f"""
WITH me AS ({_ME}), mine AS (
    WITH band AS ({GLOBAL.player_band()}) SELECT {GLOBAL.ahead()} AS ahead
), bounds AS (
    SELECT greatest(0, least(ahead - $2::bigint / 2, {GLOBAL.players()} - $2::bigint)) AS start
    FROM me CROSS JOIN mine
), band AS ({GLOBAL.page_band()}),
{_page(GLOBAL, LAST_CHANGE)}
"""

_SCORES: Final = """
SELECT user_id, username, avatar_url, total_score, score_first_reached_at, revision
FROM scores JOIN users ON users.id = user_id
"""
FIND: Final = f"{_SCORES} WHERE user_id = $1"
FIND_MANY: Final = f"{_SCORES} WHERE user_id = ANY($1::uuid[])"

# The time in the sorted set's members: 16 digits in descending order. See `leaderboard.py`.
MAX_TIME: Final = 10**16 - 1
TIME_DIGITS: Final = 16
_MICROSECONDS: Final = "extract(epoch FROM score_first_reached_at) * 1000000"
_SORTABLE_TIME: Final = f"lpad(({MAX_TIME} - {_MICROSECONDS})::bigint::text, {TIME_DIGITS}, '0')"
ENTRY: Final = f"{_SORTABLE_TIME} || revision || ' ' || username || coalesce(' ' || avatar_url, '')"
# Lowest rank first: a sorted set inserts ascending members with a third less work.
ENTRIES: Final = f"""
SELECT total_score::text, user_id::text || {ENTRY}
FROM scores JOIN users ON users.id = user_id
ORDER BY total_score ASC, score_first_reached_at DESC, user_id ASC
"""
# In the form of Redis' replies, so that a page is compared as two lists.
COMPARABLE: Final = f"""
SELECT user_id::text, convert_to(total_score::text, 'UTF8'),
    convert_to({ENTRY}, 'UTF8')
FROM scores JOIN users ON users.id = user_id
"""
