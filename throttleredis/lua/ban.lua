-- A ban, which is the last of several limits. While a key is banned it rejects all claims;
-- otherwise it counts the claims that the other limits reject. It stores the end of the
-- latest ban, the duration of that ban, the time at which everything is forgotten, the number of
-- rejections that cause a ban, and the number of those since the latest ban. A ring of the
-- readings of the latest rejections follows, of which a rejection reads one and writes one.
-- Arguments: rejections that cause a ban; in microseconds: the period within which they
-- occur, the first duration, the maximum duration, and the time without rejections after
-- which everything is forgotten.

local headerSize, readingSize = 29, 7

local function read(key, after)
  local v = call('GETRANGE', key, 0, headerSize - 1)
  if v == '' then
    return -maxExact, 0, -maxExact, 0
  end
  local bannedUntil, duration, forgetAt, size, count = unpack('<i7i7i7I4I4', v)
  return bannedUntil, duration, forgetAt, size == after and count or 0
end

local function write(key, bannedUntil, duration, forgetAt, after, count, now)
  call('SETRANGE', key, 0, pack('<i7i7i7I4I4', bannedUntil, duration, forgetAt, after, count))
  call('PEXPIRE', key, ttlMillis(forgetAt - now))
end

-- recordRejection stores the reading of the rejection with a number, and returns whether it causes
-- a ban. Numbers begin at 1.
local function recordRejection(key, number, after, within, now)
  local function place(i)
    return headerSize + (i % after) * readingSize
  end
  call('SETRANGE', key, place(number), pack('<i7', now))
  if number < after then
    return false
  end
  local oldest = place(number + 1)
  return now - unpack('<i7', call('GETRANGE', key, oldest, oldest + readingSize - 1)) < within
end

return {
  isBan = true,

  -- The reading of the clock is the one that the first limit used.
  check = function(key, a, _, decisions)
    local now, after, maxDuration = decisions[1][5], tonumber(ARGV[a]), tonumber(ARGV[a + 3])
    local bannedUntil, duration, forgetAt, count = read(key, after)
    if bannedUntil - now > 2 * maxDuration then -- the clock was set back
      bannedUntil, forgetAt = now + maxDuration, now + maxDuration + ARGV[a + 4]
      write(key, bannedUntil, duration, forgetAt, after, count, now)
    end
    local left = max(bannedUntil - now, 0)
    return left == 0 and 1 or 0, left, 0, left, now, 0
  end,

  take = function() end,

  settle = function() end,

  reject = function(key, a, ok, wait, left, reset, now)
    local after, within = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    local firstDuration, maxDuration = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
    local forgetAfter = tonumber(ARGV[a + 4])
    local bannedUntil, duration, forgetAt, count = read(key, after)
    if now >= forgetAt then
      bannedUntil, duration, count = -maxExact, 0, 0
    end
    forgetAt, count = max(forgetAt, now + forgetAfter), count + 1
    if recordRejection(key, count, after, within, now) then
      duration = min(max(duration * 2, firstDuration), maxDuration)
      bannedUntil, count = now + duration, 0
      forgetAt = bannedUntil + forgetAfter
      ok, wait, reset = 0, duration, duration
    elseif count == 2 * after then
      count = after
    end
    write(key, bannedUntil, duration, forgetAt, after, count, now)
    return ok, wait, left, reset
  end,
}
