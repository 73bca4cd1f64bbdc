-- After the algorithm, instead of tail.lua, where there is one limit: the same without loops.

local from = 4 + size
local past = settles and from + 2 or from
local now = tonumber(ARGV[past])
if now then
  frozen = true
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

if settles then
  limit.settle(KEYS[1], 4, now, third, tonumber(ARGV[from]), ARGV[from + 1], verb == 'cancel')
  return ''
end
local d = limit.check(KEYS[1], 4, now)
if verb == 'take' then
  if d[1] == 1 then
    limit.take(KEYS[1], 4, d)
  elseif limit.refuse then
    limit.refuse(KEYS[1], 4, d)
  end
end
return pack('<i8i8i8i8i8i8d', now, d[1], min(d[2], ages), d[3], min(d[4], ages), d[5], d[6])
