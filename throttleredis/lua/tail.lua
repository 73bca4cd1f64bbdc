-- The end of every script: load, decide and store are of the limits. The script returns the replies, one
-- after the other. If a claim fails, it returns a list of replies and errors, because such a claim does not
-- affect the others.

local serverTime -- read once

-- begin reads the claim at a position. It returns whether the key is another one than before, how often the
-- claim is repeated, and the position of the next claim.
local function begin(at)
  local flags, count
  flags, count, op, n, arg, grants = unpack('<BBBdd', claims, at)
  dryRun, waited, at = op == opDryRun, nil, grants
  if op == opSettle or op == opCancel then
    at = at + 32 * parts
  elseif op == opLease then
    at = at + 16
  elseif arg < 0 then
    waited, arg = -1 - arg, 0
  end
  if flags >= 2 then
    testClock, now = true, unpack('<d', claims, at)
    return flags == 3, count, at + 8
  elseif not serverTime then
    local t = call('TIME')
    serverTime = t[1] * 1000000 + t[2]
  end
  now = serverTime
  return flags == 1, count, at
end

-- decideAlone decides on the claim whose first key is KEYS[k], and stores the states.
local function decideAlone(k)
  local states = load(k)
  local reply = decide(states)
  store(states)
  return reply
end

local _, count, after = begin(1)
if count == 1 and after > #claims then
  return decideAlone(1)
end

local loaded, stored = {}, {} -- by first key
local replies, failed = {}, false -- in the order of the claims

-- decideAll decides on all claims, and stores the states of each key once; or decides alone on each
-- claim whose states are not stored.
local function decideAll(alone)
  local i, k, at, moves, count = 0, 1 - parts, 1, nil, nil
  repeat
    moves, count, at = begin(at)
    if moves then
      k = k + parts
    end
    local key = KEYS[k]
    for _ = 1, count do
      i = i + 1
      if not alone then
        loaded[key] = loaded[key] or load(k)
        replies[i] = decide(loaded[key])
      elseif not stored[key] then
        local ok, reply = pcall(decideAlone, k)
        if not ok then
          failed, reply = true, type(reply) == 'table' and reply or {err = reply} -- a string before Redis 7
        end
        replies[i] = reply
      end
    end
  until at > #claims
  for key, states in pairs(loaded) do
    if not alone then
      store(states)
      stored[key] = true
    end
  end
end

if not (joins and pcall(decideAll)) then
  decideAll(true)
end
return failed and replies or table.concat(replies)
