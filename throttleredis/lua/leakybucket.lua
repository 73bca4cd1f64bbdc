-- A leaky bucket: taken is the number of ticks booked after last, which is the latest reading
-- granted at. A place is the time at which a claim leaves the queue, in ticks after last.
-- latestPlace is the latest place granted, and latestUnordered the latest of the places that
-- did not directly follow latestPlace when they were granted: they remain occupied if the
-- claim at latestPlace is cancelled. throttle.LeakyBucket stores the same as last and lastGap.
-- The ticks per unit and the units that leave immediately are stored, too: if the limit has changed
-- since, the units are kept, but no more than the limit.
-- A grant is the reading it was made at, and the number of ticks after that at which it acts.
-- Arguments: ticks per unit, ticks per microsecond, maximum units that leave immediately,
-- ticks of the queue, maximum units per claim, 1 if the units of a claim leave one by one.

local function read(key, a)
  local v = call('GET', key)
  if v then
    local last, taken, latestPlace, latestUnordered, from, storedBurst = unpack('<i7i7i7i7i7i7', v)
    local interval, burst = tonumber(ARGV[a]), tonumber(ARGV[a + 2])
    if from ~= interval or storedBurst ~= burst then
      local most = min(burst * interval + ARGV[a + 3], maxExact)
      taken = min(rescale(taken, from, interval), most)
      latestPlace, latestUnordered = rescale(latestPlace, from, interval), rescale(latestUnordered, from, interval)
    end
    return last, taken, latestPlace, latestUnordered
  end
end

local function write(key, a, last, taken, latestPlace, latestUnordered)
  local left = max(taken, latestPlace) / ARGV[a + 1]
  local v = pack('<i7i7i7i7i7i7', last, taken, latestPlace, latestUnordered, tonumber(ARGV[a]), tonumber(ARGV[a + 2]))
  call('SET', key, v, 'PX', ttlMillis(left))
end

return {
  check = function(key, a, now)
    local interval, scale, burst = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
    local queue, largest, split = tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5]) == 1
    local last, taken, latestPlace, latestUnordered = read(key, a)
    if not last then
      taken, latestPlace, latestUnordered = 0, -maxExact, -maxExact
    elseif last >= now and (last - now) * scale <= burst * interval + (split and queue or 0) then
      now = last
    elseif last >= now then -- the clock was set back
      write(key, a, now, taken, latestPlace, latestUnordered)
    else
      local elapsed = (now - last) * scale
      taken = max(taken - elapsed, 0)
      latestPlace, latestUnordered = max(latestPlace - elapsed, -maxExact), max(latestUnordered - elapsed, -maxExact)
    end
    local window, cost, maxWait = burst * interval, n * interval, min(queue, arg)
    local ok, wait = 0, -1
    if n <= largest and cost - window <= maxWait then
      wait = max(taken + cost - window, 0)
      if wait > maxWait then
        wait = wait - maxWait
      else
        ok = 1
        if not dryRun then
          taken = taken + cost
        end
      end
    end
    local capacity = split and window + queue or window
    return ok, wait, floor(max(capacity - taken, 0) / interval), taken, now, now, latestPlace, latestUnordered
  end,

  take = function(key, a, _, place, _, taken, last, _, latestPlace, latestUnordered)
    local interval = tonumber(ARGV[a])
    if place <= latestPlace then
      latestUnordered = max(latestUnordered, place)
    else
      if latestPlace > place - n * interval then
        latestUnordered = max(latestUnordered, latestPlace)
      end
      latestPlace = place
    end
    write(key, a, last, taken, latestPlace, latestUnordered)
  end,

  -- Claims behind this one keep their places, so units that leave between this claim and
  -- the last one are not returned.
  settle = function(key, a, now, extra, from, wait, cancels)
    local interval, scale, burst = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
    local split = tonumber(ARGV[a + 5]) == 1
    local last, taken, latestPlace, latestUnordered = read(key, a)
    if not last then
      if extra < 0 then
        return
      end
      last, taken, latestPlace, latestUnordered = now, 0, -maxExact, -maxExact
    end
    local elapsed = max(now - last, 0) * scale
    if extra > 0 then
      taken = min(max(taken, elapsed) + extra * interval, maxExact)
      return write(key, a, last, taken, latestPlace, latestUnordered)
    end
    local place = (from - last) * scale + tonumber(wait)
    local notReturned = max(latestPlace, elapsed) - place
    local returned = -extra * interval
    if notReturned > 0 and split then
      returned = min(returned, burst * interval)
    end
    taken = max(taken - max(returned - notReturned, 0), 0)
    if not cancels then
      latestUnordered = latestPlace
    elseif notReturned == 0 then
      latestPlace = max(place + extra * interval, latestUnordered)
    end
    write(key, a, last, taken, latestPlace, latestUnordered)
  end,
}
