-- The last of several limits: it refuses all while a penalty lasts, and hears of what the
-- others refuse otherwise. It keeps the end of the latest penalty, how long that was, when
-- all is forgiven, and the readings of refusals, oldest first.
-- Arguments: refusals that make a penalty; in microseconds: in which they come, the first
-- penalty, the longest one, and the quiet after which all is forgiven.

local function read(key)
  local v, refused = call('GET', key), {}
  if not v then
    return -most, 0, -most, refused
  end
  local till, length, forgiven, i = unpack('<i7i7i7', v)
  while i <= #v do
    refused[#refused + 1], i = unpack('<i7', v, i)
  end
  return till, length, forgiven, refused
end

-- counts notes a refusal, and reports whether that makes a penalty.
local function counts(refused, after, within, now)
  if #refused == after then
    table.remove(refused, 1)
  end
  refused[#refused + 1] = now
  return #refused == after and now - refused[1] < within
end

local function write(key, till, length, forgiven, refused, now)
  local v = {pack('<i7i7i7', till, length, forgiven)}
  for _, at in ipairs(refused) do
    v[#v + 1] = pack('<i7', at)
  end
  call('SET', key, table.concat(v), 'PX', lasts(forgiven - now))
end

return {
  judges = true,

  -- The reading is that of the first limit.
  check = function(key, a, _, others)
    local now, longest = others[1][5], tonumber(ARGV[a + 3])
    local till, length, forgiven, refused = read(key)
    if till - now > 2 * longest then -- the clock was set back
      till, forgiven = now + longest, now + longest + ARGV[a + 4]
      write(key, till, length, forgiven, refused, now)
    end
    local left = max(till - now, 0)
    return left == 0 and 1 or 0, left, 0, left, now, 0
  end,

  take = function() end,

  settle = function() end,

  refuse = function(key, a, ok, wait, left, reset, now)
    local after, within = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    local shortest, longest = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
    local quiet = tonumber(ARGV[a + 4])
    local till, length, forgiven, refused = read(key)
    if now >= forgiven then
      till, length, refused = -most, 0, {}
    end
    forgiven = max(forgiven, now + quiet)
    if counts(refused, after, within, now) then
      length = min(max(length * 2, shortest), longest)
      till, refused = now + length, {}
      forgiven = till + quiet
      ok, wait, reset = 0, length, length
    end
    write(key, till, length, forgiven, refused, now)
    return ok, wait, left, reset
  end,
}
