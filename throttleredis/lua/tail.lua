-- After the algorithms: limits are the ones to pass, in the order of KEYS, and sizes the
-- numbers of their arguments.

local firsts, past = {}, 4
for i = 1, #limits do
  firsts[i], past = past, past + sizes[i]
end
local grants = past
if settles then
  past = past + 2 * #limits
end
local now = ARGV[past]
if now then
  now, frozen = now + 0, true
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

if settles then
  for i = 1, #limits do
    local g = grants + 2 * (i - 1)
    if third ~= 0 or limits[i].holds then
      limits[i].settle(KEYS[i], firsts[i], now, third, tonumber(ARGV[g]), ARGV[g + 1], verb == 'cancel')
    end
  end
  return ''
end

local spread = _G.unpack
local decisions, refused = {}, nil

local function count(i)
  if limits[i].refuse then
    local d = decisions[i]
    d[1], d[2], d[3], d[4] = limits[i].refuse(KEYS[i], firsts[i], spread(d, 1, 9))
  end
end

for i = 1, #limits do
  local d = {limits[i].check(KEYS[i], firsts[i], now, decisions)}
  decisions[i] = d
  if d[1] == 0 and not refused then
    refused = i
  end
end
if takes and limits[#limits].judges and decisions[#limits][1] == 0 then
  takes, dry = false, true -- in a penalty: show what there is, not what would be left
  for i = 1, #limits - 1 do
    decisions[i] = {limits[i].check(KEYS[i], firsts[i], now)}
  end
end
if takes then
  if not refused then
    for i = 1, #limits do
      limits[i].take(KEYS[i], firsts[i], spread(decisions[i], 1, 9))
    end
  elseif verb == 'take' then
    count(refused)
    if limits[#limits].judges then
      count(#limits)
    end
  end
end
local answer = pack('<i8', now)
for i = 1, #limits do
  local d = decisions[i]
  answer = answer .. pack('<i8i8i8i8i8d', d[1], min(d[2], ages), d[3], min(d[4], ages), d[5], d[6])
end
return answer
