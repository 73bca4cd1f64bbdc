-- A queue from which one unit is served at each tick. Ticks are numbered from the anchor. It
-- stores the number of the last booked tick, and the latest reading granted at. The grant is
-- the number of the last tick of the claim.
-- Arguments: ticks per period, microseconds per period, units that may wait, the anchor.
-- Durations are in fractions of a microsecond, as many as there are ticks in a period: then
-- all times of ticks are whole numbers.

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

-- timeUntil returns the time from now until a tick.
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
      if earliest < timeUntil(a, from + 1, now) then -- otherwise the wait is too long even for an empty queue
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

  -- Claims behind this one keep their ticks, so only the last claim in the queue returns ticks.
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
