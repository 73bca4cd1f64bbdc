-- Before the algorithms. ARGV: what is to be done; units; longest wait in ticks, or for a
-- settlement the units more than claimed; the arguments of each limit; for a settlement
-- what each limit granted, as two numbers; in tests the time in microseconds.
--
-- Each algorithm is a table of functions, which get the key of the limit and the index of
-- its first argument:
--   check   says what becomes of a claim, and writes nothing: 1 if granted, wait in ticks
--           (-1 for ever), units left, ticks until all are, reading, grant, and up to three
--           more things that take will want to know
--   take    writes what check said, and gets all of that
--   settle  takes more units for what was granted, or gives back some
--   holds   (optional) true if a settlement of no units ends a claim
--   refuse  (optional) gets the same, counts a claim that was refused, and says anew the
--           first four things. It is not called for the verb try
--   judges  (optional) true if the last limit counts what the others refuse
-- An older reading of the clock than one granted at counts as that one. If it is older by
-- more than a window, the clock was set back: time then goes on from the reading granted at,
-- so that a clock that is set back delays claims by at most one window.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local maxExact = 2 ^ 52 -- units or ticks: sums of two are exact
local maxTicks = 2 ^ 62 -- more ticks than a time can have
local op, n, arg = ARGV[1], ARGV[2] + 0, ARGV[3] + 0
local dryRun = op == 'dryrun'
local takes = op == 'take' or op == 'try'
local settles = op == 'settle' or op == 'cancel'
local testClock = false -- in tests time stands still, and nothing expires

-- lasts returns for how many milliseconds to keep what is needed for so many microseconds.
local function ttlMillis(us)
  if testClock then
    return 86400000
  end
  return floor(min(max(us, 0), maxExact) / 1000) + 1000
end

-- virtual returns the time that an algorithm counts in, which never runs back: the reading
-- now plus shift, by which the clock was set back in all. It returns that shift as well, and
-- whether it has changed, which must be stored even if the claim is refused. last is the
-- latest time granted at; nil: there is none. window is in microseconds.
local function monotonic(now, last, shift, window)
  if not last then
    return now, shift, false
  elseif last - (now + shift) > window then
    return last, last - now, true
  end
  return max(now + shift, last), shift, false
end
