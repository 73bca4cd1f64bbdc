-- nginx's limit_req. It stores lastSeen, the latest reading granted at; the millisecond
-- since, as of which level is valid; level, the excess plus 1000, in thousandths of a request;
-- and the latest millisecond at which a claim acts. That millisecond is the grant.
-- Arguments: thousandths of a request per second; burst; and how much of the burst is not
-- delayed, both in thousandths of a request.

-- drained returns what remains of level after ms milliseconds.
local function drained(level, ms, rate)
  return max(level - floor(max(ms, 0) * rate / 1000), 0)
end

return {
  load = function(key)
    local s, v = {}, call('GET', key)
    if v then
      s.lastSeen, s.since, s.level, s.latest = unpack('<i7i7i7i7', v)
    end
    return s
  end,

  store = function(key, s, a)
    local left = max(s.level * 1000 / args[a], s.latest - s.since)
    call('SET', key, pack('<i7i7i7i7', s.lastSeen, s.since, s.level, s.latest), 'PX', ttlMillis(left * 1000))
  end,

  check = function(s, a, now)
    local rate, burst, undelayed = args[a], args[a + 1], args[a + 2]
    if s.lastSeen and s.lastSeen - now > (burst + 1000) * 1000000 / rate then -- the clock was set back
      local back = floor(s.lastSeen / 1000) - floor(now / 1000)
      s.lastSeen, s.since, s.latest, s.changed = now, s.since - back, s.latest - back, true
    end
    now = max(now, s.lastSeen or now)
    local ms, level = floor(now / 1000), 0
    if s.lastSeen then
      level = drained(s.level, ms - s.since, rate)
    end
    -- maxExcessFor returns the largest excess with which a claim waits no longer than wait ms
    local function maxExcessFor(wait)
      return min(undelayed + ceil((wait + 1) * rate / 1000) - 1, burst)
    end
    local limit, maxExcess = floor(undelayed / 1000) + 1, maxExcessFor(floor(arg / 1000))
    local ok, wait = 0, -1
    if n <= limit then
      local excess = level + n * 1000 - 1000
      if excess > maxExcess then
        wait = (s.since + ceil((s.level + n * 1000 - 1000 - maxExcess) * 1000 / rate)) * 1000 - now
      else
        ok, wait = 1, floor(max(excess - undelayed, 0) * 1000 / rate) * 1000
        if not dryRun then
          level = level + n * 1000
        end
      end
    end
    local left = min(floor(max(maxExcessFor(0) + 1000 - level, 0) / 1000), limit)
    local reset = level > 0 and (ms + ceil(level * 1000 / rate)) * 1000 - now or 0
    return ok, wait, left, reset, now, ms + wait / 1000, ms, level
  end,

  take = function(s, a, _, _, _, _, lastSeen, place, ms, level)
    s.lastSeen, s.since, s.level, s.latest, s.changed = lastSeen, ms, level, max(s.latest or place, place), true
  end,

  settle = function(s, a, now, extra, _, from)
    if not s.lastSeen then
      if extra < 0 then
        return
      end
      s.lastSeen, s.since, s.level, s.latest = now, floor(now / 1000), 0, from
    end
    local rate, ms = args[a], max(floor(now / 1000), s.since)
    if extra > 0 then
      s.level = min(drained(s.level, ms - s.since, rate) + extra * 1000, maxExact)
      s.since = ms
    else
      local notReturned = ceil(max(max(s.latest, ms) - from, 0) * rate / 1000)
      s.level = max(s.level - max(-extra * 1000 - notReturned, 0), 0)
    end
    s.changed = true
  end,
}
