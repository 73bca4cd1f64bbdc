-- A limit that delays the claim after the one that causes the cost, as package warmup does. It
-- stores last, the latest reading granted at; paidAfter, the nanoseconds after last until all
-- granted units are paid for; rounded, by how much that was rounded up; and idle, the idle
-- units at that time. All are doubles, as in package warmup.
-- Arguments: the costs: nanoseconds per unit, nanoseconds per idle unit up to the threshold,
-- and the increase for each further one; the threshold; the maximum number of idle units; the
-- nanoseconds of idleness per idle unit. The number of whole idle units that are free, and the
-- nanoseconds in which they accrue. The number of idle units that a new key lacks: such a key
-- is kept for an hour longer.

local function unitCosts(a)
  return {
    interval = args[a],
    warm = args[a + 1],
    slope = args[a + 2],
    threshold = args[a + 3],
    maxIdle = args[a + 4],
    idlePerUnit = args[a + 5],
    units = args[a + 6],
    full = args[a + 7],
    missing = args[a + 8],
  }
end

-- accrueIdle adds the idle units of the time until now, in nanoseconds after last.
local function accrueIdle(s, p, now)
  if now > s.paidAfter then
    s.idle = min(p.maxIdle, s.idle + (now - s.paidAfter) / p.idlePerUnit)
    s.paidAfter, s.rounded = now, 0
  end
end

-- costOf returns the nanoseconds for units of which used are idle ones.
local function costOf(p, idle, units, used)
  local above = max(idle - p.threshold, 0)
  local cold = min(above, used)
  return p.warm * used + cold * (above - cold / 2) * p.slope + (units - used) * p.interval
end

-- consume takes units and returns how many were idle ones. It takes idle units first, except
-- that a claim that books ahead takes none if they are free.
local function consume(s, p, units, now)
  accrueIdle(s, p, now)
  local booked, used = s.paidAfter > now, 0
  if not booked or p.warm > 0 then
    used = min(units, s.idle)
  end
  local cost = costOf(p, s.idle, units, used) - s.rounded
  local ns = ceil(cost)
  if booked then
    ns = max(ns, 1)
  end
  s.paidAfter, s.rounded, s.idle = s.paidAfter + ns, max(ns - cost, 0), s.idle - used
  return used
end

local maxNanos = 2 ^ 63 -- nanoseconds

return {
  load = function(key, a)
    local s, v = {paidAfter = 0, rounded = 0, costs = unitCosts(a)}, call('GET', key)
    s.idle = s.costs.maxIdle - s.costs.missing
    if v then
      s.last, s.paidAfter, s.rounded, s.idle = unpack('<dddd', v)
    end
    return s
  end,

  store = function(key, s)
    local p, ns = s.costs, s.paidAfter
    if s.idle < p.maxIdle then
      ns = ns + (p.maxIdle - s.idle) * p.idlePerUnit
    end
    if p.missing > 0 then
      ns = ns + 3600e9
    end
    call('SET', key, pack('<dddd', s.last, s.paidAfter, s.rounded, s.idle), 'PX', ttlMillis(ns / 1000))
  end,

  check = function(state, a, now)
    local p, last = state.costs, state.last or now
    if (last - now) * 1000 > 2 * max(p.maxIdle * p.idlePerUnit, p.full, p.interval) then -- the clock was set back
      last, state.last, state.changed = now, now, true
    end
    local s = {paidAfter = state.paidAfter, rounded = state.rounded, idle = state.idle}
    now = max(now, last)
    local elapsed = (now - last) * 1000
    local ok, wait, used = 0, max(s.paidAfter - elapsed, 0), 0
    if s.paidAfter >= maxNanos then
      wait = -1
    elseif wait > arg then
      wait = wait - arg
    else
      ok = 1
      if not dryRun then
        used = consume(s, p, n, elapsed)
        s.paidAfter, elapsed = s.paidAfter - elapsed, 0
      end
    end
    local left, reset = 0, min(s.paidAfter - elapsed + p.full, maxNanos)
    if s.paidAfter <= elapsed then
      local future = {paidAfter = s.paidAfter, idle = s.idle}
      accrueIdle(future, p, elapsed)
      local idle = min(future.idle, p.units)
      left, reset = floor(idle) + 1, ceil((p.units - idle) * p.interval)
    end
    return ok, wait, left, reset, now, used, s
  end,

  take = function(state, a, _, _, _, _, last, _, s)
    state.last, state.paidAfter, state.rounded, state.idle, state.changed = last, s.paidAfter, s.rounded, s.idle, true
  end,

  -- A grant is the reading it was made at; in nanoseconds after that, when the claim acts and
  -- when it is paid for; and how many idle units it used.
  settle = function(s, a, now, extra, _, from, actsAt, paid, used)
    if not s.last then
      return
    end
    local p = s.costs
    s.changed = true
    now = max(now, s.last)
    from = min(from, now)
    local elapsed = (now - s.last) * 1000
    if extra > 0 then
      consume(s, p, extra, elapsed)
      return
    end
    local origin, returned = (from - s.last) * 1000, -extra
    actsAt, paid = origin + actsAt, origin + paid
    paid = max(paid, actsAt)
    if paid > actsAt and s.paidAfter == paid then
      local remaining = n - returned
      local cost = costOf(p, s.idle + used, remaining, min(remaining, used))
      s.paidAfter, s.rounded = min(max(actsAt + ceil(cost), elapsed), paid), 0
    end
    local idle = min(max(returned - (n - used), 0), used) - max(elapsed - paid, 0) / p.idlePerUnit
    s.idle = min(s.idle + max(idle, 0), p.maxIdle)
  end,
}
