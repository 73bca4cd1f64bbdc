-- The end of a script for one limit: multi.lua without loops.

local grantArg = 4 + size
local timeArg = settles and grantArg + 2 or grantArg
local now = ARGV[timeArg]
if now then
  now, testClock = now + 0, true
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

if settles then
  limit.settle(KEYS[1], 4, now, arg, tonumber(ARGV[grantArg]), ARGV[grantArg + 1], op == 'cancel')
  return ''
end
local ok, wait, left, reset, at, grant, x, y, z = limit.check(KEYS[1], 4, now)
if takes then
  if ok == 1 then
    limit.take(KEYS[1], 4, ok, wait, left, reset, at, grant, x, y, z)
  elseif limit.reject and op == 'take' then
    ok, wait, left, reset = limit.reject(KEYS[1], 4, ok, wait, left, reset, at, grant, x, y, z)
  end
end
if reset > maxTicks or wait > maxTicks then
  wait, reset = min(wait, maxTicks), min(reset, maxTicks)
end
return pack('<i8i8i8i8i8i8d', now, ok, wait, left, reset, at, grant)
