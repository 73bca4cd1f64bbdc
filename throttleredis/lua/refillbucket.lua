-- A bucket that is refilled at ticks. Ticks are numbered from the anchor. It stores storedTick,
-- the units that were missing right after that tick, and the latest reading granted at. The
-- capacity is stored, too: if it has been reduced since, units beyond it are dropped. The
-- grant is the number of the tick, from which a settlement derives the refills since then.
-- Arguments: microseconds between ticks, units added by each, capacity, the anchor.

local function read(key, a)
  local v = call('GET', key)
  if v then
    local tick, taken, last, burst = unpack('<i7i7i7i7', v)
    if burst ~= tonumber(ARGV[a + 2]) then
      taken = min(taken, tonumber(ARGV[a + 2]))
    end
    return tick, taken, last
  end
  return nil, 0, nil
end

local function write(key, a, tick, taken, last, idleAfter)
  call('SET', key, pack('<i7i7i7i7', tick, taken, last, tonumber(ARGV[a + 2])), 'PX', ttlMillis(idleAfter))
end

return {
  check = function(key, a, now)
    local per, count = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    local burst, anchor = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
    local storedTick, taken, last = read(key, a)
    if last and last - now > ceil(burst / count) * per then -- the clock was set back
      storedTick, last = floor((now - anchor) / per), now
      write(key, a, storedTick, taken, last, anchor + (storedTick + ceil(taken / count)) * per - now)
    end
    now = max(now, last or now)
    local tick = floor((now - anchor) / per)
    if storedTick and tick <= storedTick then
      tick = storedTick
    elseif storedTick then
      taken = max(taken - (tick - storedTick) * count, 0)
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

  take = function(key, a, _, _, _, reset, last, tick, taken)
    write(key, a, tick, taken, last, reset)
  end,

  settle = function(key, a, now, extra, from)
    local per, count, anchor = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 3])
    local storedTick, taken, last = read(key, a)
    if not last then
      if extra < 0 then
        return
      end
      last = now
    end
    now = max(now, last)
    local tick = max(floor((now - anchor) / per), storedTick or from)
    if extra > 0 then
      taken = min(max(taken - (tick - (storedTick or tick)) * count, 0) + extra, maxExact)
      storedTick = tick
    else
      local since = max(tick - from, 0) * count
      if since >= -extra then
        return
      end
      taken = max(taken + extra + since, 0)
    end
    write(key, a, storedTick, taken, last, anchor + (storedTick + ceil(taken / count)) * per - now)
  end,
}
