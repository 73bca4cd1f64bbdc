-- The decision of one limit: multi.lua without loops.

local function decide(k, grants)
  local key = KEYS[k]
  if settles then
    limit.settle(key, 1, now, arg, tonumber(ARGV[grants]), ARGV[grants + 1], op == 'cancel')
    return ''
  end
  local ok, wait, left, reset, at, grant, x, y, z = limit.check(key, 1, now)
  if takes then
    if ok == 1 then
      limit.take(key, 1, ok, wait, left, reset, at, grant, x, y, z)
    elseif limit.reject and op == 'take' then
      ok, wait, left, reset = limit.reject(key, 1, ok, wait, left, reset, at, grant, x, y, z)
    end
  end
  if reset > maxTicks or wait > maxTicks then
    wait, reset = min(wait, maxTicks), min(reset, maxTicks)
  end
  return pack('<i8i8i8i8i8i8d', now, ok, wait, left, reset, at, grant)
end
