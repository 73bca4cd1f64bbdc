-- A window from start until just before stop, in which used units were taken. The grant is
-- the start, which identifies the window.
-- Arguments: the limit in units; the length of a window in microseconds, or 0 for windows of
-- a calendar; 1 if a window begins with the first claim; the instants at which four
-- consecutive windows of the calendar begin. If the server's time is in none of the first
-- three, the wait is -2, and the caller retries with other windows.

local function read(key)
  local v = call('GET', key)
  if v then
    return unpack('<i7i7i7i7', v)
  end
end

local function windowAt(a, now)
  local per = tonumber(ARGV[a + 1])
  if per > 0 then
    local start = tonumber(ARGV[a + 2]) == 1 and now or floor(now / per) * per
    return start, start + per
  end
  for i = a + 3, a + 5 do
    local start, stop = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    if start <= now and now < stop then
      return start, stop
    end
  end
end

return {
  check = function(key, a, now)
    local count = tonumber(ARGV[a])
    local start, stop, used, last = read(key)
    if last and last - now > stop - start then -- the clock was set back
      start, stop = windowAt(a, now)
      if not start then
        return 0, -2, 0, 0, now, 0
      end
      last = now
      call('SET', key, pack('<i7i7i7i7', start, stop, used, last), 'PX', ttlMillis(stop - last))
    end
    now = max(now, last or now)
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

  take = function(key, a, _, _, _, _, last, start, stop, used, isNew)
    local v = pack('<i7i7i7i7', start, stop, used, last)
    if isNew then
      call('SET', key, v, 'PX', ttlMillis(stop - last))
    else
      call('SET', key, v, 'KEEPTTL')
    end
  end,

  settle = function(key, a, now, extra, from)
    local start, stop, used, last = read(key)
    if start == from then
      used = min(max(used + extra, 0), maxExact)
      call('SET', key, pack('<i7i7i7i7', start, stop, used, last), 'KEEPTTL')
    end
  end,
}
