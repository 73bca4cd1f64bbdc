-- A sliding window counter: the units used in a numbered window and in the one before it. The
-- grant is the number of the window.
-- Arguments: the limit in units, microseconds per window, 1 if the estimate is rounded down.

local function read(key)
  local v = call('GET', key)
  if v then
    return unpack('<i7i7i7i7', v)
  end
end

local function weighted(a, per, window, previous, now)
  local left = per - (now - window * per)
  if tonumber(ARGV[a + 2]) == 1 then
    return (muldiv(previous, left, per))
  end
  return muldivup(previous, left, per)
end

-- decayTime returns how far into a window the weighted previous count has decayed to available.
local function decayTime(a, per, previous, available)
  if previous <= available then
    return 0
  elseif tonumber(ARGV[a + 2]) == 1 then
    return per - (muldivup(per, available + 1, previous) - 1)
  end
  return per - muldiv(per, available, previous)
end

-- waitFor returns the time until units are available; -1: never.
local function waitFor(a, count, per, window, current, previous, units, now)
  if units > count then
    return -1
  elseif count - weighted(a, per, window, previous, now) - current >= units then
    return 0
  end
  local available = count - units - current
  if available < 0 then -- not in this window: in the next one, current is the previous count
    window, previous, available = window + 1, current, count - units
  end
  return window * per + decayTime(a, per, previous, available) - now
end

return {
  check = function(key, a, now)
    local count, per = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    local storedWindow, current, previous, last = read(key)
    if last and last - now > 2 * per then -- the clock was set back
      storedWindow, last = floor(now / per), now
      call('SET', key, pack('<i7i7i7i7', storedWindow, current, previous, last), 'PX', ttlMillis((storedWindow + 2) * per - last))
    end
    now = max(now, last or now)
    local window = floor(now / per)
    if storedWindow ~= window then
      previous = storedWindow == window - 1 and current or 0
      current = 0
    end
    local wait = waitFor(a, count, per, window, current, previous, n, now)
    local ok = wait == 0 and 1 or 0
    if ok == 1 and not dryRun then
      current = current + n
    end
    local left = max(count - weighted(a, per, window, previous, now) - current, 0)
    local reset = waitFor(a, count, per, window, current, previous, count, now)
    return ok, wait, left, reset, now, window, current, previous, storedWindow ~= window
  end,

  take = function(key, a, _, _, _, _, last, window, current, previous, isNew)
    local v = pack('<i7i7i7i7', window, current, previous, last)
    if isNew then
      local per = tonumber(ARGV[a + 1])
      call('SET', key, v, 'PX', ttlMillis((window + 2) * per - last))
    else
      call('SET', key, v, 'KEEPTTL')
    end
  end,

  settle = function(key, a, now, extra, from)
    local window, current, previous, last = read(key)
    if not window then
      return
    elseif from == window then
      current = min(max(current + extra, 0), maxExact)
    elseif from == window - 1 then
      previous = min(max(previous + extra, 0), maxExact)
    end
    call('SET', key, pack('<i7i7i7i7', window, current, previous, last), 'KEEPTTL')
  end,
}
