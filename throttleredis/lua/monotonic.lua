-- monotonic returns the time that an algorithm counts in, which never decreases: the reading
-- now plus shift, the total by which the clock was set back. It also returns the shift, and
-- whether the shift has changed and must be stored even if the claim is rejected. last is the
-- latest time granted at, or nil if there is none. window is in microseconds.
local function monotonic(now, last, shift, window)
  if not last then
    return now, shift, false
  elseif last - (now + shift) > window then
    return last, last - now, true
  end
  return max(now + shift, last), shift, false
end
