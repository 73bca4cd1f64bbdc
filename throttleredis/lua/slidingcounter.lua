-- A sliding window counter: the units used in a numbered window and in the one before it. The
-- grant is the number of the window.
-- Arguments: the limit in units, microseconds per window, 1 if the estimate is rounded down.

local function weighted(a, per, window, previous, now)
  local left = per - (now - window * per)
  if args[a + 2] == 1 then
    return (muldiv(previous, left, per))
  end
  return muldivup(previous, left, per)
end

-- decayTime returns how far into a window the weighted previous count has decayed to available.
local function decayTime(a, per, previous, available)
  if previous <= available then
    return 0
  elseif args[a + 2] == 1 then
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
  load = function(key)
    local s, v = {}, call('GET', key)
    if v then
      s.window, s.current, s.previous, s.last = unpack('<i7i7i7i7', v)
    end
    return s
  end,

  store = function(key, s, a)
    local v = pack('<i7i7i7i7', s.window, s.current, s.previous, s.last)
    if s.isNew then
      call('SET', key, v, 'PX', ttlMillis((s.window + 2) * args[a + 1] - s.last))
    else
      call('SET', key, v, 'KEEPTTL')
    end
  end,

  check = function(s, a, now)
    local count, per = args[a], args[a + 1]
    if s.last and s.last - now > 2 * per then -- the clock was set back
      s.window, s.last, s.isNew, s.changed = floor(now / per), now, true, true
    end
    now = max(now, s.last or now)
    local window, current, previous = floor(now / per), s.current, s.previous
    if s.window ~= window then
      previous = s.window == window - 1 and current or 0
      current = 0
    end
    local wait = waitFor(a, count, per, window, current, previous, n, now)
    local ok = wait == 0 and 1 or 0
    if ok == 1 and not dryRun then
      current = current + n
    end
    local left = max(count - weighted(a, per, window, previous, now) - current, 0)
    local reset = waitFor(a, count, per, window, current, previous, count, now)
    return ok, wait, left, reset, now, window, current, previous
  end,

  take = function(s, a, _, _, _, _, last, window, current, previous)
    s.isNew = s.isNew or s.window ~= window
    s.window, s.current, s.previous, s.last, s.changed = window, current, previous, last, true
  end,

  settle = function(s, a, now, extra, _, from)
    if s.window and from == s.window then
      s.current, s.changed = min(max(s.current + extra, 0), maxExact), true
    elseif s.window and from == s.window - 1 then
      s.previous, s.changed = min(max(s.previous + extra, 0), maxExact), true
    end
  end,
}
