-- rescale converts ticks that were stored for a limit with another interval, the ticks of a unit.
local function rescale(ticks, stored, interval)
  if stored == interval then
    return ticks
  end
  return max(min(ceil(ticks / stored * interval), maxExact), -maxExact)
end
