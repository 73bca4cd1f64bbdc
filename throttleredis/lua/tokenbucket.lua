-- A token bucket: taken is the number of ticks of tokens missing at the time last, which is
-- the latest reading granted at. The two correspond to tat and last of throttle.TokenBucket.
-- The third number stored is the expiry of the key, in milliseconds after last. A write that
-- leaves the bucket full before the key expires keeps the expiry, which is cheaper. The last two are
-- the ticks per unit and the capacity, modulo 2^24, when they were written: if the limit has changed
-- since, the missing units are kept, but no more than the capacity.
-- Arguments: ticks per unit, ticks per microsecond, capacity in units.

local function write(key, last, taken, expiresAt, interval, scale, burst)
  if last + taken / scale < expiresAt then
    call('SET', key, pack('<i7i7I4i7I3', last, taken, (expiresAt - last) / 1000, interval, burst % 16777216), 'KEEPTTL')
  else
    local ms = min(max(floor(2 * taken / scale / 1000), 1000), 2 ^ 31)
    local v = pack('<i7i7I4i7I3', last, taken, ms, interval, burst % 16777216)
    call('SET', key, v, 'PX', ttlMillis(max(ms * 1000, taken / scale)))
  end
end

-- read returns the stored numbers, of the limit as it is now.
local function read(v, interval, burst)
  local last, taken, ms, storedInterval, storedBurst = unpack('<i7i7I4i7I3', v)
  if storedInterval ~= interval or storedBurst ~= burst % 16777216 then
    taken = min(rescale(taken, storedInterval, interval), burst * interval)
  end
  return last, taken, last + ms * 1000
end

return {
  check = function(key, a, now)
    local interval, scale, burst = ARGV[a] + 0, ARGV[a + 1] + 0, ARGV[a + 2] + 0
    local v, taken, expiresAt = call('GET', key), 0, 0
    if v then
      local last, storedTaken
      last, storedTaken, expiresAt = read(v, interval, burst)
      if last >= now and (last - now) * scale <= burst * interval then
        now, taken = last, storedTaken
      elseif last >= now then -- the clock was set back
        taken, expiresAt = storedTaken, 0
        write(key, now, taken, expiresAt, interval, scale, burst)
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
    write(key, last, taken, expiresAt, ARGV[a] + 0, ARGV[a + 1] + 0, ARGV[a + 2] + 0)
  end,

  -- A returned unit counts less the longer it was held, because the refill since then would
  -- have been lost if the unit had not been taken from a full bucket.
  settle = function(key, a, now, extra, from)
    local interval, scale, burst = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
    local v, last, taken, expiresAt = call('GET', key), now, 0, 0
    if v then
      last, taken, expiresAt = read(v, interval, burst)
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
    write(key, last, taken, expiresAt, interval, scale, burst)
  end,
}
