-- Before the algorithms. ARGV: what is to be done; units; longest wait, or for a settlement
-- the units more than claimed; the arguments of each limit; for a settlement what each
-- limit granted; in tests the time in microseconds.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local most = 2 ^ 52 -- units or ticks
local verb, n, third = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local dry = verb == 'look'
local frozen = false -- in tests time stands still, and nothing expires

-- lasts returns for how many milliseconds to keep what is needed for so many microseconds.
local function lasts(us)
  if frozen then
    return 86400000
  end
  return floor(us / 1000) + 1000
end
