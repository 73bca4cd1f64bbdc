package throttleredis

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lua has no integers that can hold a product of two large ones. The quotients of the
// scripts are exact nevertheless.
func TestDivision_isExact(t *testing.T) {
	text := readLua("head") + readLua("division") + `
local answers = {}
for i = 1, #ARGV, 3 do
  local a, b, c = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  answers[#answers + 1] = muldiv(a, b, c)
  answers[#answers + 1] = muldivup(a, b, c)
end
return answers`
	r := rand.New(rand.NewPCG(1, 1))
	upTo := func(bits uint) int64 { return r.Int64N(1<<(1+r.UintN(bits)) + 1) }
	args, want := []any{}, []any{}
	for range 2000 {
		c := max(upTo(50), 1)
		a, b := upTo(51), r.Int64N(c+1)
		if c > 1<<50 {
			c, b = 1<<50, min(b, 1<<50)
		}
		args = append(args, a, b, c)
		p, remaining := new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), new(big.Int)
		q, _ := p.DivMod(p, big.NewInt(c), remaining)
		want = append(want, q.Int64(), q.Int64()+int64(remaining.Sign()))
	}
	got, err := client(t).Eval(t.Context(), text, nil, args...).Result()
	require.NoError(t, err)
	require.Equal(t, want, got)
}
