-- The decision of one limit: multi.lua without loops.

local function decide(k, grants)
  local key = KEYS[k]
  if settles then
    limit.settle(key, 1, now, arg, tonumber(ARGV[grants]), ARGV[grants + 1], op == 'cancel')
    return ''
  elseif op == 'lease' then
    -- Take n units; if there are more, up to arg further ones; and then up to ahead further ones, but no
    -- more than a quarter of those that are left, so that all holders get of the last ones. margin units
    -- must be left. The reply ends with the units taken besides n, and the wait for another n.
    local wanted, ahead, margin = n, ARGV[grants] + 0, ARGV[grants + 1] + 0
    local more, again = 0, 0
    n, dryRun = wanted + margin, true
    local ok, wait, left, reset, at, grant, x, y, z = limit.check(key, 1, now)
    if ok == 1 then
      local free = left - margin - wanted
      more = min(arg, free)
      more = more + min(ahead, floor((free - more) / 4))
      if wanted + more > 0 then
        n, dryRun = wanted + more, false
        ok, wait, left, reset, at, grant, x, y, z = limit.check(key, 1, now)
        limit.take(key, 1, ok, wait, left, reset, at, grant, x, y, z)
      end
      if more < arg then
        n, dryRun = wanted + margin, true
        ok, again = limit.check(key, 1, now)
        ok = 1
      end
    end
    return pack('<i8i8i8i8i8i8di8i8', now, ok, min(wait, maxTicks), max(left - margin, 0), min(reset, maxTicks), at, grant, more, min(again, maxTicks))
  end
  local ok, wait, left, reset, at, grant, x, y, z = limit.check(key, 1, now)
  if takes then
    if ok == 1 then
      limit.take(key, 1, ok, wait, left, reset, at, grant, x, y, z)
    elseif limit.reject and op == 'take' then
      ok, wait, left, reset = limit.reject(key, 1, ok, wait, left, reset, at, grant, x, y, z)
    end
  end
  if reset > maxTicks or wait > maxTicks then
    wait, reset = min(wait, maxTicks), min(reset, maxTicks)
  end
  return pack('<i8i8i8i8i8i8d', now, ok, wait, left, reset, at, grant)
end
