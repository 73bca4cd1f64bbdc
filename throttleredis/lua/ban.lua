-- A ban, which is the last of several limits. While a key is banned it rejects all claims;
-- otherwise it counts the claims that the other limits reject. It stores the end of the
-- latest ban, the duration of that ban, the time at which everything is forgotten, and the
-- readings of rejections, oldest first.
-- Arguments: rejections that cause a ban; in microseconds: the period within which they
-- occur, the first duration, the maximum duration, and the time without rejections after
-- which everything is forgotten.

local function read(key)
  local v, rejections = call('GET', key), {}
  if not v then
    return -maxExact, 0, -maxExact, rejections
  end
  local bannedUntil, duration, forgetAt, i = unpack('<i7i7i7', v)
  while i <= #v do
    rejections[#rejections + 1], i = unpack('<i7', v, i)
  end
  return bannedUntil, duration, forgetAt, rejections
end

-- recordRejection adds a rejection, and returns whether it causes a ban.
local function recordRejection(rejections, after, within, now)
  if #rejections == after then
    table.remove(rejections, 1)
  end
  rejections[#rejections + 1] = now
  return #rejections == after and now - rejections[1] < within
end

local function write(key, bannedUntil, duration, forgetAt, rejections, now)
  local v = {pack('<i7i7i7', bannedUntil, duration, forgetAt)}
  for _, at in ipairs(rejections) do
    v[#v + 1] = pack('<i7', at)
  end
  call('SET', key, table.concat(v), 'PX', ttlMillis(forgetAt - now))
end

return {
  isBan = true,

  -- The reading of the clock is the one that the first limit used.
  check = function(key, a, _, decisions)
    local now, maxDuration = decisions[1][5], tonumber(ARGV[a + 3])
    local bannedUntil, duration, forgetAt, rejections = read(key)
    if bannedUntil - now > 2 * maxDuration then -- the clock was set back
      bannedUntil, forgetAt = now + maxDuration, now + maxDuration + ARGV[a + 4]
      write(key, bannedUntil, duration, forgetAt, rejections, now)
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
    local bannedUntil, duration, forgetAt, rejections = read(key)
    if now >= forgetAt then
      bannedUntil, duration, rejections = -maxExact, 0, {}
    end
    forgetAt = max(forgetAt, now + forgetAfter)
    if recordRejection(rejections, after, within, now) then
      duration = min(max(duration * 2, firstDuration), maxDuration)
      bannedUntil, rejections = now + duration, {}
      forgetAt = bannedUntil + forgetAfter
      ok, wait, reset = 0, duration, duration
    end
    write(key, bannedUntil, duration, forgetAt, rejections, now)
    return ok, wait, left, reset
  end,
}
