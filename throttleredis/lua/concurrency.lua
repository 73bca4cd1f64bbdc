-- A concurrency limit: a sorted set of the claims that have not ended. All scores are 0, so
-- that members are in the order of their bytes. A claim has one member for each power of two
-- in its units: the power, the reading at which the claim was granted, and its number among
-- the claims of that reading. The member that begins with a zero byte holds the latest reading
-- granted at, the number of the latest claim, the total by which the clock was set back, and
-- the powers in use.
-- Arguments: the limit in units, the microseconds after which a claim is lost.
--
-- The claims of one power that are not lost are adjacent in the set, so ZLEXCOUNT counts them
-- in O(log n). Lost claims do not count. Each grant removes at most 50 lost claims per power,
-- which takes less than 1 ms however many there are.
--
-- check returns the number of the claim in place of the time until all units are available,
-- which is not known.

local maxPerReading = 8192 -- claims of one reading: a grant has 13 bits for the number
local removedPerGrant = 50 -- lost claims of one power

local function memberPrefix(power, at)
  return power .. pack('>I7', max(at, 0))
end

-- upperBound returns the exclusive upper bound of the members of a power.
local function upperBound(power)
  return '(' .. string.char(power:byte() + 1)
end

-- write replaces the member that is not a claim.
local function write(key, s)
  if s.member then
    call('ZREM', key, s.member)
  end
  s.member = '\0' .. pack('<i7i2i7', s.last, s.number, s.shift) .. s.powers
  call('ZADD', key, 0, s.member)
end

local function read(key)
  local s = {key = key, number = -1, powers = '', shift = 0}
  s.member = call('ZRANGE', key, 0, 0)[1]
  if s.member then
    s.last, s.number, s.shift = unpack('<xi7i2i7', s.member)
    s.powers = s.member:sub(18)
  end
  return s
end

local function setTime(key, s, age, now)
  local moved
  s.now, s.shift, moved = monotonic(now, s.last, s.shift, age)
  if moved then
    write(key, s)
  end
end

-- used returns the units of the claims that are not lost.
local function used(key, s, age)
  local units = 0
  for power in s.powers:gmatch('.') do
    units = units + 2 ^ (power:byte() - 1) * call('ZLEXCOUNT', key, '[' .. memberPrefix(power, s.now - age + 1), upperBound(power))
  end
  return units
end

-- removeLost removes up to removedPerGrant lost claims of each power, and powers without claims.
local function removeLost(key, s, age)
  local powers = ''
  for power in s.powers:gmatch('.') do
    local lost = call('ZRANGEBYLEX', key, '[' .. power, '(' .. memberPrefix(power, s.now - age + 1), 'LIMIT', 0, removedPerGrant)
    if #lost > 0 then
      call('ZREM', key, _G.unpack(lost))
    end
    if call('ZLEXCOUNT', key, '[' .. power, upperBound(power)) > 0 then
      powers = powers .. power
    end
  end
  s.powers = powers
end

return {
  holdsUntilEnd = true,

  load = read,

  check = function(s, a, now)
    local key, count, age = s.key, args[a], args[a + 1]
    setTime(key, s, age, now)
    local left = count - used(key, s, age)
    local ok, wait = 0, 0
    if n > count then
      wait = -1
    elseif n <= left then
      ok = 1
      if not dryRun then
        left = left - n
      end
    end
    local number = 0
    if s.now == s.last then
      number = s.number + 1
      if number == maxPerReading then
        s.now, number = s.now + 1, 0
      end
    end
    return ok, wait, left, number, s.now - s.shift, s.now
  end,

  take = function(s, a, _, _, _, number, _, at)
    local key, age = s.key, args[a + 1]
    removeLost(key, s, age)
    local add, units, power = {}, n, 1
    while units > 0 do
      if units % 2 == 1 then
        local byte = string.char(power)
        add[#add + 1], add[#add + 2] = 0, memberPrefix(byte, at) .. pack('>I2', number)
        if not s.powers:find(byte, 1, true) then
          s.powers = s.powers .. byte
        end
      end
      units, power = floor(units / 2), power + 1
    end
    s.last, s.number = at, number
    write(key, s)
    call('ZADD', key, _G.unpack(add))
    call('PEXPIRE', key, ttlMillis(age))
  end,

  settle = function(s, a, now, extra, _, from, number)
    local key, members = s.key, {}
    for power in s.powers:gmatch('.') do
      members[#members + 1] = memberPrefix(power, from) .. pack('>I2', number)
    end
    if #members > 0 then
      call('ZREM', key, _G.unpack(members))
    end
  end,
}
