-- A queue from which a unit is served at each tick: the number of the latest tick that is
-- taken, counted from the anchor, and the latest reading granted at. The number of its last
-- tick is a grant.
-- Arguments: ticks in a period, microseconds of the period, units that may wait, the anchor.
-- There is nothing smaller that is whole; times are in parts of a microsecond, as many as
-- there are ticks in a period.

local function read(key)
  local v = call('GET', key)
  if v then
    return unpack('<i7i7', v)
  end
end

-- latest returns the number of the latest tick at or before now.
local function latest(a, now)
  local count, per = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  local since = now - tonumber(ARGV[a + 3])
  local periods = floor(since / per)
  return periods * count + muldiv(count, since - periods * per, per)
end

-- till returns how long after now a tick is.
local function timeUntil(a, tick, now)
  local count, per = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  local periods = floor(tick / count)
  return (tonumber(ARGV[a + 3]) + periods * per - now) * count + (tick - periods * count) * per
end

local function write(key, a, lastBooked, last)
  call('SET', key, pack('<i7i7', lastBooked, last), 'PX', ttlMillis(timeUntil(a, lastBooked, last) / tonumber(ARGV[a])))
end

return {
  check = function(key, a, now)
    local queue = tonumber(ARGV[a + 2])
    local lastBooked, last = read(key)
    if last and (last - now) * tonumber(ARGV[a]) > queue * tonumber(ARGV[a + 1]) then -- the clock was set back
      lastBooked, last = lastBooked - latest(a, last) + latest(a, now), now
      write(key, a, lastBooked, last)
    end
    now = max(now, last or now)
    local tick = latest(a, now)
    local from = max(lastBooked or tick, tick)
    local to = from + n
    local ok, wait = 0, -1
    if n <= queue then
      local earliest = timeUntil(a, to, now) - arg
      if earliest < timeUntil(a, from + 1, now) then -- else not even if nobody else waits
        wait = max(earliest, timeUntil(a, to - queue, now))
        if wait <= 0 then
          ok, wait = 1, timeUntil(a, to, now)
          if not dryRun then
            from = to
          end
        end
      end
    end
    local reset = from > tick and timeUntil(a, from, now) or 0
    return ok, wait, max(queue - (from - tick), 0), reset, now, to
  end,

  take = function(key, a, _, _, _, _, last, to)
    write(key, a, to, last)
  end,

  -- Who stands behind keeps his tick, so that only the last in line gives ticks back.
  settle = function(key, a, now, extra, from)
    local lastBooked, last = read(key)
    if extra > 0 then
      local tick = latest(a, max(now, last or now))
      write(key, a, min(max(lastBooked or tick, tick) + extra, maxExact), last or now)
    elseif lastBooked == from then
      write(key, a, lastBooked + extra, last)
    end
  end,
}
