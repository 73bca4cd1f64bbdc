-- A ban, which is the last of several limits. While a key is banned it rejects all claims;
-- otherwise it counts the claims that the other limits reject. It stores the end of the
-- latest ban, the duration of that ban, the time at which everything is forgotten, the number of
-- rejections that cause a ban, and the number of those since the latest ban. A ring of the
-- readings of the latest rejections follows, of which a rejection reads one and writes one.
-- Arguments: rejections that cause a ban; in microseconds: the period within which they
-- occur, the first duration, the maximum duration, and the time without rejections after
-- which everything is forgotten.

local headerSize, readingSize = 29, 7

-- recordRejection records the reading of the rejection with a number, and returns whether it causes
-- a ban. Numbers begin at 1.
local function recordRejection(s, number, after, within, now)
  local function place(i)
    return headerSize + (i % after) * readingSize
  end
  s.readings[place(number)] = now
  if number < after then
    return false
  end
  local oldest = place(number + 1)
  local reading = s.readings[oldest] or unpack('<i7', call('GETRANGE', s.key, oldest, oldest + readingSize - 1))
  return now - reading < within
end

return {
  isBan = true,

  load = function(key, a)
    local s = {key = key, bannedUntil = -maxExact, duration = 0, forgetAt = -maxExact, count = 0, readings = {}}
    local v = call('GETRANGE', key, 0, headerSize - 1)
    if v ~= '' then
      local size, count
      s.bannedUntil, s.duration, s.forgetAt, size, count = unpack('<i7i7i7I4I4', v)
      s.count = size == args[a] and count or 0
    end
    return s
  end,

  store = function(key, s, a)
    for place, reading in pairs(s.readings) do
      call('SETRANGE', key, place, pack('<i7', reading))
    end
    call('SETRANGE', key, 0, pack('<i7i7i7I4I4', s.bannedUntil, s.duration, s.forgetAt, args[a], s.count))
    call('PEXPIRE', key, ttlMillis(s.forgetAt - s.now))
  end,

  -- The reading of the clock is the one that the first limit used.
  check = function(s, a, _, decisions)
    local now, maxDuration = decisions[1][5], args[a + 3]
    if s.bannedUntil - now > 2 * maxDuration then -- the clock was set back
      s.bannedUntil, s.forgetAt = now + maxDuration, now + maxDuration + args[a + 4]
      s.now, s.changed = now, true
    end
    local left = max(s.bannedUntil - now, 0)
    return left == 0 and 1 or 0, left, 0, left, now, 0
  end,

  take = function() end,

  settle = function() end,

  reject = function(s, a, ok, wait, left, reset, now)
    local after, within, firstDuration, maxDuration, forgetAfter = _G.unpack(args, a, a + 4)
    if now >= s.forgetAt then
      s.bannedUntil, s.duration, s.count = -maxExact, 0, 0
    end
    s.forgetAt, s.count = max(s.forgetAt, now + forgetAfter), s.count + 1
    s.now, s.changed = now, true
    if recordRejection(s, s.count, after, within, now) then
      s.duration = min(max(s.duration * 2, firstDuration), maxDuration)
      s.bannedUntil, s.count = now + s.duration, 0
      s.forgetAt = s.bannedUntil + forgetAfter
      ok, wait, reset = 0, s.duration, s.duration
    elseif s.count == 2 * after then
      s.count = after
    end
    return ok, wait, left, reset
  end,
}
