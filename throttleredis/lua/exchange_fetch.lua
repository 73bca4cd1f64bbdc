-- Returns for each key, which told_post.lua wrote, bucket, age in microseconds and
-- news of all that still holds.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local found = {}
for i, key in ipairs(KEYS) do
  local all, fields = {}, redis.call('HGETALL', key)
  for j = 1, #fields, 2 do
    local at, keep, news = string.match(fields[j + 1], '^(%d+) (%d+) (.*)$')
    if at and now - at < tonumber(keep) then
      all[#all + 1] = fields[j]
      all[#all + 1] = math.max(now - at, 0)
      all[#all + 1] = news
    end
  end
  found[i] = all
end
return found
