-- Before the algorithms. ARGV: what is to be done; units; longest wait in ticks, or for a
-- settlement the units more than claimed; the arguments of each limit; for a settlement
-- what each limit granted, as two numbers; in tests the time in microseconds.
--
-- Each algorithm is a table of functions, which get the key of the limit and the index of
-- its first argument:
--   check   says what becomes of a claim, and writes nothing: {1 if granted, wait in ticks
--           (-1 for ever), units left, ticks until all are, reading, grant}
--   take    writes what check said
--   settle  takes more units for what was granted, or gives back some
--   holds   (optional) true if a settlement of no units ends a claim
--   refuse  (optional) counts a claim that check refused
-- An older reading of the clock than one granted at counts as that one.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local most = 2 ^ 52 -- units or ticks: sums of two are exact
local verb, n, third = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local dry = verb == 'look'
local frozen = false -- in tests time stands still, and nothing expires

-- lasts returns for how many milliseconds to keep what is needed for so many microseconds.
local function lasts(us)
  if frozen then
    return 86400000
  end
  return floor(min(max(us, 0), most) / 1000) + 1000
end

-- muldiv returns a*b/c rounded down, and whether it had to be, for 0 <= b <= c <= 2^50.
-- Where the product has no exact double, digits of a are divided one by one, as on paper.
local function muldiv(a, b, c)
  local p = a * b
  if p <= most then
    return floor(p / c), p % c > 0
  end
  local digit = 1
  while digit * 4 <= a do
    digit = digit * 4
  end
  local q, r = 0, 0
  while digit >= 1 do
    local d = floor(a / digit)
    a = a - d * digit
    r = r * 4 + d * b
    local t = floor(r / c)
    q, r, digit = q * 4 + t, r - t * c, digit / 4
  end
  return q, r > 0
end

-- muldivup is muldiv rounded up.
local function muldivup(a, b, c)
  local q, inexact = muldiv(a, b, c)
  return inexact and q + 1 or q
end
