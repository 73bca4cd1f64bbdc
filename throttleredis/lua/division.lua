-- Exact division, for the algorithms that need it.

-- muldiv returns a*b/c rounded down, and whether that differs from a*b/c, for
-- 0 <= b <= c <= 2^50. If a*b has no exact double, it is a long division in base 4.
local function muldiv(a, b, c)
  local p = a * b
  if p <= maxExact then
    return floor(p / c), p % c > 0
  end
  local digit = 1
  while digit * 4 <= a do
    digit = digit * 4
  end
  local q, r = 0, 0
  while digit >= 1 do
    local d = floor(a / digit)
    a = a - d * digit
    r = r * 4 + d * b
    local t = floor(r / c)
    q, r, digit = q * 4 + t, r - t * c, digit / 4
  end
  return q, r > 0
end

-- muldivup is muldiv rounded up.
local function muldivup(a, b, c)
  local q, inexact = muldiv(a, b, c)
  return inexact and q + 1 or q
end
