-- The decision of one limit: multi.lua without loops.

local load, store, joins = limit.load, limit.store, limit.store

local function decide(s, grants)
  if op == 's' or op == 'c' then
    limit.settle(s, 1, now, arg, op == 'c', unpack('<dddd', ARGV[2], grants))
    return ''
  elseif op == 'l' then
    -- Take n units; if there are more, up to arg further ones; and then up to ahead further ones, but no
    -- more than a quarter of those that are left, so that all holders get of the last ones. margin units
    -- must be left. The reply ends with the units taken besides n, and the wait for another n.
    local wanted, ahead, margin = n, unpack('<dd', ARGV[2], grants)
    local more, again = 0, 0
    n, dryRun = wanted + margin, true
    local ok, wait, left, reset, at, grant, x, y, z = limit.check(s, 1, now)
    if ok == 1 then
      local free = left - margin - wanted
      more = min(arg, free)
      more = more + min(ahead, floor((free - more) / 4))
      if wanted + more > 0 then
        n, dryRun = wanted + more, false
        ok, wait, left, reset, at, grant, x, y, z = limit.check(s, 1, now)
        limit.take(s, 1, ok, wait, left, reset, at, grant, x, y, z)
      end
      if more < arg then
        n, dryRun = wanted + margin, true
        ok, again = limit.check(s, 1, now)
        ok = 1
      end
    end
    n, dryRun = wanted, false
    return pack('<ddddddddd', now, ok, min(wait, maxTicks), max(left - margin, 0), min(reset, maxTicks), at, grant, more, min(again, maxTicks))
  end
  local ok, wait, left, reset, at, grant, x, y, z = limit.check(s, 1, now)
  if dryRun then
  elseif ok == 1 then
    limit.take(s, 1, ok, wait, left, reset, at, grant, x, y, z)
  elseif limit.reject and op == 't' then
    ok, wait, left, reset = limit.reject(s, 1, ok, wait, left, reset, at, grant, x, y, z)
  end
  if reset > maxTicks or wait > maxTicks then
    wait, reset = min(wait, maxTicks), min(reset, maxTicks)
  end
  return pack('<ddddddd', now, ok, wait, left, reset, at, grant)
end
