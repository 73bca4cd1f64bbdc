-- A window from start until just before stop, in which used units were taken. The grant is
-- the start, which identifies the window.
-- Arguments: the limit in units; the length of a window in microseconds, or 0 for windows of
-- a calendar; 1 if a window begins with the first claim; the instants at which four
-- consecutive windows of the calendar begin. If the server's time is in none of the first
-- three, the wait is -2, and the caller retries with other windows.

local function windowAt(a, now)
  local per = args[a + 1]
  if per > 0 then
    local start = args[a + 2] == 1 and now or floor(now / per) * per
    return start, start + per
  end
  for i = a + 3, a + 5 do
    local start, stop = args[i], args[i + 1]
    if start <= now and now < stop then
      return start, stop
    end
  end
end

return {
  load = function(key)
    local s, v = {}, call('GET', key)
    if v then
      s.start, s.stop, s.used, s.last = unpack('<i7i7i7i7', v)
    end
    return s
  end,

  store = function(key, s)
    local v = pack('<i7i7i7i7', s.start, s.stop, s.used, s.last)
    if s.isNew then
      call('SET', key, v, 'PX', ttlMillis(s.stop - s.last))
    else
      call('SET', key, v, 'KEEPTTL')
    end
  end,

  check = function(s, a, now)
    local count, start, stop, used = args[a], s.start, s.stop, s.used
    if start and s.last - now > stop - start then -- the clock was set back
      start, stop = windowAt(a, now)
      if not start then
        return 0, -2, 0, 0, now, 0
      end
      s.start, s.stop, s.last, s.isNew, s.changed = start, stop, now, true, true
    end
    now = max(now, s.last or now)
    local isNew = not start or now < start or now >= stop
    if isNew then
      start, stop = windowAt(a, now)
      used = 0
      if not start then
        return 0, -2, 0, 0, now, 0
      end
    end
    local ok, wait = 0, stop - now
    if n > count then
      wait = -1
    elseif n <= count - used then
      ok, wait = 1, 0
      if not dryRun then
        used = used + n
      end
    end
    local reset = used > 0 and stop - now or 0
    return ok, wait, max(count - used, 0), reset, now, start, stop, used, isNew
  end,

  take = function(s, a, _, _, _, _, last, start, stop, used, isNew)
    s.start, s.stop, s.used, s.last, s.isNew, s.changed = start, stop, used, last, s.isNew or isNew, true
  end,

  settle = function(s, a, now, extra, _, from)
    if s.start == from then
      s.used, s.changed = min(max(s.used + extra, 0), maxExact), true
    end
  end,
}
