-- A bucket that is refilled at ticks. Ticks are numbered from the anchor. It stores tick,
-- the units that were missing right after that tick, and the latest reading granted at. The
-- capacity is stored, too: if it has been reduced since, units beyond it are dropped. The
-- grant is the number of the tick, from which a settlement derives the refills since then.
-- Arguments: microseconds between ticks, units added by each, capacity, the anchor.

return {
  load = function(key, a)
    local s, v = {taken = 0}, call('GET', key)
    if v then
      local burst
      s.tick, s.taken, s.last, burst = unpack('<i7i7i7i7', v)
      if burst ~= args[a + 2] then
        s.taken = min(s.taken, args[a + 2])
      end
    end
    return s
  end,

  store = function(key, s, a)
    local fullAt = args[a + 3] + (s.tick + ceil(s.taken / args[a + 1])) * args[a]
    call('SET', key, pack('<i7i7i7i7', s.tick, s.taken, s.last, args[a + 2]), 'PX', ttlMillis(fullAt - s.last))
  end,

  check = function(s, a, now)
    local per, count, burst, anchor = args[a], args[a + 1], args[a + 2], args[a + 3]
    if s.last and s.last - now > ceil(burst / count) * per then -- the clock was set back
      s.tick, s.last, s.changed = floor((now - anchor) / per), now, true
    end
    now = max(now, s.last or now)
    local tick, taken = floor((now - anchor) / per), s.taken
    if s.tick and tick <= s.tick then
      tick = s.tick
    elseif s.tick then
      taken = max(taken - (tick - s.tick) * count, 0)
    end
    -- waitFor returns the time until the next ticks have added units
    local function waitFor(units)
      if units <= 0 then
        return 0
      end
      return anchor + (tick + floor((units - 1) / count) + 1) * per - now
    end
    local ok, wait = 0, -1
    if n <= burst then
      wait = waitFor(n - (burst - taken))
      if wait == 0 then
        ok = 1
        if not dryRun then
          taken = taken + n
        end
      end
    end
    return ok, wait, max(burst - taken, 0), waitFor(taken), now, tick, taken
  end,

  take = function(s, a, _, _, _, _, last, tick, taken)
    s.tick, s.taken, s.last, s.changed = tick, taken, last, true
  end,

  settle = function(s, a, now, extra, _, from)
    if not s.last and extra < 0 then
      return
    end
    local per, count, anchor = args[a], args[a + 1], args[a + 3]
    s.last = s.last or now
    local tick = max(floor((max(now, s.last) - anchor) / per), s.tick or from)
    if extra > 0 then
      s.taken = min(max(s.taken - (tick - (s.tick or tick)) * count, 0) + extra, maxExact)
      s.tick = tick
    else
      local since = max(tick - from, 0) * count
      if since >= -extra then
        return
      end
      s.taken = max(s.taken + extra + since, 0)
    end
    s.changed = true
  end,
}
