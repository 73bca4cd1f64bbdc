-- Returns a part of the fields that exchange_publish.lua and usage_publish.lua have stored.
-- KEYS: hashes, from name to "time value". ARGV: for each hash the cursor of HSCAN; empty at its
-- beginning. Stored times are in microseconds.
-- Returns for each hash the next cursor, "0" at its end, and for each field its name, its
-- age in microseconds and its value.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local found = {}
for i, key in ipairs(KEYS) do
  local page = redis.call('HSCAN', key, ARGV[i] == '' and '0' or ARGV[i], 'COUNT', 512)
  local fields, values = page[2], {page[1]}
  for j = 1, #fields, 2 do
    local at, value = string.match(fields[j + 1], '^(%d+) (.*)$')
    if at then
      values[#values + 1] = fields[j]
      values[#values + 1] = math.max(now - at, 0)
      values[#values + 1] = value
    end
  end
  found[i] = values
end
return found
