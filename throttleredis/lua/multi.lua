-- The decision of several limits. limits are the algorithms in the order of KEYS, and sizes the
-- numbers of their arguments.

local unpackList = _G.unpack
local firstArgs, size, joins = {}, 0, true
for i = 1, parts do
  firstArgs[i], size = size + 1, size + sizes[i]
  joins = joins and limits[i].store
end

local function load(_, _, k)
  local states = {k = k, changed = true}
  for i = 1, parts do
    states[i] = limits[i].load(KEYS[k + i - 1], firstArgs[i])
  end
  return states
end

local function store(_, states)
  for i = 1, parts do
    if states[i].changed then
      limits[i].store(KEYS[states.k + i - 1], states[i], firstArgs[i])
    end
  end
end

local function check(states, decisions)
  local rejectedBy
  for i = 1, parts do
    decisions[i] = {limits[i].check(states[i], firstArgs[i], now, decisions)}
    if decisions[i][1] == 0 and not rejectedBy then
      rejectedBy = i
    end
  end
  return rejectedBy
end

local function decide(states, grants)
  if op == 's' or op == 'c' then
    for i = 1, parts do
      if arg ~= 0 or limits[i].holdsUntilEnd then
        limits[i].settle(states[i], firstArgs[i], now, arg, op == 'c', unpack('<dddd', ARGV[2], grants + 32 * (i - 1)))
      end
    end
    return ''
  end

  local decisions = {}
  local function countRejection(i)
    if limits[i].reject then
      local d = decisions[i]
      d[1], d[2], d[3], d[4] = limits[i].reject(states[i], firstArgs[i], unpackList(d, 1, 9))
    end
  end

  local rejectedBy = check(states, decisions)
  if dryRun then
  elseif limits[parts].isBan and decisions[parts][1] == 0 then
    dryRun = true -- banned: report the units available, not those left after the claim
    check(states, decisions)
    dryRun = false
  elseif not rejectedBy then
    for i = 1, parts do
      limits[i].take(states[i], firstArgs[i], unpackList(decisions[i], 1, 9))
    end
  elseif op == 't' then
    countRejection(rejectedBy)
    if limits[parts].isBan then
      countRejection(parts)
    end
  end
  local reply = pack('<d', now)
  for i = 1, parts do
    local d = decisions[i]
    reply = reply .. pack('<dddddd', d[1], min(d[2], maxTicks), d[3], min(d[4], maxTicks), d[5], d[6])
  end
  return reply
end
