"""Lua scripts that count requests in Redis, alone or with what the request reads.

`leaderboard.py`, `rate_limits.py` and `cache.py` document the keys.
"""

from typing import Final

from tally.scoreboard.repository.scripts import READ_RANGE

# Counts a request in a window, a sorted set of requests by microseconds. ARGV from `first`: now,
# window in microseconds, limit, request id. Returns whether the request is allowed, the number of
# requests in the window, and the microseconds until one more is allowed and until all have left
# it. A request exactly one window later is allowed. A replay is allowed and not counted.
_HIT: Final = """
local function hit(key, first, is_replay)
    local now, window = tonumber(ARGV[first]), tonumber(ARGV[first + 1])
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - window)
    local count = redis.call('ZCARD', key)
    if is_replay then
        local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] or now - window
        return {1, count, 0, newest + window - now}
    end
    if count < tonumber(ARGV[first + 2]) then
        redis.call('ZADD', key, ARGV[first], ARGV[first + 3])
        redis.call('PEXPIRE', key, math.ceil(window / 1000))
        return {1, count + 1, 0, window}
    end
    local oldest = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or now
    local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] or now
    return {0, count, oldest + window - now, newest + window - now}
end
"""

# KEYS: the window. ARGV: those of `hit`.
HIT: Final = _HIT + "return hit(KEYS[1], 1)"

# KEYS: those of the leaderboard and the window. ARGV: offset, limit, the version of the page that
# the process has, and those of `hit`. Returns the result of `hit` and, if the request is allowed
# and the leaderboard complete, the version of the page and, unless the process has it, the result
# of TOP. The version is empty if Redis has none; it includes sizes, which an eviction changes.
HIT_AND_TOP: Final = (
    _HIT
    + READ_RANGE
    + """
local status = hit(KEYS[6], 4)
if status[1] == 0 then return {status} end
local changed, version = unpack(redis.call('MGET', KEYS[3], KEYS[5]))
if not changed then return {status} end
if version then
    local players, entries = redis.call('ZCARD', KEYS[1]), redis.call('HLEN', KEYS[2])
    version = table.concat({version, changed, players, entries}, ':')
    if version == ARGV[3] then return {status, version} end
end
return {status, version or '', read_range(tonumber(ARGV[1]), tonumber(ARGV[2]))}
"""
)

# KEYS: the window. ARGV: a request id. Undoes the count of a request.
REFUND: Final = "return redis.call('ZREM', KEYS[1], ARGV[1])"

# KEYS: the window, a session, a response. ARGV: those of `hit`. Returns the session and, if it is
# cached as active, the result of `hit` and the response of an earlier use, if there is one.
HIT_AND_FIND: Final = (
    _HIT
    + """
local session = redis.call('GET', KEYS[2])
if not session or not string.find(session, '"revoked":false', 1, true) then return {session} end
local response = redis.call('GET', KEYS[3])
if response == 'consumed' then response = false end
return {session, hit(KEYS[1], 1, response), response}
"""
)
