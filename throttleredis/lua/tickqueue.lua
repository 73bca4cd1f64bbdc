-- A queue from which one unit is served at each tick. Ticks are numbered from the anchor. It
-- stores the number of the last booked tick, and the latest reading granted at. The grant is
-- the number of the last tick of the claim, or -maxExact if that has passed because the claim
-- has waited for it.
-- Arguments: ticks per period, microseconds per period, units that may wait, the anchor.
-- Durations are in fractions of a microsecond, as many as there are ticks in a period: then
-- all times of ticks are whole numbers.

-- latest returns the number of the latest tick at or before now.
local function latest(a, now)
  local count, per = args[a], args[a + 1]
  local since = now - args[a + 3]
  local periods = floor(since / per)
  return periods * count + muldiv(count, since - periods * per, per)
end

-- timeUntil returns the time from now until a tick.
local function timeUntil(a, tick, now)
  local count, per = args[a], args[a + 1]
  local periods = floor(tick / count)
  return (args[a + 3] + periods * per - now) * count + (tick - periods * count) * per
end

-- checkWaited is check for a claim that has waited: it is granted at its last tick. It uses the
-- ticks after all booked ones and after the start of the wait.
local function checkWaited(a, lastBooked, tick, now)
  local queue = args[a + 2]
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
  load = function(key)
    local s, v = {}, call('GET', key)
    if v then
      s.lastBooked, s.last = unpack('<i7i7', v)
    end
    return s
  end,

  -- The last booked tick is kept as long as it may matter for claims that have waited.
  store = function(key, s, a)
    local us = timeUntil(a, s.lastBooked + args[a + 2], s.last) / args[a]
    call('SET', key, pack('<i7i7', s.lastBooked, s.last), 'PX', ttlMillis(us))
  end,

  check = function(s, a, now)
    local queue = args[a + 2]
    if s.last and (s.last - now) * args[a] > queue * args[a + 1] then -- the clock was set back
      s.lastBooked, s.last, s.changed = s.lastBooked - latest(a, s.last) + latest(a, now), now, true
    end
    now = max(now, s.last or now)
    local tick = latest(a, now)
    if waited then
      return checkWaited(a, s.lastBooked, tick, now)
    end
    local from = max(s.lastBooked or tick, tick)
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

  take = function(s, a, _, _, _, _, last, _, to)
    s.lastBooked, s.last, s.changed = to, last, true
  end,

  -- Claims behind this one keep their ticks, so only the last claim in the queue returns ticks.
  settle = function(s, a, now, extra, _, from)
    if extra > 0 then
      s.last = s.last or now
      local tick = latest(a, max(now, s.last))
      s.lastBooked, s.changed = min(max(s.lastBooked or tick, tick) + extra, maxExact), true
    elseif s.lastBooked == from then
      s.lastBooked, s.changed = s.lastBooked + extra, true
    end
  end,
}
