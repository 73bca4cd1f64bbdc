-- After the algorithm, instead of tail.lua, where there is one limit: the same without loops.

local from = 4 + size
local past = settles and from + 2 or from
local now = ARGV[past]
if now then
  now, frozen = now + 0, true
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

if settles then
  limit.settle(KEYS[1], 4, now, third, tonumber(ARGV[from]), ARGV[from + 1], verb == 'cancel')
  return ''
end
local ok, wait, left, reset, at, grant, x, y, z = limit.check(KEYS[1], 4, now)
if takes then
  if ok == 1 then
    limit.take(KEYS[1], 4, ok, wait, left, reset, at, grant, x, y, z)
  elseif limit.refuse and verb == 'take' then
    ok, wait, left, reset = limit.refuse(KEYS[1], 4, ok, wait, left, reset, at, grant, x, y, z)
  end
end
if reset > ages or wait > ages then
  wait, reset = min(wait, ages), min(reset, ages)
end
return pack('<i8i8i8i8i8i8d', now, ok, wait, left, reset, at, grant)
