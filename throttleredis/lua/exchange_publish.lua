-- Publishes updates, and stores the latest update of each bucket of an account.
-- KEYS: for each update a hash, from bucket to "time keep payload".
-- ARGV: the channel; then for each update account, bucket, keep, age and payload.
-- Times are in microseconds.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- maxQuotas is the maximum number of buckets of an account. A further one deletes the others,
-- which are stored again when they change.
local maxQuotas = 64

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
    -- An update that cannot be stored because memory is full can still be published.
    pcall(store, key, bucket, tonumber(keep), tonumber(age), payload)
  end
  redis.call('PUBLISH', ARGV[1], age .. ' ' .. account .. ' ' .. bucket .. ' ' .. payload)
end
return #KEYS
