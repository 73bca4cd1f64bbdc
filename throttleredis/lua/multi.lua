-- The decision of several limits. limits are the algorithms in the order of KEYS, and sizes the
-- numbers of their arguments.

local unpackList = _G.unpack
local firstArgs, size = {}, 0
for i = 1, #limits do
  firstArgs[i], size = size + 1, size + sizes[i]
end

local function decide(k, grants)
  local decisions, rejectedBy = {}, nil

  if settles then
    for i = 1, #limits do
      local g = grants + 2 * (i - 1)
      if arg ~= 0 or limits[i].holdsUntilEnd then
        limits[i].settle(KEYS[k + i - 1], firstArgs[i], now, arg, tonumber(ARGV[g]), ARGV[g + 1], op == 'cancel')
      end
    end
    return ''
  end

  local function countRejection(i)
    if limits[i].reject then
      local d = decisions[i]
      d[1], d[2], d[3], d[4] = limits[i].reject(KEYS[k + i - 1], firstArgs[i], unpackList(d, 1, 9))
    end
  end

  for i = 1, #limits do
    local d = {limits[i].check(KEYS[k + i - 1], firstArgs[i], now, decisions)}
    decisions[i] = d
    if d[1] == 0 and not rejectedBy then
      rejectedBy = i
    end
  end
  if takes and limits[#limits].isBan and decisions[#limits][1] == 0 then
    takes, dryRun = false, true -- banned: report the units available, not those left after the claim
    for i = 1, #limits - 1 do
      decisions[i] = {limits[i].check(KEYS[k + i - 1], firstArgs[i], now)}
    end
  end
  if takes then
    if not rejectedBy then
      for i = 1, #limits do
        limits[i].take(KEYS[k + i - 1], firstArgs[i], unpackList(decisions[i], 1, 9))
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
end
