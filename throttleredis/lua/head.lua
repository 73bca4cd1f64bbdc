-- The beginning of every script.
--
-- KEYS: for each claim that has another key than the one before, the key of each limit.
-- ARGV: the arguments of all limits, and the claims, both as numbers in binary form. A claim is
--   - three bytes: 1 if the key is not that of the claim before, plus 2 if there is a time; how often
--     the claim is repeated, including this one; and the operation;
--   - units; and arg, which is the longest accepted wait in ticks, or -1 minus the microseconds for
--     which a claim has waited that is repeated until it is granted, or for a settlement the number of
--     units used minus the number claimed, or for a lease the number of units that other claims wait for;
--   - for a settlement the grant of each limit, as four numbers; for a lease the further units, and
--     the units that must be left; in tests the time in microseconds.
-- If there are several claims, a third argument is their number.
--
-- Operations: t: take; r: take without counting a rejection, because the caller retries; d: dry run,
-- which takes nothing; s: settle and c: cancel, which end a claim; l: lease, which is take and takes
-- further units for a process that grants claims itself (of one limit without reject).
--
-- An algorithm is a table of functions. load reads the state of a key, and store writes it after
-- consecutive claims for the key; the others only change the table that load has returned. They set its
-- field changed if store must write it. load gets the key, store the key and the state, and the others the
-- state; then each gets the index of the first argument of the limit in args.
--   load            returns the state stored in a key
--   store           (optional) writes a state. Without it, the others write: then claims are decided
--                   on separately
--   check           decides on a claim without taking its units. It returns 1 if the claim is
--                   granted, otherwise 0; the wait in ticks (-1: the claim can never be
--                   granted); the units left; the ticks until all units are available; the
--                   reading of the clock it used; the grant; and up to three values for take
--   take            takes the units of a granted claim. It gets all results of check
--   settle          takes further units for a granted claim, or returns some
--   holdsUntilEnd   (optional) true if a settlement of no units ends a claim
--   reject          (optional) counts a rejected claim. It gets all results of check and
--                   returns new values for the first four. It is not called for r
--   isBan           (optional) true if the limit counts the rejections of those before it
--
-- A reading of the clock that is older than the latest one granted at counts as that one. If
-- it is older by more than a window, the clock was set back: the stored state then counts as
-- the state at the new reading, and time continues from there. Setting the clock back
-- therefore delays claims by at most one window.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local maxExact = 2 ^ 52 -- units or ticks: the sum of two is an exact double
local maxTicks = 2 ^ 62 -- the longest duration returned: fits into 64 bits

-- Of the present claim:
local op, n, arg, dryRun
local waited -- nil: the claim is not repeated, or it accepts a wait
local now -- the time in microseconds
local testClock = false -- true in tests: the time is an argument, and no key expires

-- ttlMillis returns the expiry in milliseconds of a key that is needed for us microseconds.
local function ttlMillis(us)
  if testClock then
    return 86400000
  end
  return floor(min(max(us, 0), maxExact) / 1000) + 1000
end
