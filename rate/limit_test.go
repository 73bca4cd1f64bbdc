package rate

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Limits that programs write are exact fractions.
func TestLimit_fractions(t *testing.T) {
	for limit, want := range map[Limit]struct {
		count int64
		per   time.Duration
	}{
		1:                              {1, time.Second},
		10:                             {1, 100 * time.Millisecond},
		3:                              {3, time.Second},
		0.1:                            {1, 10 * time.Second},
		2.5:                            {1, 400 * time.Millisecond},
		1.3:                            {13, 10 * time.Second},
		2.75:                           {11, 4 * time.Second},
		3.14:                           {157, 50 * time.Second},
		24. / 7:                        {3, 875 * time.Millisecond},
		0.37:                           {37, 100 * time.Second},
		1234.567:                       {1234567, 1000 * time.Second},
		1. / 3:                         {1, 3 * time.Second},
		100. / 60:                      {1, 600 * time.Millisecond},
		5000. / 3600:                   {1, 720 * time.Millisecond},
		0.7692307692307693:             {1, 1300 * time.Millisecond},
		1e9:                            {1, time.Nanosecond},
		1e15:                           {1e6, time.Nanosecond},
		1e17:                           {1 << 24, time.Nanosecond},
		math.MaxInt64:                  {1 << 24, time.Nanosecond},
		Every(30 * time.Millisecond):   {1, 30 * time.Millisecond},
		Every(7):                       {1, 7},
		Every(1234567):                 {1, 1234567},
		Every(12_345_678_901):          {1, 12_345_678_901},
		Every(24 * time.Hour):          {1, 24 * time.Hour},
		Every(365 * 24 * time.Hour):    {1, 365 * 24 * time.Hour},
		Every(time.Hour + time.Second): {1, time.Hour + time.Second},
	} {
		count, per := limit.fraction()
		require.Equal(t, want.count, count, "%g", limit)
		require.Equal(t, want.per, per, "%g", limit)
	}
}

// Any float64 is met within its rounding, or within a nanosecond of a period of 2^53 units.
func TestLimit_fractionsOfRandomLimits(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	for range 5_000 {
		x := math.Exp(math.Log(1e-9) + r.Float64()*math.Log(1.6e25))
		count, per := Limit(x).fraction()
		require.Positive(t, count)
		require.Positive(t, per)
		got := new(big.Rat).Mul(big.NewRat(count, int64(per)), big.NewRat(1e9, 1))
		want := new(big.Rat).SetFloat64(x)
		difference, _ := new(big.Rat).Sub(new(big.Rat).Quo(got, want), big.NewRat(1, 1)).Float64()
		require.LessOrEqual(t, difference, 0x1p-50, "%g: %d per %v", x, count, per)
		require.GreaterOrEqual(t, difference, -max(0x1p-50, x/1e9*0x1p-52), "%g: %d per %v", x, count, per)
		l := Limit(x).withBurst(1 + r.Int64())
		require.NoError(t, l.Validate())
	}
}

func TestLimit_withBurst(t *testing.T) {
	for _, limit := range []Limit{0, -1, Limit(math.NaN()), Limit(math.Inf(-1)), 1e-300, 1e-10, 1e-9, 1e-3, 1, 1e9, 1e16, 1e18, 1e300, Inf, Limit(math.Inf(1))} {
		for _, burst := range []int64{math.MinInt64, -1, 0, 1, 2, 1e9, math.MaxInt64} {
			l := limit.withBurst(burst)
			require.NoError(t, l.Validate(), "%g, %d", limit, burst)
			require.LessOrEqual(t, l.Burst, max(burst, 1))
		}
	}
	require.EqualValues(t, 1e9, Limit(1).withBurst(1e9).Burst)
	require.EqualValues(t, maxRefill/time.Second, Limit(1).withBurst(math.MaxInt64).Burst, "36 years")
	require.False(t, Limit(1e-10).restores())
	require.True(t, Every(36*365*24*time.Hour-time.Second).restores())
}
