-- Publishes updates, and stores the latest update of each quota of an account.
-- KEYS: for each update a hash, from quota to "time keep payload".
-- ARGV: the channel; then for each update account, quota, keep, age and payload.
-- Times are in microseconds.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- maxQuotas is the maximum number of quotas of an account. A further one deletes the others,
-- which are stored again when they change.
local maxQuotas = 64

local function store(key, quota, keep, age, payload)
  if redis.call('HEXISTS', key, quota) == 0 and redis.call('HLEN', key) >= maxQuotas then
    redis.call('DEL', key)
  end
  redis.call('HSET', key, quota, string.format('%.0f %.0f ', now - age, keep) .. payload)
  local ms = math.ceil((keep - age) / 1000)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end

for i, key in ipairs(KEYS) do
  local account, quota, keep, age, payload = unpack(ARGV, i * 5 - 3, i * 5 + 1)
  if tonumber(keep) > tonumber(age) then
    -- An update that cannot be stored because memory is full can still be published.
    pcall(store, key, quota, tonumber(keep), tonumber(age), payload)
  end
  redis.call('PUBLISH', ARGV[1], age .. ' ' .. account .. ' ' .. quota .. ' ' .. payload)
end
return #KEYS
