-- Stores counters of a host and sends them to the other hosts.
-- KEYS: the sorted set of hosts, from host to the time at which its hash expires; the hash
-- of the host, from the name of a counter to "time value".
-- ARGV: the channel, the host, the time to keep the hash in milliseconds, whether to remove
-- what is stored (0 or 1), the message, the number of names to remove, these names, then
-- names and values. Stored times are in microseconds.
-- Returns whether the hash existed.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local channel, host, keep, message, removals = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5], tonumber(ARGV[6])

local existed = redis.call('EXISTS', KEYS[2])
if ARGV[4] == '1' then
  redis.call('DEL', KEYS[2])
end
for i = 7, 6 + removals do
  redis.call('HDEL', KEYS[2], ARGV[i])
end
for i = 7 + removals, #ARGV, 2 do
  redis.call('HSET', KEYS[2], ARGV[i], string.format('%.0f ', now) .. ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[2], keep)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now / 1000)
redis.call('ZADD', KEYS[1], now / 1000 + keep, host)
if redis.call('PTTL', KEYS[1]) < keep then
  redis.call('PEXPIRE', KEYS[1], keep)
end
redis.call('PUBLISH', channel, message)
return existed
