-- nginx's limit_req. It stores lastSeen, the latest reading granted at; the millisecond
-- since, as of which level is valid; level, the excess plus 1000, in thousandths of a request;
-- and the latest millisecond at which a claim acts. That millisecond is the grant.
-- Arguments: thousandths of a request per second; burst; and how much of the burst is not
-- delayed, both in thousandths of a request.

local function read(key)
  local v = call('GET', key)
  if v then
    return unpack('<i7i7i7i7', v)
  end
end

local function write(key, lastSeen, ms, level, latest, rate)
  local left = max(level * 1000 / rate, latest - ms)
  call('SET', key, pack('<i7i7i7i7', lastSeen, ms, level, latest), 'PX', ttlMillis(left * 1000))
end

-- drained returns what remains of level after ms milliseconds.
local function drained(level, ms, rate)
  return max(level - floor(max(ms, 0) * rate / 1000), 0)
end

return {
  check = function(key, a, now)
    local rate, burst, undelayed = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
    local lastSeen, since, storedLevel, latest = read(key)
    if lastSeen and lastSeen - now > (burst + 1000) * 1000000 / rate then -- the clock was set back
      local back = floor(lastSeen / 1000) - floor(now / 1000)
      lastSeen, since, latest = now, since - back, latest - back
      write(key, lastSeen, since, storedLevel, latest, rate)
    end
    now = max(now, lastSeen or now)
    local ms, level = floor(now / 1000), 0
    if lastSeen then
      level = drained(storedLevel, ms - since, rate)
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
        wait = (since + ceil((storedLevel + n * 1000 - 1000 - maxExcess) * 1000 / rate)) * 1000 - now
      else
        ok, wait = 1, floor(max(excess - undelayed, 0) * 1000 / rate) * 1000
        if not dryRun then
          level = level + n * 1000
        end
      end
    end
    local left = min(floor(max(maxExcessFor(0) + 1000 - level, 0) / 1000), limit)
    local reset = level > 0 and (ms + ceil(level * 1000 / rate)) * 1000 - now or 0
    return ok, wait, left, reset, now, ms + wait / 1000, ms, level, latest
  end,

  take = function(key, a, _, _, _, _, lastSeen, place, ms, level, latest)
    write(key, lastSeen, ms, level, max(latest or place, place), tonumber(ARGV[a]))
  end,

  settle = function(key, a, now, extra, from)
    local rate = tonumber(ARGV[a])
    local lastSeen, since, level, latest = read(key)
    if not lastSeen then
      if extra < 0 then
        return
      end
      lastSeen, since, level, latest = now, floor(now / 1000), 0, from
    end
    local ms = max(floor(now / 1000), since)
    if extra > 0 then
      since, level = ms, min(drained(level, ms - since, rate) + extra * 1000, maxExact)
    else
      local notReturned = ceil(max(max(latest, ms) - from, 0) * rate / 1000)
      level = max(level - max(-extra * 1000 - notReturned, 0), 0)
    end
    write(key, lastSeen, since, level, latest, rate)
  end,
}
