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

return {
  load = function(key, a)
    local v = call('GET', key)
    if not v then
      return {taken = 0, latestPlace = -maxExact, latestUnordered = -maxExact}
    end
    local last, taken, latestPlace, latestUnordered, from, storedBurst = unpack('<i7i7i7i7i7i7', v)
    local interval, burst = args[a], args[a + 2]
    if from ~= interval or storedBurst ~= burst then
      local most = min(burst * interval + args[a + 3], maxExact)
      taken = min(rescale(taken, from, interval), most)
      latestPlace, latestUnordered = rescale(latestPlace, from, interval), rescale(latestUnordered, from, interval)
    end
    return {last = last, taken = taken, latestPlace = latestPlace, latestUnordered = latestUnordered}
  end,

  store = function(key, s, a)
    local v = pack('<i7i7i7i7i7i7', s.last, s.taken, s.latestPlace, s.latestUnordered, args[a], args[a + 2])
    call('SET', key, v, 'PX', ttlMillis(max(s.taken, s.latestPlace) / args[a + 1]))
  end,

  check = function(s, a, now)
    local interval, scale, burst = args[a], args[a + 1], args[a + 2]
    local queue, largest, split = args[a + 3], args[a + 4], args[a + 5] == 1
    local last, taken, latestPlace, latestUnordered = s.last, s.taken, s.latestPlace, s.latestUnordered
    if not last then
    elseif last >= now and (last - now) * scale <= burst * interval + (split and queue or 0) then
      now = last
    elseif last >= now then -- the clock was set back
      s.last, s.changed = now, true
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

  take = function(s, a, _, place, _, taken, last, _, latestPlace, latestUnordered)
    if place <= latestPlace then
      latestUnordered = max(latestUnordered, place)
    else
      if latestPlace > place - n * args[a] then
        latestUnordered = max(latestUnordered, latestPlace)
      end
      latestPlace = place
    end
    s.last, s.taken, s.latestPlace, s.latestUnordered, s.changed = last, taken, latestPlace, latestUnordered, true
  end,

  -- Claims behind this one keep their places, so units that leave between this claim and
  -- the last one are not returned.
  settle = function(s, a, now, extra, cancels, from, wait)
    if not s.last and extra < 0 then
      return
    end
    local interval, scale, burst, split = args[a], args[a + 1], args[a + 2], args[a + 5] == 1
    s.last, s.changed = s.last or now, true
    local elapsed = max(now - s.last, 0) * scale
    if extra > 0 then
      s.taken = min(max(s.taken, elapsed) + extra * interval, maxExact)
      return
    end
    local place = (from - s.last) * scale + wait
    local notReturned = max(s.latestPlace, elapsed) - place
    local returned = -extra * interval
    if notReturned > 0 and split then
      returned = min(returned, burst * interval)
    end
    s.taken = max(s.taken - max(returned - notReturned, 0), 0)
    if not cancels then
      s.latestUnordered = s.latestPlace
    elseif notReturned == 0 then
      s.latestPlace = max(place + extra * interval, s.latestUnordered)
    end
  end,
}
