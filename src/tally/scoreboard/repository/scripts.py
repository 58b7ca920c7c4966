"""The scripts that run inside Redis.

Each is atomic; what their keys hold is told in `board.py` and `limits.py`.

KEYS are the board, its players, its last change and the mark of a rebuild; the keys of a new board
begin with what the mark says. A board is whole if its last change is there, be it 0: a Redis that
was restarted has none until the board is rebuilt.
"""

from typing import Final

_PLACE_OF: Final = """
local function place_of(board, players, user)
    local entry = redis.call('HGET', players, user)
    if not entry then return nil end
    local member = string.sub(entry, 1, 16) .. user
    return member, redis.call('ZSCORE', board, member), entry
end
"""

# user, score, digits of the time, username, microseconds; KEYS[5] says that the player was removed.
# The rank from 0; -1: there is no whole board; -2: the player was removed.
PUT: Final = (
    _PLACE_OF
    + """
local user, score, digits, username, moment = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local function put(board, players, changed)
    local member, known = place_of(board, players, user)
    if known and tonumber(known) >= tonumber(score) then return end
    if member then redis.call('ZREM', board, member) end
    redis.call('ZADD', board, score, digits .. user)
    redis.call('HSET', players, user, digits .. username)
    if tonumber(score) > 0 and tonumber(moment) > tonumber(redis.call('GET', changed) or 0) then
        redis.call('SET', changed, moment)
    end
end
if redis.call('EXISTS', KEYS[5]) == 1 then return -2 end
local new = redis.call('GET', KEYS[4])
if new then put(new, new .. ':players', new .. ':changed') end
if redis.call('EXISTS', KEYS[3]) == 0 then return -1 end
put(KEYS[1], KEYS[2], KEYS[3])
return redis.call('ZREVRANK', KEYS[1], (place_of(KEYS[1], KEYS[2], user)))
"""
)

# user, seconds to remember it; KEYS[5] is where. The rank from 0 that the player had, or -1.
REMOVE: Final = (
    _PLACE_OF
    + """
local user = ARGV[1]
redis.call('SET', KEYS[5], '1', 'EX', ARGV[2])
local new = redis.call('GET', KEYS[4])
if new then redis.call('SADD', new .. ':removed', user) end
local member = place_of(KEYS[1], KEYS[2], user)
if not member then return -1 end
local rank = redis.call('ZREVRANK', KEYS[1], member)
redis.call('ZREM', KEYS[1], member)
redis.call('HDEL', KEYS[2], user)
return rank or -1
"""
)

_STRETCH: Final = """
local function stretch(start, limit)
    local found = redis.call('ZREVRANGE', KEYS[1], start, start + limit - 1, 'WITHSCORES')
    local answer = {redis.call('ZCARD', KEYS[1]), redis.call('GET', KEYS[3]), start}
    if #found == 0 then return answer end
    local users = {}
    for index = 1, #found, 2 do users[#users + 1] = string.sub(found[index], 17) end
    local entries = redis.call('HMGET', KEYS[2], unpack(users))
    for index = 1, #users do
        answer[#answer + 1] = users[index]
        answer[#answer + 1] = found[2 * index]
        answer[#answer + 1] = entries[index] or string.sub(found[2 * index - 1], 1, 16)
    end
    return answer
end
"""

# offset, limit. How many players, the last change, where the stretch starts, and then user, score
# and entry of each.
TOP: Final = (
    _STRETCH
    + """
if redis.call('EXISTS', KEYS[3]) == 0 then return nil end
return stretch(tonumber(ARGV[1]), tonumber(ARGV[2]))
"""
)

# user, limit. The same, or 0 if there is no such player.
AROUND: Final = (
    _PLACE_OF
    + _STRETCH
    + """
if redis.call('EXISTS', KEYS[3]) == 0 then return nil end
local member = place_of(KEYS[1], KEYS[2], ARGV[1])
local rank = member and redis.call('ZREVRANK', KEYS[1], member)
if not rank then return 0 end
local limit = tonumber(ARGV[2])
local last_start = redis.call('ZCARD', KEYS[1]) - limit
return stretch(math.max(0, math.min(rank - math.floor(limit / 2), last_start)), limit)
"""
)

# user. Rank from 0, how many players, score and entry; or 0 if there is no such player.
PLACE: Final = (
    _PLACE_OF
    + """
if redis.call('EXISTS', KEYS[3]) == 0 then return nil end
local member, score, entry = place_of(KEYS[1], KEYS[2], ARGV[1])
if not score then return 0 end
return {redis.call('ZREVRANK', KEYS[1], member), redis.call('ZCARD', KEYS[1]), score, entry}
"""
)

# users. Their entries and their scores, nothing where there is none.
LOOK: Final = """
if redis.call('EXISTS', KEYS[3]) == 0 then return nil end
local entries, members = redis.call('HMGET', KEYS[2], unpack(ARGV)), {}
for index = 1, #ARGV do members[index] = string.sub(entries[index] or '', 1, 16) .. ARGV[index] end
return {entries, redis.call('ZMSCORE', KEYS[1], unpack(members))}
"""

# user; entry and score that were seen; score, digits and username that are right, all empty to
# remove the player. 1 if the player was set right, 0 if something else has changed it since it was
# seen.
HEAL: Final = (
    _PLACE_OF
    + """
local user = ARGV[1]
local member, score, entry = place_of(KEYS[1], KEYS[2], user)
if (entry or '') ~= ARGV[2] or (score or '') ~= ARGV[3] then return 0 end
if member then redis.call('ZREM', KEYS[1], member) end
if ARGV[4] == '' then
    redis.call('HDEL', KEYS[2], user)
else
    redis.call('ZADD', KEYS[1], ARGV[4], ARGV[5] .. user)
    redis.call('HSET', KEYS[2], user, ARGV[5] .. ARGV[6])
end
return 1
"""
)

# 1 to remove them; members of the board. Those that no player's entry points at.
STRAYS: Final = """
local strays = {}
for index = 2, #ARGV do
    local member = ARGV[index]
    local entry = redis.call('HGET', KEYS[2], string.sub(member, 17))
    local is_stray = not entry or string.sub(entry, 1, 16) ~= string.sub(member, 1, 16)
    if is_stray and redis.call('ZSCORE', KEYS[1], member) then
        strays[#strays + 1] = member
        if ARGV[1] == '1' then redis.call('ZREM', KEYS[1], member) end
    end
end
return strays
"""

# KEYS[1] is the mark of the rebuild. Name of the new board, seconds it may take until the next
# call; then of each player the score, and user, digits and username in one. 0 if the mark is no
# longer ours.
LOAD: Final = """
local new, seconds = ARGV[1], ARGV[2]
if redis.call('GET', KEYS[1]) ~= new then return 0 end
redis.call('EXPIRE', KEYS[1], seconds)
local users = {}
for index = 4, #ARGV, 2 do users[#users + 1] = string.sub(ARGV[index], 1, 36) end
local known = redis.call('HMGET', new .. ':players', unpack(users))
local members, entries = {}, {}
for index = 1, #users do
    local score, entry = ARGV[2 * index + 1], string.sub(ARGV[2 * index + 2], 37)
    local old = known[index] and string.sub(known[index], 1, 16) .. users[index]
    local is_news = not old or tonumber(redis.call('ZSCORE', new, old)) < tonumber(score)
    if is_news then
        if old then redis.call('ZREM', new, old) end
        members[#members + 1] = score
        members[#members + 1] = string.sub(entry, 1, 16) .. users[index]
        entries[#entries + 1] = users[index]
        entries[#entries + 1] = entry
    end
end
if #members > 0 then
    redis.call('ZADD', new, unpack(members))
    redis.call('HSET', new .. ':players', unpack(entries))
end
for _, name in ipairs({'', ':players', ':changed', ':removed'}) do redis.call('EXPIRE', new .. name, seconds) end
return 1
"""

# KEYS: board, players, last change, mark. Name of the new board, microseconds of the last change in
# PostgreSQL. How many players the board has now, or -1 if the mark is no longer ours.
SWAP: Final = """
local new = ARGV[1]
if redis.call('GET', KEYS[4]) ~= new then return -1 end
for _, user in ipairs(redis.call('SMEMBERS', new .. ':removed')) do
    local entry = redis.call('HGET', new .. ':players', user)
    if entry then
        redis.call('ZREM', new, string.sub(entry, 1, 16) .. user)
        redis.call('HDEL', new .. ':players', user)
    end
end
local changed = redis.call('GET', new .. ':changed')
if not changed or tonumber(changed) < tonumber(ARGV[2]) then changed = ARGV[2] end
-- The old keys are moved away and freed in the background: freeing a million members here would take too long.
for index, name in ipairs({'', ':players'}) do
    if redis.call('EXISTS', KEYS[index]) == 1 then redis.call('RENAME', KEYS[index], new .. ':old' .. name) end
    if redis.call('EXISTS', new .. name) == 1 then
        redis.call('RENAME', new .. name, KEYS[index])
        redis.call('PERSIST', KEYS[index])
    end
end
redis.call('SET', KEYS[3], changed)
redis.call('UNLINK', KEYS[4], new .. ':changed', new .. ':removed', new .. ':old', new .. ':old:players')
return redis.call('ZCARD', KEYS[1])
"""

# KEYS[1] is the mark. Name of the new board.
ABANDON: Final = """
local new = ARGV[1]
if redis.call('GET', KEYS[1]) == new then redis.call('DEL', KEYS[1]) end
return redis.call('UNLINK', new, new .. ':players', new .. ':changed', new .. ':removed')
"""

# KEYS[1] has one member for each request in the window, scored by its microseconds. Now, window in
# microseconds, limit, a name for this request. Whether it is allowed, how many are in the window
# now, the microseconds until one and until all have left it. A request stays in the window for
# exactly its length: the one that comes at that very moment is allowed.
HIT: Final = """
local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local count = redis.call('ZCARD', KEYS[1])
local is_allowed = 0
if count < limit then
    is_allowed = 1
    count = count + 1
    redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
    redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or now
local newest = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or now
return {is_allowed, count, oldest + window - now, newest + window - now}
"""

# KEYS: the hash of somebody's streams, and what says that this process lives. Name of the process,
# how many streams it has open for them now, seconds for which it counts as living after this, what
# the keys of living processes begin with, seconds to keep the hash. How many they have open on all
# processes that live.
STREAMS: Final = """
local mine, count = ARGV[1], tonumber(ARGV[2])
redis.call('SET', KEYS[2], '1', 'EX', ARGV[3])
local total = count
for _, process in ipairs(redis.call('HKEYS', KEYS[1])) do
    if process ~= mine then
        if redis.call('EXISTS', ARGV[4] .. process) == 1 then
            total = total + tonumber(redis.call('HGET', KEYS[1], process))
        else
            redis.call('HDEL', KEYS[1], process)
        end
    end
end
if count > 0 then
    redis.call('HSET', KEYS[1], mine, count)
    redis.call('EXPIRE', KEYS[1], ARGV[5])
else
    redis.call('HDEL', KEYS[1], mine)
end
return total
"""
