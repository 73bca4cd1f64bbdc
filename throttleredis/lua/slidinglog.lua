-- A sliding log: a hash that holds the log of claims, oldest first, in blocks of up to 16
-- entries. An entry is a stamp and the units of all claims at that stamp; an entry without
-- units is removed. A stamp is a microsecond, or with parts the number of a sub-window. The
-- stamp is the grant.
-- Arguments: the limit in units, the microseconds for which they count, the minimum number of
-- microseconds between two claims, 1 if rejections count, the number of sub-windows (0: none).
--
-- Fields: '' holds the latest reading entered, the total by which the clock was set back, the
-- numbers of the first stored block, of the first block in the log and of the open block, and
-- the units in the blocks from the first in the log up to the open one. '+' holds the entries
-- of the open block. The field named by a number holds a full block: a sum, the first stamp,
-- and the entries.
--
-- The sums form a Fenwick tree: the sum of block p is the units of the blocks from p up to,
-- but not including, p + step(p), where step(p) is the largest power of two that divides p.
-- Finding the units from any block on, finding the block of a stamp, and a settlement
-- therefore take O(log n) reads and writes, and no number is larger than the units in the log.
-- A block without entries and units is removed; its sum in the tree counts as 0.

local blockSize = 16 -- entries of a block
local maxRemoved = 64 -- blocks removed by one save

local function stamp(a, at)
  local parts, per = args[a + 4], args[a + 1]
  if parts == 0 then
    return at
  end
  local rounds = floor(at / per)
  return rounds * parts + muldiv(at - rounds * per, parts, per)
end

-- startOf returns the first microsecond of a stamp.
local function startOf(a, stamp)
  local parts, per = args[a + 4], args[a + 1]
  if parts == 0 then
    return stamp
  end
  local rounds = floor(stamp / parts)
  return rounds * per + muldivup(per, stamp - rounds * parts, parts)
end

-- stampsCounted returns the number of stamps for which an entry counts.
local function stampsCounted(a)
  local parts = args[a + 4]
  return parts > 0 and parts or args[a + 1]
end

local function decode(text)
  local items = {unpack('<' .. string.rep('i7i7', #text / 14), text)}
  items[#items] = nil -- the position after the last
  return items
end

local function encode(items)
  return pack('<' .. string.rep('i7i7', #items / 2), _G.unpack(items))
end

-- sum returns the units of items from index k on. Odd indices are stamps.
local function sum(items, k)
  local units = 0
  for i = k + 1, #items, 2 do
    units = units + items[i]
  end
  return units
end

local function step(p)
  local d = 1
  while p % (2 * d) == 0 do
    d = 2 * d
  end
  return d
end

-- save writes what has changed, and removes blocks that are no longer in the log.
local function save(log)
  if log.first == log.open and log.stored < log.open then
    call('UNLINK', log.key)
    log.stored = log.open
  end
  local removed, written = {}, {}
  while log.stored < log.first and #removed < maxRemoved do
    removed[#removed + 1] = log.stored
    log.stored = log.stored + 1
  end
  for p in pairs(log.rewritten) do
    local b = log.blocks[p]
    local text = b.items and encode(b.items) or b.text
    if p >= log.first and b.sum == 0 and text == '' then
      removed[#removed + 1] = p
    elseif p >= log.first then
      written[#written + 1], written[#written + 2] = p, pack('<i7i7', b.sum, b.first) .. text
    end
  end
  if #removed > 0 then
    call('HDEL', log.key, _G.unpack(removed))
  end
  local state = pack('<i7i7i7i7i7i7', log.last, log.shift, log.stored, log.first, log.open, log.sealed)
  call('HSET', log.key, '', state, '+', encode(log.items), _G.unpack(written))
end

-- setTime sets the time of the next operation.
local function setTime(a, log, now)
  local moved
  log.now, log.shift, moved = monotonic(now, log.last, log.shift, args[a + 1])
  log.changed = log.changed or moved
end

-- itemsIn returns the entries of a full block.
local function itemsIn(b)
  b.items = b.items or decode(b.text)
  return b.items
end

-- block returns a full block, or nil if neither it nor the blocks that its sum covers have units.
local function block(log, p)
  local b = log.blocks[p]
  if b == nil then
    local v = call('HGET', log.key, p)
    b = false
    if v then
      local units, first, past = unpack('<i7i7', v)
      b = {sum = units, first = first, text = v:sub(past)}
    end
    log.blocks[p] = b
  end
  return b or nil
end

-- add adds units to the sums that cover block p.
local function add(log, p, units)
  local q, first = p, block(log, p).first
  while q >= log.first do
    local b = block(log, q) or {sum = 0, first = first, items = {}}
    b.sum = b.sum + units
    log.blocks[q], log.rewritten[q] = b, true
    q = q - step(q)
  end
end

-- sealedUnitsFrom returns the units of the full blocks from p on.
local function sealedUnitsFrom(log, p)
  if p <= log.first then
    return log.sealed
  end
  local units = 0
  while p < log.open do
    local b = block(log, p)
    units = units + (b and b.sum or 0)
    p = p + step(p)
  end
  return units
end

-- lastNotMatching returns the last full block for which matches is false, provided that all
-- blocks after it match; if all match, the number before the first. The argument of matches
-- is a block with its sum in the tree; it matches only if all blocks that its sum covers do.
local function lastNotMatching(log, matches)
  local d = 1
  while d < log.open - log.first do
    d = 2 * d
  end
  local i = ceil(log.open / d) * d
  while d >= 1 do
    local q = i - d
    if q >= log.first then
      local b = q < log.open and block(log, q)
      if not b or matches(b) then
        i = q
      end
    end
    d = d / 2
  end
  return min(i, log.open) - 1
end

-- itemsOf returns the entries of a block.
local function itemsOf(log, p)
  if p == log.open then
    return log.items
  end
  local b = p >= log.first and block(log, p)
  return b and itemsIn(b) or {}
end

-- firstAfter returns the position of the first entry with a later stamp: its block and its
-- index there. The index is beyond the end of the block if the entry is in a later block.
local function firstAfter(log, stamp)
  local p = log.open
  if log.first < log.open and not (log.items[1] and log.items[1] <= stamp) then
    p = log.first
    local b = block(log, p)
    if not b or b.first <= stamp then
      b = p + 1 < log.open and block(log, p + 1)
      if p + 1 < log.open and not (b and b.first > stamp) then
        p = max(lastNotMatching(log, function(b) return b.first > stamp end), p)
      end
    elseif b then
      return p, 1
    end
  end
  local items, k = itemsOf(log, p), 1
  while items[k] and items[k] <= stamp do
    k = k + 2
  end
  return p, k
end

-- unitsFrom returns the units from index k of block p on.
local function unitsFrom(log, p, k)
  if p == log.open then
    return sum(log.items, k)
  end
  local units = sum(log.items, 1)
  if p == log.first and k == 1 then
    return log.sealed + units
  elseif p == log.first then
    local items = itemsOf(log, p)
    return log.sealed - sum(items, 1) + sum(items, k) + units
  end
  return sum(itemsOf(log, p), k) + sealedUnitsFrom(log, p + 1) + units
end

-- firstWithin returns the position of the first entry such that it and all later entries have
-- at most available units, and that number of units. The entry before it, if there is one, is
-- in the same block.
local function firstWithin(log, available)
  local units, p = sum(log.items, 1), log.open
  if units <= available then
    local beyond = units
    p = lastNotMatching(log, function(b)
      if beyond + b.sum > available then
        return false
      end
      beyond = beyond + b.sum
      return true
    end)
    units = beyond
  else
    units = 0
  end
  local items = itemsOf(log, p)
  local k = #items + 1
  while k > 1 and units + items[k - 1] <= available do
    units, k = units + items[k - 1], k - 2
  end
  return p, k, units
end

-- newest returns the stamp of the newest entry, or nil if there is none.
local function newest(log)
  if #log.items == 0 then
    local p, k = firstWithin(log, 0)
    return itemsOf(log, p)[k - 2]
  end
  return log.items[#log.items - 1]
end

-- waitFor returns the time until units are available and the gap has passed; -1: never.
local function waitFor(a, log, units)
  local count, gap = args[a], args[a + 2]
  if units > count then
    return -1
  end
  local wait, latest = 0, gap > 0 and newest(log)
  if latest then
    wait = max(latest + gap - log.now, 0)
  end
  if log.liveUnits > count - units then
    local p, k = firstWithin(log, count - units)
    wait = max(wait, startOf(a, itemsOf(log, p)[k - 2] + stampsCounted(a)) - log.now)
  end
  return wait
end

-- expire sets the position of the first entry that still counts, and the units that do.
local function expire(a, log)
  log.p, log.k = firstAfter(log, stamp(a, log.now) - stampsCounted(a))
  log.liveUnits = unitsFrom(log, log.p, log.k)
end

-- dropBefore drops the entries before index k of block p.
local function dropBefore(log, p, k)
  log.sealed = p < log.open and sealedUnitsFrom(log, p) or 0
  log.first = p
  if k == 1 then
    return
  end
  local items, kept, units = itemsOf(log, p), {}, 0
  for i = 1, #items, 2 do
    if i >= k then
      kept[#kept + 1], kept[#kept + 2] = items[i], items[i + 1]
    else
      units = units + items[i + 1]
    end
  end
  if p == log.open then
    log.items = kept
  elseif units > 0 then
    block(log, p).items = kept
    add(log, p, -units)
    log.sealed = log.sealed - units
  end
end

-- trimTo drops the oldest units so that units are left. Part of an entry may be dropped.
local function trimTo(log, units)
  if log.liveUnits <= units then
    return
  end
  local p, k, kept = firstWithin(log, units)
  if kept < units then
    k = k - 2
  end
  dropBefore(log, p, k)
  if kept < units then
    local items, excess = itemsOf(log, p), kept - units
    if p == log.open then
      items[2] = -excess
    else
      excess = excess + items[2]
      items[2] = items[2] - excess
      add(log, p, -excess)
      log.sealed = log.sealed - excess
    end
  end
  log.p, log.k, log.liveUnits = p, 1, units
end

-- append drops the expired entries, and adds units at the current stamp.
local function append(a, log, units)
  dropBefore(log, log.p, log.k)
  local s, items = stamp(a, log.now), log.items
  if items[#items - 1] == s then
    items[#items] = items[#items] + units
  else
    if #items == 2 * blockSize then
      local p = log.open
      log.blocks[p] = {sum = 0, first = items[1], items = items}
      log.open, log.items = p + 1, {}
      local sealed = sum(items, 1)
      add(log, p, sealed)
      log.sealed, items = log.sealed + sealed, log.items
    end
    items[#items + 1], items[#items + 2] = s, units
  end
  log.last, log.liveUnits = log.now, log.liveUnits + units
  log.changed, log.prolonged = true, true
end

-- describe returns the units left while liveUnits are in use, and the time until all are.
local function describe(a, log, liveUnits, latest)
  local reset = 0
  if liveUnits > 0 then
    reset = max(startOf(a, latest + stampsCounted(a)) - log.now, 0)
  end
  return max(args[a] - liveUnits, 0), reset
end

return {
  load = function(key)
    local v = call('HMGET', key, '', '+')
    local log = {key = key, stored = 1, first = 1, open = 1, sealed = 0, shift = 0, items = {}, blocks = {}, rewritten = {}}
    if v[1] then
      log.last, log.shift, log.stored, log.first, log.open, log.sealed = unpack('<i7i7i7i7i7i7', v[1])
      log.items = decode(v[2])
    end
    return log
  end,

  store = function(_, log, a)
    save(log)
    if log.prolonged then
      call('PEXPIRE', log.key, ttlMillis(2 * args[a + 1]))
    end
  end,

  check = function(log, a, now)
    setTime(a, log, now)
    expire(a, log)
    local wait, s = waitFor(a, log, n), stamp(a, log.now)
    local ok, left, reset = 0, nil, nil
    if wait == 0 then
      ok = 1
    end
    if ok == 1 and not dryRun then
      left, reset = describe(a, log, log.liveUnits + n, s)
    else
      left, reset = describe(a, log, log.liveUnits, log.liveUnits > 0 and newest(log))
    end
    return ok, wait, left, reset, log.now - log.shift, s
  end,

  take = function(log, a)
    if args[a + 3] == 1 then
      trimTo(log, args[a] - n)
    end
    append(a, log, n)
  end,

  reject = function(log, a, ok, wait, left, reset)
    if args[a + 3] ~= 1 then
      return ok, wait, left, reset
    end
    local count = args[a]
    local units = min(n, count)
    trimTo(log, count - units)
    append(a, log, units)
    return 0, waitFor(a, log, n), describe(a, log, log.liveUnits, newest(log))
  end,

  settle = function(log, a, now, extra, _, from)
    setTime(a, log, now)
    local p, k = firstAfter(log, from)
    local items = itemsOf(log, p)
    k = k - 2
    if items[k] ~= from then
      return
    end
    extra = min(max(extra, -items[k + 1]), maxExact - log.sealed - sum(log.items, 1))
    items[k + 1] = items[k + 1] + extra
    if items[k + 1] == 0 then
      table.remove(items, k)
      table.remove(items, k)
    end
    if p < log.open then
      add(log, p, extra)
      log.sealed = log.sealed + extra
    end
    log.changed = true
  end,
}
