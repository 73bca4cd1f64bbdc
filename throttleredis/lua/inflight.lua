-- A hash of what is in use: for each claim that has not ended, named by its grant, the
-- reading and the units. '' is the units of all, the latest reading, the latest grant, and
-- a reading before which none of them is lost.
-- Arguments: most units, microseconds after which a claim is lost.
--
-- A grant is a reading too, made larger where it was given before: a claim that ends twice
-- must not end another one. So the hash stays a while when nothing is in use.

local function read(key)
  local v = call('HGET', key, '')
  if v then
    return unpack('<i7i7i7i7', v)
  end
  return 0, nil, 0, nil
end

local function write(key, used, last, latest, due)
  call('HSET', key, '', pack('<i7i7i7i7', used, last, latest, due))
end

-- lost returns the units of the claims that are too old, their names, and the reading at
-- which the next one will be.
local function lost(key, age, now)
  local units, names, due = 0, {}, 2 ^ 53
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    if all[i] ~= '' then
      local at, own = unpack('<i7i7', all[i + 1])
      if now - at >= age then
        units, names[#names + 1] = units + own, all[i]
      else
        due = min(due, at + age)
      end
    end
  end
  return units, names, due
end

return {
  holds = true,

  check = function(key, a, now)
    local count, age = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    local used, last, latest, due = read(key)
    now = max(now, last or now)
    local names
    if due and now >= due then
      local units
      units, names, due = lost(key, age, now)
      used = used - units
    end
    local grant = max(now, latest + 1)
    local ok, wait = 0, 0
    if n > count then
      wait = -1
    elseif n <= count - used then
      ok = 1
      if not dry then
        used = used + n
      end
    end
    return ok, wait, count - used, 0, now, grant, used, names, due
  end,

  take = function(key, a, _, _, _, _, now, grant, used, names, due)
    local age = tonumber(ARGV[a + 1])
    for _, name in ipairs(names or {}) do
      call('HDEL', key, name)
    end
    call('HSET', key, string.format('%.0f', grant), pack('<i7i7', now, n))
    write(key, used, now, grant, min(due or 2 ^ 53, now + age))
    call('PEXPIRE', key, lasts(age))
  end,

  settle = function(key, a, now, extra, from)
    local name = string.format('%.0f', from)
    local v = call('HGET', key, name)
    if not v then
      return
    end
    local _, units = unpack('<i7i7', v)
    local used, last, latest, due = read(key)
    call('HDEL', key, name)
    write(key, used - units, last, latest, due)
  end,
}
