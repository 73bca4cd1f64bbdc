-- A token bucket: taken is the number of ticks of tokens missing at the time last, which is
-- the latest reading granted at. The two correspond to tat and last of throttle.TokenBucket.
-- The third number stored is the expiry of the key, in milliseconds after last. A write that
-- leaves the bucket full before the key expires keeps the expiry, which is cheaper. The last two are
-- the ticks per unit and the capacity, modulo 2^24, when they were written: if the limit has changed
-- since, the missing units are kept, but no more than the capacity.
-- Arguments: ticks per unit, ticks per microsecond, capacity in units.

-- missing returns the stored ticks of tokens missing.
local function missing(a, taken, interval, burst)
  local newInterval, newBurst = ARGV[a] + 0, ARGV[a + 2] + 0
  if interval == newInterval and burst == newBurst % 16777216 then
    return taken
  end
  return min(rescale(taken, interval, newInterval), newBurst * newInterval)
end

local function write(key, a, last, taken, expiresAt)
  local interval, scale, burst = ARGV[a] + 0, ARGV[a + 1] + 0, ARGV[a + 2] + 0
  if last + taken / scale < expiresAt then
    call('SET', key, pack('<i7i7I4i7I3', last, taken, (expiresAt - last) / 1000, interval, burst % 16777216), 'KEEPTTL')
  else
    local ms = min(max(floor(2 * taken / scale / 1000), 1000), 2 ^ 31)
    call('SET', key, pack('<i7i7I4i7I3', last, taken, ms, interval, burst % 16777216), 'PX', ttlMillis(max(ms * 1000, taken / scale)))
  end
end

return {
  check = function(key, a, now)
    local interval, scale, burst = ARGV[a] + 0, ARGV[a + 1] + 0, ARGV[a + 2] + 0
    local v, taken, expiresAt = call('GET', key), 0, 0
    if v then
      local last, storedTaken, ms, storedInterval, storedBurst = unpack('<i7i7I4i7I3', v)
      expiresAt, storedTaken = last + ms * 1000, missing(a, storedTaken, storedInterval, storedBurst)
      if last >= now and (last - now) * scale <= burst * interval then
        now, taken = last, storedTaken
      elseif last >= now then -- the clock was set back
        taken, expiresAt = storedTaken, 0
        write(key, a, now, taken, expiresAt)
      elseif storedTaken > (now - last) * scale then
        taken = storedTaken - (now - last) * scale
      end
    end
    local window, ok, wait = burst * interval, 0, -1
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
    return ok, wait, left, taken, now, now, expiresAt
  end,

  take = function(key, a, _, _, _, taken, last, _, expiresAt)
    write(key, a, last, taken, expiresAt)
  end,

  -- A returned unit counts less the longer it was held, because the refill since then would
  -- have been lost if the unit had not been taken from a full bucket.
  settle = function(key, a, now, extra, from)
    local interval, scale = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    local v, last, taken, expiresAt = call('GET', key), now, 0, 0
    if v then
      local ms, storedInterval, storedBurst
      last, taken, ms, storedInterval, storedBurst = unpack('<i7i7I4i7I3', v)
      expiresAt, taken = last + ms * 1000, missing(a, taken, storedInterval, storedBurst)
    elseif extra < 0 then
      return
    end
    now = max(now, last)
    from = min(from, now)
    local elapsed = (now - last) * scale
    if extra < 0 then
      taken = max(taken - max(-extra * interval - (now - from) * scale, 0), 0)
    elseif elapsed > maxExact then
      last, taken = now, min(extra * interval, maxExact)
    else
      taken = min(max(taken, elapsed) + extra * interval, maxExact)
    end
    write(key, a, last, taken, expiresAt)
  end,
}
