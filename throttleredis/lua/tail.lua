-- The end of every script: load, store and decide are of the limits, and joins is not nil if all have a
-- store. The script returns the replies, one after the other. If a claim fails, it returns the error if the
-- claim is alone, and otherwise a list with a string for each reply and a list with the message for each
-- error, because such a claim does not affect the others. (go-redis closes the connection if it finds
-- certain errors in a list.)

-- begin reads the claim at a position. It returns its first bytes, and the positions of the grants and of
-- the next claim.
local function begin(at)
  local flags, count, grants
  flags, count, op, n, arg, grants = unpack('<BBc1dd', ARGV[2], at)
  dryRun, waited, at = op == 'd', nil, grants
  if op == 's' or op == 'c' then
    at = at + 32 * parts
  elseif op == 'l' then
    at = at + 16
  elseif arg < 0 then
    waited, arg = -1 - arg, 0
  end
  if flags >= 2 then
    testClock, now, at = true, unpack('<d', ARGV[2], at)
  elseif not now then
    now = call('TIME')
    now = now[1] * 1000000 + now[2]
  end
  return flags, count, grants, at
end

if not ARGV[3] then
  local _, _, grants = begin(1)
  local states = load(KEYS[1], 1, 1)
  local reply = decide(states, grants)
  if states.changed then
    store(KEYS[1], states, 1)
  end
  return reply
end

-- decideAlone decides on the present claim, whose first key is KEYS[k].
local function decideAlone(k, grants)
  local states = load(KEYS[k], 1, k)
  local reply = decide(states, grants)
  if states.changed then
    store(KEYS[k], states, 1)
  end
  return reply
end

local replies, failed = {}, false -- in the order of the claims
local at, k, decided = 1, 1, 0 -- position and first key of the next claim, and the number of those before it

-- decideTogether decides on all further claims, and stores the states of a key after the last one.
local function decideTogether()
  local position, i, key, states = at, decided, KEYS[k], load(KEYS[k], 1, k)
  repeat
    local flags, count, grants, after = begin(position)
    if position > at and flags % 2 == 1 then
      if states.changed then
        store(key, states, 1)
      end
      at, k, decided = position, k + parts, i
      key = KEYS[k]
      states = load(key, 1, k)
    end
    for j = i + 1, i + count do
      replies[j] = decide(states, grants)
    end
    i, position = i + count, after
  until position > #ARGV[2]
  if states.changed then
    store(key, states, 1)
  end
  at = position
end

-- decideEach decides on each further claim for one key alone.
local function decideEach()
  repeat
    local _, count, grants, after = begin(at)
    for _ = 1, count do
      local ok, reply = pcall(decideAlone, k, grants)
      if not ok then
        failed, reply = true, {type(reply) == 'table' and reply.err or reply} -- a string before Redis 7
      end
      decided = decided + 1
      replies[decided] = reply
    end
    at = after
  until at > #ARGV[2] or ARGV[2]:byte(at) % 2 == 1
  k = k + parts
end

repeat
  if not (joins and pcall(decideTogether)) then
    decideEach()
  end
until at > #ARGV[2]
return failed and replies or table.concat(replies)
