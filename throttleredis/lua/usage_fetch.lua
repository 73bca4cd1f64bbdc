-- Returns a part of the counters that hosts have stored with usage_publish.lua.
-- KEYS: hashes of hosts. ARGV: for each hash the cursor of HSCAN.
-- Returns for each hash the next cursor, "0" at its end, and for each counter its name, its
-- age in microseconds and its value.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local found = {}
for i, key in ipairs(KEYS) do
  local page = redis.call('HSCAN', key, ARGV[i], 'COUNT', 512)
  local fields, counters = page[2], {page[1]}
  for j = 1, #fields, 2 do
    local at, value = string.match(fields[j + 1], '^(%d+) (.*)$')
    if at then
      counters[#counters + 1] = fields[j]
      counters[#counters + 1] = math.max(now - at, 0)
      counters[#counters + 1] = value
    end
  end
  found[i] = counters
end
return found
