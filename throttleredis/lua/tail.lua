-- The end of every script. decide decides on the claim whose first key is KEYS[k]. The script returns
-- the reply for one claim, or for several a list of replies and errors, in the order of the claims.
-- A claim that fails does not affect the others.

local grants, nextArg = begin(size + 1, parts)
if #KEYS == parts then
  return decide(1, grants)
end
for i = 1, size do
  ARGV[i] = ARGV[i] + 0 -- converted once
end
local replies = {}
for k = 1, #KEYS, parts do
  if k > 1 then
    grants, nextArg = begin(nextArg, parts)
  end
  local ok, reply = pcall(decide, k, grants)
  if not ok and type(reply) ~= 'table' then
    reply = {err = reply} -- before Redis 7
  end
  replies[#replies + 1] = reply
end
return replies
