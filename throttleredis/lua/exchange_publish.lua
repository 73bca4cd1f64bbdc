-- Publishes messages, and keeps of each bucket of an account what was said last.
-- KEYS: a hash for each message, from bucket to "since when, for how long, news".
-- ARGV: the channel; then for each message account, bucket, keep, age and news.
-- Times are in microseconds.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local maxQuotas = 64 -- buckets of an account; beyond that all is forgotten, and said again as it changes

local function store(key, bucket, keep, age, payload)
  if redis.call('HEXISTS', key, bucket) == 0 and redis.call('HLEN', key) >= maxQuotas then
    redis.call('DEL', key)
  end
  redis.call('HSET', key, bucket, string.format('%.0f %.0f ', now - age, keep) .. payload)
  local ms = math.ceil((keep - age) / 1000)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end

for i, key in ipairs(KEYS) do
  local account, bucket, keep, age, payload = unpack(ARGV, i * 5 - 3, i * 5 + 1)
  if tonumber(keep) > tonumber(age) then
    -- What cannot be kept, as memory is full, can still be told.
    pcall(store, key, bucket, tonumber(keep), tonumber(age), payload)
  end
  redis.call('PUBLISH', ARGV[1], age .. ' ' .. account .. ' ' .. bucket .. ' ' .. payload)
end
return #KEYS
