-- After the algorithms: limits are the ones to pass, in the order of KEYS, and sizes the
-- numbers of their arguments.

local firsts, past = {}, 4
for i, size in ipairs(sizes) do
  firsts[i], past = past, past + size
end
local grants = past
if verb == 'settle' or verb == 'cancel' then
  past = past + 2 * #limits
end
local now = tonumber(ARGV[past])
if now then
  frozen = true
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

if past > grants then
  for i, limit in ipairs(limits) do
    local g = grants + 2 * (i - 1)
    limit.settle(KEYS[i], firsts[i], now, n, third, tonumber(ARGV[g]), tonumber(ARGV[g + 1]), verb == 'cancel')
  end
  return ''
end

local decisions, all = {}, true
for i, limit in ipairs(limits) do
  local d = limit.check(KEYS[i], firsts[i], now, n, third)
  decisions[i], all = d, all and d[1] == 1
end
if all and verb == 'take' then
  for i, limit in ipairs(limits) do
    limit.take(KEYS[i], firsts[i], decisions[i], n)
  end
end
local answer = pack('<i8', now)
for i, d in ipairs(decisions) do
  answer = answer .. pack('<i8i8i8i8i8d', d[1], d[2], d[3], d[4], d[5], d[6])
end
return answer
