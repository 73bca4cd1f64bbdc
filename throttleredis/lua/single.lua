-- The decision of one limit: multi.lua without loops.

-- lease takes n units; if it has, up to arg units more; and then up to ahead units more, but no more
-- than a quarter of those that are left, so that all holders get of the last ones. margin units must
-- be left. Its reply ends with the number of units taken besides n, and the wait for n units more.
local function lease(key, ahead, margin)
  local function try(units, dry)
    n, dryRun = units, dry
    return limit.check(key, 1, now)
  end
  local wanted, more, again = n, 0, 0
  local ok, wait, left, reset, at, grant, x, y, z = try(wanted + margin, true)
  if ok == 1 then
    local free = left - margin - wanted
    more = min(arg, free)
    more = more + min(ahead, floor((free - more) / 4))
    if wanted + more > 0 then
      ok, wait, left, reset, at, grant, x, y, z = try(wanted + more, false)
      limit.take(key, 1, ok, wait, left, reset, at, grant, x, y, z)
    end
    if more < arg then
      local _
      _, again = try(wanted + margin, true)
    end
  end
  return pack('<i8i8i8i8i8i8di8i8', now, ok, min(wait, maxTicks), max(left - margin, 0), min(reset, maxTicks), at, grant, more, min(again, maxTicks))
end

local function decide(k, grants)
  local key = KEYS[k]
  if settles then
    limit.settle(key, 1, now, arg, tonumber(ARGV[grants]), ARGV[grants + 1], op == 'cancel')
    return ''
  elseif op == 'lease' then
    return lease(key, ARGV[grants] + 0, ARGV[grants + 1] + 0)
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
