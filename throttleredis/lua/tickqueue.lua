-- A queue from which one unit is served at each tick. Ticks are numbered from the anchor. It
-- stores the number of the last booked tick, and the latest reading granted at. The grant is
-- the number of the last tick of the claim, or -maxExact if that has passed because the claim
-- has waited for it.
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

-- write keeps the last booked tick as long as it may matter for claims that have waited.
local function write(key, a, lastBooked, last)
  local us = timeUntil(a, lastBooked + tonumber(ARGV[a + 2]), last) / tonumber(ARGV[a])
  call('SET', key, pack('<i7i7', lastBooked, last), 'PX', ttlMillis(us))
end

-- checkWaited is check for a claim that has waited: it is granted at its last tick. It uses the
-- ticks after all booked ones and after the start of the wait.
local function checkWaited(a, lastBooked, tick, now)
  local queue = tonumber(ARGV[a + 2])
  local to = max(lastBooked or -maxExact, latest(a, now - waited)) + n
  local ok, wait = 0, -1
  if n <= queue and to > tick then
    wait = timeUntil(a, to, now)
  elseif n <= queue then
    ok, wait = 1, 0
    if not dryRun then
      lastBooked = tick
    end
  end
  return ok, wait, max(queue - max((lastBooked or tick) - tick, 0), 0), 0, now, -maxExact, tick
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
    if waited then
      return checkWaited(a, lastBooked, tick, now)
    end
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
    return ok, wait, max(queue - (from - tick), 0), reset, now, to, to
  end,

  take = function(key, a, _, _, _, _, last, _, to)
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
