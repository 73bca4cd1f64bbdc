-- A list of what was taken, oldest first. An entry is the latest reading in it, the units of
-- all entries before it, and its own; claims at one stamp share an entry, however many
-- they are. A stamp is a microsecond, or with parts the number of a sub-window.
-- The stamp is the grant. The last entry may be empty, to remember its reading.
-- Arguments: most units, microseconds that they count, least microseconds between two claims,
-- 1 if refusals count, how many sub-windows there are (0: none).
--
-- Nothing is added up: the units from an entry on are the total less those before it, and
-- where they are few enough is found by halving.

local function stamp(a, at)
  local parts, per = tonumber(ARGV[a + 4]), tonumber(ARGV[a + 1])
  if parts == 0 then
    return at
  end
  local rounds = floor(at / per)
  return rounds * parts + muldiv(at - rounds * per, parts, per)
end

local function begin(a, stamp)
  local parts, per = tonumber(ARGV[a + 4]), tonumber(ARGV[a + 1])
  if parts == 0 then
    return stamp
  end
  local rounds = floor(stamp / parts)
  return rounds * per + muldivup(per, stamp - rounds * parts, parts)
end

-- counts returns for how many stamps an entry counts.
local function counts(a)
  local parts = tonumber(ARGV[a + 4])
  return parts > 0 and parts or tonumber(ARGV[a + 1])
end

local function entry(key, i)
  local v = call('LINDEX', key, i)
  if v then
    return unpack('<i7i7i7', v)
  end
end

local function enter(at, before, units)
  return pack('<i7i7i7', at, before, units)
end

-- first returns the index of the first entry from lo on that is fit, where all after it
-- are too; hi: none is. It looks near lo first.
local function first(key, lo, hi, fit)
  local step = 1
  while lo + step <= hi and not fit(entry(key, lo + step - 1)) do
    lo, step = lo + step, step * 2
  end
  hi = min(hi, lo + step - 1)
  while lo < hi do
    local mid = floor((lo + hi) / 2)
    if fit(entry(key, mid)) then
      hi = mid
    else
      lo = mid + 1
    end
  end
  return lo
end

-- waits returns how long after now there is room for so many units and the gap has passed.
local function waits(key, a, log, units, now)
  local count, gap = tonumber(ARGV[a]), tonumber(ARGV[a + 2])
  if units > count then
    return -1
  end
  local wait, room = 0, count - units
  if gap > 0 and log.newest then
    wait = max(log.newest + gap - now, 0)
  end
  if log.total - log.gone > room then
    local i = first(key, log.expired, log.size, function(at, before)
      return log.total - before <= room
    end)
    local at = entry(key, i - 1)
    wait = max(wait, begin(a, stamp(a, at) + counts(a)) - now)
  end
  return wait
end

-- open returns what is in a log: how many entries, how many of them have expired, the units
-- of those, the units of all, the latest reading, and that of the latest units.
local function open(key, a, now)
  local at, before, units = entry(key, -1)
  local log = {size = 0, expired = 0, gone = 0, total = 0}
  if not at then
    return log, now
  end
  now = max(now, at)
  log.size, log.total, log.last, log.newest = call('LLEN', key), before + units, at, at
  if units == 0 then
    log.newest = log.size > 1 and entry(key, -2) or nil
  end
  local oldest = stamp(a, now) - counts(a)
  log.expired = first(key, 0, log.size, function(at)
    return stamp(a, at) > oldest
  end)
  if log.expired == log.size then
    log.gone = log.total
  else
    local _, before = entry(key, log.expired)
    log.gone = before
  end
  return log, now
end

-- record enters units and drops what has expired.
local function record(key, a, log, units, now)
  if log.expired > 0 then
    call('LTRIM', key, log.expired, -1)
  end
  local size = log.size - log.expired
  local at, before, own = nil, log.total, 0
  if size > 0 then
    at, before, own = entry(key, -1)
  end
  if at and (own == 0 or stamp(a, at) == stamp(a, now)) then
    call('LSET', key, -1, enter(now, before, own + units))
  else
    call('RPUSH', key, enter(now, log.total, units))
  end
  call('PEXPIRE', key, lasts(2 * tonumber(ARGV[a + 1])))
end

-- keep drops the oldest units, so that so many are left. An entry may go in part.
local function keep(key, log, units)
  local surplus = log.total - units
  if log.size == log.expired or log.gone >= surplus then
    return
  end
  local i = first(key, log.expired, log.size, function(at, before, own)
    return before + own > surplus
  end)
  log.expired = i
  if i < log.size then
    local at, before, own = entry(key, i)
    call('LSET', key, i, enter(at, surplus, before + own - surplus))
  end
end

-- describe returns how many units are left, and how long until all are.
local function describe(a, log, now)
  local left, reset = max(tonumber(ARGV[a]) - (log.total - log.gone), 0), 0
  if log.newest and log.total > log.gone then
    reset = max(begin(a, stamp(a, log.newest) + counts(a)) - now, 0)
  end
  return left, reset
end

return {
  check = function(key, a, now)
    local log
    log, now = open(key, a, now)
    local wait = waits(key, a, log, n, now)
    local ok, shown = wait == 0 and 1 or 0, log
    if wait == 0 and not dry then
      shown = {total = log.total + n, gone = log.gone, newest = now}
    end
    local left, reset = describe(a, shown, now)
    return ok, wait, left, reset, now, stamp(a, now), log
  end,

  take = function(key, a, _, _, _, _, now, _, log)
    if ARGV[a + 3] == '1' then
      keep(key, log, tonumber(ARGV[a]) - n)
    end
    record(key, a, log, n, now)
  end,

  refuse = function(key, a, ok, wait, left, reset, now, _, log)
    if ARGV[a + 3] ~= '1' then
      return ok, wait, left, reset
    end
    local count = tonumber(ARGV[a])
    local units = min(n, count)
    keep(key, log, count - units)
    record(key, a, log, units, now)
    log, now = open(key, a, now)
    return 0, waits(key, a, log, n, now), describe(a, log, now)
  end,

  settle = function(key, a, now, extra, from)
    local size = call('LLEN', key)
    local i = first(key, 0, size, function(at)
      return stamp(a, at) >= from
    end)
    local at, before, own = entry(key, i)
    if i == size or stamp(a, at) ~= from then
      return
    end
    extra = max(extra, -own)
    for j = i + 1, size - 1 do
      local at, before, units = entry(key, j)
      call('LSET', key, j, enter(at, before + extra, units))
    end
    call('LSET', key, i, enter(at, before, own + extra))
    if own + extra == 0 and i < size - 1 then
      call('LSET', key, i, '')
      call('LREM', key, 1, '')
    end
  end,
}
