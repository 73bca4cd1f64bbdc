-- The end of a script for several limits. limits are the algorithms in the order of KEYS, and
-- sizes the numbers of their arguments.

local firstArgs, nextArg = {}, 4
for i = 1, #limits do
  firstArgs[i], nextArg = nextArg, nextArg + sizes[i]
end
local grants = nextArg
if settles then
  nextArg = nextArg + 2 * #limits
end
local now = ARGV[nextArg]
if now then
  now, testClock = now + 0, true
else
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

if settles then
  for i = 1, #limits do
    local g = grants + 2 * (i - 1)
    if arg ~= 0 or limits[i].holdsUntilEnd then
      limits[i].settle(KEYS[i], firstArgs[i], now, arg, tonumber(ARGV[g]), ARGV[g + 1], op == 'cancel')
    end
  end
  return ''
end

local unpackList = _G.unpack
local decisions, rejectedBy = {}, nil

local function countRejection(i)
  if limits[i].reject then
    local d = decisions[i]
    d[1], d[2], d[3], d[4] = limits[i].reject(KEYS[i], firstArgs[i], unpackList(d, 1, 9))
  end
end

for i = 1, #limits do
  local d = {limits[i].check(KEYS[i], firstArgs[i], now, decisions)}
  decisions[i] = d
  if d[1] == 0 and not rejectedBy then
    rejectedBy = i
  end
end
if takes and limits[#limits].isBan and decisions[#limits][1] == 0 then
  takes, dryRun = false, true -- banned: report the units available, not those left after the claim
  for i = 1, #limits - 1 do
    decisions[i] = {limits[i].check(KEYS[i], firstArgs[i], now)}
  end
end
if takes then
  if not rejectedBy then
    for i = 1, #limits do
      limits[i].take(KEYS[i], firstArgs[i], unpackList(decisions[i], 1, 9))
    end
  elseif op == 'take' then
    countRejection(rejectedBy)
    if limits[#limits].isBan then
      countRejection(#limits)
    end
  end
end
local reply = pack('<i8', now)
for i = 1, #limits do
  local d = decisions[i]
  reply = reply .. pack('<i8i8i8i8i8d', d[1], min(d[2], maxTicks), d[3], min(d[4], maxTicks), d[5], d[6])
end
return reply
