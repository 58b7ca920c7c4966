"""Lua scripts of the leaderboard in Redis. `leaderboard.py` documents the keys.

Unless noted otherwise, KEYS are the leaderboard, its players, its last change, the rebuild marker
and the version. The marker's value is the prefix of the new leaderboard's keys. The leaderboard is
complete if the key of its last change exists, even with the value 0; a restarted Redis has none
until the next rebuild.

Every script that changes the leaderboard sets a new version. ARGV[1] of these scripts is a random
id for it.
"""

from typing import Final

# An entry is a sortable time, the revision, a space, the username and, after a space, the avatar.
_REVISION: Final = """
local function revision_of(entry) return tonumber(string.match(entry, '^(%d+) ', 17)) or -1 end
"""

_FIND_MEMBER: Final = """
local function find_member(board, players, user)
    local entry = redis.call('HGET', players, user)
    if not entry then return nil end
    local member = string.sub(entry, 1, 16) .. user
    return member, redis.call('ZSCORE', board, member), entry
end
"""

# A random id keeps versions unique where a counter would repeat them: after a flush, or when Redis
# restarts from an old snapshot. The time distinguishes two runs of a call that is retried.
_SET_VERSION: Final = """
local function set_version()
    local time = redis.call('TIME')
    redis.call('SET', KEYS[5], ARGV[1] .. ':' .. time[1] .. '.' .. time[2])
end
"""

# What a change adds to the new leaderboard expires with the marker, if the rebuild is abandoned.
_EXPIRE_NEW: Final = """
local function expire_new(new)
    local left = math.max(1, redis.call('PTTL', KEYS[4]))
    for _, name in ipairs({'', ':players', ':changed', ':removed'}) do
        redis.call('PEXPIRE', new .. name, left)
    end
end
"""

# ARGV: id, user, score, entry, microseconds of the change or 0. KEYS[6] marks a removed player, up
# to a revision.
# Returns the rank from 0; -1 if the leaderboard is not complete; -2 if the player was removed.
PUT: Final = (
    _FIND_MEMBER
    + _REVISION
    + _SET_VERSION
    + _EXPIRE_NEW
    + """
local user, score, entry, moment = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local function put(board, players, changed)
    local member, known, stored = find_member(board, players, user)
    if known and revision_of(stored) >= revision_of(entry) then return false end
    if member then redis.call('ZREM', board, member) end
    redis.call('ZADD', board, score, string.sub(entry, 1, 16) .. user)
    redis.call('HSET', players, user, entry)
    if moment > tonumber(redis.call('GET', changed) or 0) then
        redis.call('SET', changed, ARGV[5])
    end
    return true
end
local removed = redis.call('GET', KEYS[6])
if removed and tonumber(removed) >= revision_of(entry) then return -2 end
local new = redis.call('GET', KEYS[4])
if new then
    put(new, new .. ':players', new .. ':changed')
    expire_new(new)
end
if redis.call('EXISTS', KEYS[3]) == 0 then return -1 end
if put(KEYS[1], KEYS[2], KEYS[3]) then set_version() end
return redis.call('ZREVRANK', KEYS[1], (find_member(KEYS[1], KEYS[2], user)))
"""
)

# ARGV: id, user, TTL of the removal mark, which is KEYS[6], and the revision that it ends with. A
# removal may come late: it neither lowers the mark nor removes a later score.
# Returns the last rank from 0, or -1.
REMOVE: Final = (
    _FIND_MEMBER
    + _REVISION
    + _SET_VERSION
    + _EXPIRE_NEW
    + """
local user, revision = ARGV[2], ARGV[4]
local mark = redis.call('GET', KEYS[6])
if mark and tonumber(mark) > tonumber(revision) then revision = mark end
redis.call('SET', KEYS[6], revision, 'EX', ARGV[3])
local new = redis.call('GET', KEYS[4])
if new then
    redis.call('SADD', new .. ':removed', user)
    expire_new(new)
end
local member, _, entry = find_member(KEYS[1], KEYS[2], user)
if not member or revision_of(entry) > tonumber(revision) then return -1 end
local rank = redis.call('ZREVRANK', KEYS[1], member)
redis.call('ZREM', KEYS[1], member)
redis.call('HDEL', KEYS[2], user)
set_version()
return rank or -1
"""
)

READ_RANGE: Final = """
local function read_range(start, limit)
    local found = redis.call('ZREVRANGE', KEYS[1], start, start + limit - 1, 'WITHSCORES')
    local reply = {redis.call('ZCARD', KEYS[1]), redis.call('GET', KEYS[3]), start}
    if #found == 0 then return reply end
    local users = {}
    for index = 1, #found, 2 do users[#users + 1] = string.sub(found[index], 17) end
    local entries = redis.call('HMGET', KEYS[2], unpack(users))
    for index = 1, #users do
        reply[#reply + 1] = users[index]
        reply[#reply + 1] = found[2 * index]
        reply[#reply + 1] = entries[index] or string.sub(found[2 * index - 1], 1, 16)
    end
    return reply
end
"""

# ARGV: offset, limit. Returns the number of players, the last change, the start, and then user,
# score and entry of each player; nil if the leaderboard is not complete.
TOP: Final = (
    READ_RANGE
    + """
if redis.call('EXISTS', KEYS[3]) == 0 then return nil end
return read_range(tonumber(ARGV[1]), tonumber(ARGV[2]))
"""
)

# ARGV: user, limit. Returns the same, or 0 if the player does not exist.
AROUND: Final = (
    _FIND_MEMBER
    + READ_RANGE
    + """
if redis.call('EXISTS', KEYS[3]) == 0 then return nil end
local member = find_member(KEYS[1], KEYS[2], ARGV[1])
local rank = member and redis.call('ZREVRANK', KEYS[1], member)
if not rank then return 0 end
local limit = tonumber(ARGV[2])
local last_start = redis.call('ZCARD', KEYS[1]) - limit
return read_range(math.max(0, math.min(rank - math.floor(limit / 2), last_start)), limit)
"""
)

# ARGV: user. Returns the rank from 0, the number of players, score and entry; 0 if the player does
# not exist.
STANDING: Final = (
    _FIND_MEMBER
    + """
if redis.call('EXISTS', KEYS[3]) == 0 then return nil end
local member, score, entry = find_member(KEYS[1], KEYS[2], ARGV[1])
if not score then return 0 end
return {redis.call('ZREVRANK', KEYS[1], member), redis.call('ZCARD', KEYS[1]), score, entry}
"""
)

# ARGV: users. Returns their entries and their scores, nil where there is none.
READ_ENTRIES: Final = """
if redis.call('EXISTS', KEYS[3]) == 0 then return nil end
local entries, members = redis.call('HMGET', KEYS[2], unpack(ARGV)), {}
for index = 1, #ARGV do members[index] = string.sub(entries[index] or '', 1, 16) .. ARGV[index] end
return {entries, redis.call('ZMSCORE', KEYS[1], unpack(members))}
"""

# ARGV: id; user; expected entry and score; new score and entry, both empty to remove the player.
# Returns 1, or 0 if the entry has changed or the leaderboard is gone.
REPAIR: Final = (
    _FIND_MEMBER
    + _SET_VERSION
    + """
if redis.call('EXISTS', KEYS[3]) == 0 then return 0 end
local user = ARGV[2]
local member, score, entry = find_member(KEYS[1], KEYS[2], user)
if (entry or '') ~= ARGV[3] or (score or '') ~= ARGV[4] then return 0 end
if member then redis.call('ZREM', KEYS[1], member) end
if ARGV[5] == '' then
    redis.call('HDEL', KEYS[2], user)
else
    redis.call('ZADD', KEYS[1], ARGV[5], string.sub(ARGV[6], 1, 16) .. user)
    redis.call('HSET', KEYS[2], user, ARGV[6])
end
set_version()
return 1
"""
)

# ARGV: id, 1 to remove strays, members. Returns the members that no player's entry refers to.
FIND_STRAYS: Final = (
    _SET_VERSION
    + """
local strays = {}
for index = 3, #ARGV do
    local member = ARGV[index]
    local entry = redis.call('HGET', KEYS[2], string.sub(member, 17))
    local is_stray = not entry or string.sub(entry, 1, 16) ~= string.sub(member, 1, 16)
    if is_stray and redis.call('ZSCORE', KEYS[1], member) then
        strays[#strays + 1] = member
        if ARGV[2] == '1' then redis.call('ZREM', KEYS[1], member) end
    end
end
if ARGV[2] == '1' and #strays > 0 then set_version() end
return strays
"""
)

# KEYS: the rebuild marker. ARGV: prefix of the new leaderboard, TTL of the marker; then per player
# the score, and user and entry in one string. Returns 0 if the marker changed.
LOAD: Final = (
    _REVISION
    + """
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
    if not old or revision_of(known[index]) < revision_of(entry) then
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
for _, name in ipairs({'', ':players', ':changed', ':removed'}) do
    redis.call('EXPIRE', new .. name, seconds)
end
return 1
"""
)

# ARGV: id, prefix of the new leaderboard, microseconds of the last change in PostgreSQL. Returns
# the number of players, or -1 if the marker changed.
SWAP: Final = (
    _REVISION
    + _SET_VERSION
    + """
local new = ARGV[2]
if redis.call('GET', KEYS[4]) ~= new then return -1 end
for _, user in ipairs(redis.call('SMEMBERS', new .. ':removed')) do
    local entry = redis.call('HGET', new .. ':players', user)
    local mark = tonumber(redis.call('GET', KEYS[1] .. ':removed:' .. user) or math.huge)
    if entry and revision_of(entry) <= mark then
        redis.call('ZREM', new, string.sub(entry, 1, 16) .. user)
        redis.call('HDEL', new .. ':players', user)
    end
end
local changed = redis.call('GET', new .. ':changed')
if not changed or tonumber(changed) < tonumber(ARGV[3]) then changed = ARGV[3] end
-- Rename the old keys and free them in the background: freeing a million members takes too long.
for index, name in ipairs({'', ':players'}) do
    if redis.call('EXISTS', KEYS[index]) == 1 then
        redis.call('RENAME', KEYS[index], new .. ':old' .. name)
    end
    if redis.call('EXISTS', new .. name) == 1 then
        redis.call('RENAME', new .. name, KEYS[index])
        redis.call('PERSIST', KEYS[index])
    end
end
redis.call('SET', KEYS[3], changed)
set_version()
redis.call('UNLINK', KEYS[4], new .. ':changed', new .. ':removed')
redis.call('UNLINK', new .. ':old', new .. ':old:players')
return redis.call('ZCARD', KEYS[1])
"""
)

# KEYS: the rebuild marker. ARGV: prefix of the new leaderboard.
ABANDON: Final = """
local new = ARGV[1]
if redis.call('GET', KEYS[1]) == new then redis.call('DEL', KEYS[1]) end
return redis.call('UNLINK', new, new .. ':players', new .. ':changed', new .. ':removed')
"""
