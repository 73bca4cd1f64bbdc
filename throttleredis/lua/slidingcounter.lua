-- The units of the window with a number, and of the one before it. The number is the grant.
-- Arguments: most units, microseconds of a window, 1 if the estimate is rounded down.

local function read(key)
  local v = call('GET', key)
  if v then
    return unpack('<i7i7i7i7', v)
  end
end

local function weighted(a, per, window, previous, now)
  local left = per - (now - window * per)
  if ARGV[a + 2] == '1' then
    return (muldiv(previous, left, per))
  end
  return muldivup(previous, left, per)
end

-- fades returns how long into a window the weight of the previous count is no more than room.
local function fades(a, per, previous, room)
  if previous <= room then
    return 0
  elseif ARGV[a + 2] == '1' then
    return per - (muldivup(per, room + 1, previous) - 1)
  end
  return per - muldiv(per, room, previous)
end

local function waits(a, count, per, window, current, previous, units, now)
  if units > count then
    return -1
  elseif count - weighted(a, per, window, previous, now) - current >= units then
    return 0
  end
  local room = count - units - current
  if room < 0 then -- not in this window; in the next its count is the previous one
    window, previous, room = window + 1, current, count - units
  end
  return window * per + fades(a, per, previous, room) - now
end

return {
  check = function(key, a, now)
    local count, per = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    local was, current, previous, last = read(key)
    if last and last - now > 2 * per then -- the clock was set back
      was, last = floor(now / per), now
      call('SET', key, pack('<i7i7i7i7', was, current, previous, last), 'PX', lasts((was + 2) * per - last))
    end
    now = max(now, last or now)
    local window = floor(now / per)
    if was ~= window then
      previous = was == window - 1 and current or 0
      current = 0
    end
    local wait = waits(a, count, per, window, current, previous, n, now)
    local ok = wait == 0 and 1 or 0
    if ok == 1 and not dry then
      current = current + n
    end
    local left = max(count - weighted(a, per, window, previous, now) - current, 0)
    local reset = waits(a, count, per, window, current, previous, count, now)
    return ok, wait, left, reset, now, window, current, previous, was ~= window
  end,

  take = function(key, a, _, _, _, _, last, window, current, previous, begins)
    local v = pack('<i7i7i7i7', window, current, previous, last)
    if begins then
      local per = tonumber(ARGV[a + 1])
      call('SET', key, v, 'PX', lasts((window + 2) * per - last))
    else
      call('SET', key, v, 'KEEPTTL')
    end
  end,

  settle = function(key, a, now, extra, from)
    local window, current, previous, last = read(key)
    if not window then
      return
    elseif from == window then
      current = min(max(current + extra, 0), most)
    elseif from == window - 1 then
      previous = min(max(previous + extra, 0), most)
    end
    call('SET', key, pack('<i7i7i7i7', window, current, previous, last), 'KEEPTTL')
  end,
}
