-- A token bucket: taken is the number of ticks of tokens missing at the time last, which is
-- the latest reading granted at. The two correspond to tat and last of throttle.TokenBucket.
-- The third number stored is the expiry of the key, in milliseconds after last. A write that
-- leaves the bucket full before the key expires keeps the expiry, which is cheaper. The last two are
-- the ticks per unit and the capacity, modulo 2^24, when they were written: if the limit has changed
-- since, the missing units are kept, but no more than the capacity.
-- Arguments: ticks per unit, ticks per microsecond, capacity in units.

return {
  load = function(key, a)
    local v = call('GET', key)
    if not v then
      return {last = nil, taken = 0, expiresAt = 0, changed = false}
    end
    local last, taken, ms, storedInterval, storedBurst = unpack('<i7i7I4i7I3', v)
    local interval, burst = args[a], args[a + 2]
    if storedInterval ~= interval or storedBurst ~= burst % 16777216 then
      taken = min(rescale(taken, storedInterval, interval), burst * interval)
    end
    return {last = last, taken = taken, expiresAt = last + ms * 1000, changed = false}
  end,

  store = function(key, s, a)
    local last, taken, interval, scale, burst = s.last, s.taken, args[a], args[a + 1], args[a + 2]
    if last + taken / scale < s.expiresAt then
      call('SET', key, pack('<i7i7I4i7I3', last, taken, (s.expiresAt - last) / 1000, interval, burst % 16777216), 'KEEPTTL')
    else
      local ms = min(max(floor(2 * taken / scale / 1000), 1000), 2 ^ 31)
      local v = pack('<i7i7I4i7I3', last, taken, ms, interval, burst % 16777216)
      call('SET', key, v, 'PX', ttlMillis(max(ms * 1000, taken / scale)))
    end
  end,

  check = function(s, a, now)
    local interval, scale, burst = args[a], args[a + 1], args[a + 2]
    local window, last, taken = burst * interval, s.last, s.taken
    if last and last < now then
      taken = taken - (now - last) * scale
      if taken < 0 then
        taken = 0
      end
    elseif last and (last - now) * scale <= window then
      now = last
    elseif last then -- the clock was set back
      s.last, s.expiresAt, s.changed = now, 0, true
    end
    local ok, wait = 0, -1
    if n <= burst then
      wait = taken + n * interval - window
      if wait <= 0 then
        ok, wait = 1, 0
        if not dryRun then
          taken = taken + n * interval
        end
      end
    end
    local left = 0
    if taken < window then
      left = floor((window - taken) / interval)
    end
    return ok, wait, left, taken, now, now
  end,

  take = function(s, a, _, _, _, taken, last)
    s.last, s.taken, s.changed = last, taken, true
  end,

  -- A returned unit counts less the longer it was held, because the refill since then would
  -- have been lost if the unit had not been taken from a full bucket.
  settle = function(s, a, now, extra, _, from)
    if not s.last and extra < 0 then
      return
    end
    local interval, scale = args[a], args[a + 1]
    s.last, s.changed = s.last or now, true
    now = max(now, s.last)
    from = min(from, now)
    local elapsed = (now - s.last) * scale
    if extra < 0 then
      s.taken = max(s.taken - max(-extra * interval - (now - from) * scale, 0), 0)
    elseif elapsed > maxExact then
      s.last, s.taken = now, min(extra * interval, maxExact)
    else
      s.taken = min(max(s.taken, elapsed) + extra * interval, maxExact)
    end
  end,
}
