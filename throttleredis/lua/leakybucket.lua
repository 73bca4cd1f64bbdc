-- A line of claims: so many ticks were taken as of last, the latest reading granted at, and
-- latest and held are places in line, in ticks after it, as throttle.LeakyBucket has them:
-- the latest place that was given, and the latest of those that did not follow it then.
-- A grant is the reading it was made at, and how many ticks after that it acts.
-- Arguments: ticks of a unit, ticks of a microsecond, most units at once, ticks of the
-- queue, most units of a claim, 1 if the units of a claim leave one by one.

local function read(key)
  local v = call('GET', key)
  if v then
    return unpack('<i7i7i7i7', v)
  end
end

local function write(key, last, taken, latest, held, scale)
  local left = max(taken, latest) / scale
  call('SET', key, pack('<i7i7i7i7', last, taken, latest, held), 'PX', lasts(left))
end

return {
  check = function(key, a, now)
    local interval, scale, burst = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
    local queue, largest, split = tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4]), ARGV[a + 5] == '1'
    local last, taken, latest, held = read(key)
    if not last then
      taken, latest, held = 0, -most, -most
    elseif last >= now and (last - now) * scale <= burst * interval + (split and queue or 0) then
      now = last
    elseif last >= now then -- the clock was set back
      write(key, now, taken, latest, held, scale)
    else
      local passed = (now - last) * scale
      taken = max(taken - passed, 0)
      latest, held = max(latest - passed, -most), max(held - passed, -most)
    end
    local window, cost, longest = burst * interval, n * interval, min(queue, third)
    local ok, wait = 0, -1
    if n <= largest and cost - window <= longest then
      wait = max(taken + cost - window, 0)
      if wait > longest then
        wait = wait - longest
      else
        ok = 1
        if not dry then
          taken = taken + cost
        end
      end
    end
    local whole = split and window + queue or window
    return ok, wait, floor(max(whole - taken, 0) / interval), taken, now, now, latest, held
  end,

  take = function(key, a, _, place, _, taken, last, _, latest, held)
    local interval, scale = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    if place <= latest then
      held = max(held, place)
    else
      if latest > place - n * interval then
        held = max(held, latest)
      end
      latest = place
    end
    write(key, last, taken, latest, held, scale)
  end,

  -- Who stands behind keeps his place, so what leaves between this one and the last is not
  -- given back.
  settle = function(key, a, now, extra, from, wait, cancels)
    local interval, scale, burst = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
    local split = ARGV[a + 5] == '1'
    local last, taken, latest, held = read(key)
    if not last then
      if extra < 0 then
        return
      end
      last, taken, latest, held = now, 0, -most, -most
    end
    local present = max(now - last, 0) * scale
    if extra > 0 then
      taken = min(max(taken, present) + extra * interval, most)
      return write(key, last, taken, latest, held, scale)
    end
    local place = (from - last) * scale + tonumber(wait)
    local lost = max(latest, present) - place
    local back = -extra * interval
    if lost > 0 and split then
      back = min(back, burst * interval)
    end
    taken = max(taken - max(back - lost, 0), 0)
    if not cancels then
      held = latest
    elseif lost == 0 then
      latest = max(place + extra * interval, held)
    end
    write(key, last, taken, latest, held, scale)
  end,
}
