"""The store's operations that must be atomic, as Lua that Redis runs; the rest are single commands.

Every key of a space has the space in braces, so that a Cluster keeps them on one node. Scripts are called by their
digest and sent whole only to a server that does not know them yet.

Keys of a space: `e:KEY` an entry (hash of value `v` and version `n`), `v` the space's version, `c` its changes (version
→ key, sorted), `i` its keys in order, `x` its keys by expiry, `l:LOG` a log (list), `m:METER` buckets (hash),
`h:HOLD` holders (hash of "units:expiry in ms"), `r:HOLDER` number and result of the last exchange (JSON).
"""

from __future__ import annotations

from typing import Final

from gateway.store.base import MAX_CHANGES, REPEAT_S
from gateway.store.meter import BUCKET_S, MAX_AHEAD, MAX_BUCKET_UNITS, MINUTE_BUCKETS

MIN_CHANGES: Final = 1000
"""Changes that the feed of a small space remembers. Who was away for longer than several changes of every key reads
the space again at less cost."""

_ANNOUNCE: Final = f"""
local function announce(versions, changes, index, key)
  local version = redis.call('INCR', versions)
  redis.call('ZADD', changes, version, version .. ':' .. key)
  local kept = math.min({MAX_CHANGES}, {MIN_CHANGES} + 4 * redis.call('ZCARD', index))
  redis.call('ZREMRANGEBYSCORE', changes, '-inf', version - kept)
  return version
end
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
"""

PUT: Final = (
    _ANNOUNCE
    + """
-- KEYS entry, versions, changes, index, expiries; ARGV key, value, ttl in ms or '', expected version or ''
if ARGV[4] ~= '' and (redis.call('HGET', KEYS[1], 'n') or '0') ~= ARGV[4] then return false end
local version = announce(KEYS[2], KEYS[3], KEYS[4], ARGV[1])
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'n', version)
if ARGV[3] == '' then
  redis.call('PERSIST', KEYS[1])
  redis.call('ZREM', KEYS[5], ARGV[1])
else
  local now = now_ms()
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', now, 'LIMIT', 0, 16)) do
    redis.call('ZREM', KEYS[5], old)
    redis.call('ZREM', KEYS[4], old)
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('ZADD', KEYS[5], now + ARGV[3], ARGV[1])
end
redis.call('ZADD', KEYS[4], 0, ARGV[1])
return version
"""
)

DELETE: Final = (
    _ANNOUNCE
    + """
-- KEYS entry, versions, changes, index, expiries; ARGV key, expected version or ''
local version = redis.call('HGET', KEYS[1], 'n')
if not version or (ARGV[2] ~= '' and version ~= ARGV[2]) then return 0 end
redis.call('DEL', KEYS[1]) -- first: a Redis without memory refuses scripts that begin with what may need some
announce(KEYS[2], KEYS[3], KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
return 1
"""
)

KEYS_AFTER: Final = """
-- KEYS index, expiries; ARGV after, limit. What is past its time counts as absent, whether it was removed yet or not.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local from, found = '-', {}
if ARGV[1] ~= '' then from = '(' .. ARGV[1] end
while #found < tonumber(ARGV[2]) do
  local page = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, ARGV[2])
  if #page == 0 then break end
  for _, key in ipairs(page) do
    local expiry = redis.call('ZSCORE', KEYS[2], key)
    if #found < tonumber(ARGV[2]) and (not expiry or tonumber(expiry) > now) then found[#found + 1] = key end
  end
  from = '(' .. page[#page]
end
return found
"""

CHANGES: Final = """
-- KEYS versions, changes; ARGV after or '', limit
local newest = tonumber(redis.call('GET', KEYS[1]) or '0')
if ARGV[1] == '' then return {newest, 0, {}} end
local after = tonumber(ARGV[1])
if after == newest then return {newest, 0, {}} end
local oldest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
if after > newest or not oldest or tonumber(oldest) > after + 1 then return {newest, 1, {}} end
return {newest, 0, redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'LIMIT', 0, ARGV[2])}
"""

APPEND: Final = """
-- KEYS log; ARGV payload, expected length or ''
if ARGV[2] ~= '' and redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[2]) then return false end
return redis.call('RPUSH', KEYS[1], ARGV[1])
"""

EXCHANGE: Final = f"""
-- The arithmetic of meter.py. KEYS meters in order, then the hold if there is one, then the reply if there is a number.
-- ARGV holder, number of the exchange or 0, number of meters;
-- for each meter: limit, want, at_least, ahead, start and end of its period (0 0: a minute),
-- number of returns, then bucket and units of each; for the hold: limit, units, spare, ttl in ms.
local BUCKET, BEFORE, MAX_AHEAD, MOST = {int(BUCKET_S * 1000)}, {MINUTE_BUCKETS}, {MAX_AHEAD}, {MAX_BUCKET_UNITS}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = 0
local function next_arg()
  at = at + 1
  return ARGV[at]
end
local function next_number() return tonumber(next_arg()) end

local function share_of(free, want, at_least, holders)
  if free < math.max(at_least, 1) then return 0 end
  local fair = free
  if holders > 1 then fair = math.floor(free / (2 * holders)) end
  return math.min(free, math.max(want, at_least), math.max(fair, at_least))
end

-- Whole numbers beyond a million must not be written in the form 1e+06.
local function whole(number) return string.format('%.0f', number) end

local function keep(key, holder, limit, wanted, spare, ttl)
  local others, holders = 0, 1
  local known = redis.call('HGETALL', key)
  for i = 1, #known, 2 do
    local units, expiry = string.match(known[i + 1], '^(%d+):(%d+)$')
    if tonumber(expiry) <= now then
      redis.call('HDEL', key, known[i])
    elseif known[i] ~= holder then
      others, holders = others + tonumber(units), holders + 1
    end
  end
  local free = limit - others
  local units = math.max(math.min(wanted, free), 0)
  units = units + share_of(free - units, spare, 0, holders)
  redis.call('HSET', key, holder, whole(units) .. ':' .. whole(now + ttl))
  redis.call('PEXPIRE', key, ttl)
  return units, holders
end

local function load(key, oldest, newest)
  local counts, sum = {{}}, 0
  local stored = redis.call('HGETALL', key)
  for i = 1, #stored, 2 do
    if tonumber(stored[i]) > newest then
      redis.call('DEL', key) -- the clock was set back: nothing in here can be dated any more
      return {{}}, 0
    end
  end
  for i = 1, #stored, 2 do
    local bucket, units = tonumber(stored[i]), tonumber(stored[i + 1])
    if bucket < oldest then
      redis.call('HDEL', key, stored[i])
    else
      counts[bucket], sum = units, sum + units
    end
  end
  return counts, sum
end

local function draw(key, holders)
  local limit, want, at_least, ahead = next_number(), next_number(), next_number(), next_number()
  local starts, ends = next_number() * 1000, next_number() * 1000
  local is_minute = ends == 0
  local current = math.floor(now / BUCKET)
  local bucket, oldest, newest = current + ahead, current - BEFORE, current + MAX_AHEAD
  local usable = (bucket + 1) * BUCKET - now
  if not is_minute then
    -- The asker's clock says which period it is, ours how late it is in it; near midnight they may disagree.
    if now >= ends then starts, ends = ends, now + 1000 end
    bucket, oldest, newest = starts / 1000, starts / 1000, math.huge
    if now < starts then oldest = 0 end
    usable = math.max(math.min((ahead + 1) * BUCKET, ends - now), 0)
  end
  local function end_of(which)
    if is_minute then return (which + BEFORE + 1) * BUCKET - now end
    return ends - now
  end

  local counts, sum = load(key, oldest, newest)
  local touched = {{}}
  local function change(which, units)
    local before = counts[which] or 0
    counts[which] = math.min(before + units, MOST)
    sum = sum + counts[which] - before
    touched[which] = true
  end
  for _ = 1, next_number() do
    local which, units = next_number(), next_number()
    if units > 0 and counts[which] then
      change(which, -math.min(units, counts[which]))
    elseif units < 0 and which >= oldest then
      change(math.min(which, bucket), -units)
    end
  end
  local free = limit - sum
  local units = share_of(free, want, at_least, holders)
  if units > 0 then change(bucket, units) end
  for which, _ in pairs(touched) do
    if counts[which] == 0 then
      counts[which] = nil
      redis.call('HDEL', key, whole(which))
    else
      redis.call('HSET', key, whole(which), whole(counts[which]))
    end
  end

  local wait, reset = 0, 0
  local buckets = {{}}
  for which, _ in pairs(counts) do buckets[#buckets + 1] = which end
  table.sort(buckets)
  if #buckets > 0 then
    reset = end_of(buckets[#buckets])
    redis.call('PEXPIRE', key, math.max(whole(reset), 1))
  end
  if units < at_least then
    local missing = at_least - free
    wait = -1
    if missing <= sum then
      for _, which in ipairs(buckets) do
        missing = missing - counts[which]
        if missing <= 0 then
          wait = end_of(which)
          break
        end
      end
    end
  end
  return {{whole(units), whole(bucket), whole(usable), whole(free - units), whole(reset), whole(wait)}}
end

local holder, number, meters = next_arg(), next_arg(), next_number()
local first_draw = at
local held, holders = 0, 1
local reply, last = nil, #KEYS
if number ~= '0' then
  reply, last = KEYS[last], last - 1
  local done, result = string.match(redis.call('GET', reply) or '', '^(%d+) (.*)$')
  if done and tonumber(done) >= tonumber(number) then return cjson.decode(result) end
end
if last > meters then
  at = #ARGV - 4
  held, holders = keep(KEYS[last], holder, next_number(), next_number(), next_number(), next_number())
end
at = first_draw
local grants = {{}}
for i = 1, meters do grants[i] = draw(KEYS[i], holders) end
local result = {{whole(now), whole(held), holders, grants}}
if reply then redis.call('SET', reply, number .. ' ' .. cjson.encode(result), 'PX', {int(REPEAT_S * 1000)}) end
return result
"""
