-- Returns for each key, as written by exchange_publish.lua, the quota, the age in
-- microseconds and the payload of each update that is still valid.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local found = {}
for i, key in ipairs(KEYS) do
  local updates, fields = {}, redis.call('HGETALL', key)
  for j = 1, #fields, 2 do
    local at, keep, payload = string.match(fields[j + 1], '^(%d+) (%d+) (.*)$')
    if at and now - at < tonumber(keep) then
      updates[#updates + 1] = fields[j]
      updates[#updates + 1] = math.max(now - at, 0)
      updates[#updates + 1] = payload
    end
  end
  found[i] = updates
end
return found
