package throttle_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestLimit_withBurst(t *testing.T) {
	l := throttle.PerMinute(60)
	require.Equal(t, throttle.Limit{Count: 60, Per: time.Minute, Burst: 5}, l.WithBurst(5))
	require.Equal(t, throttle.Limit{Count: 60, Per: time.Minute}, l, "the original is unchanged")
	require.EqualValues(t, 60, remaining(t, throttle.NewTokenBucket(l.WithBurst(0))), "0 means Count")
	require.Error(t, l.WithBurst(-1).Validate())
}

func TestLimit_plusPercent(t *testing.T) {
	for _, tt := range []struct{ count, burst, percent, wantCount, wantBurst int64 }{
		{100, 0, 0, 100, 0}, {1000, 0, 10, 1100, 0}, {1000, 1, 10, 1100, 1}, {1000, 50, -10, 900, 45},
		{9, 10, 10, 9, 11}, {19, 20, 10, 20, 22}, {10_000, 20_000, 1, 10_100, 20_200}, {math.MaxInt64, 0, 50, math.MaxInt64, 0},
	} {
		got := throttle.Limit{Name: "n", Count: tt.count, Per: time.Minute, Burst: tt.burst}.PlusPercent(tt.percent)
		require.Equal(t, throttle.Limit{Name: "n", Count: tt.wantCount, Per: time.Minute, Burst: tt.wantBurst}, got, "%+v", tt)
	}
}

// TestLimits_texts checks the names of limits in decisions and errors.
func TestLimits_texts(t *testing.T) {
	for want, limit := range map[string]fmt.Stringer{
		"10 per 1s":                    throttle.PerSecond(10),
		"10 per 1m0s":                  throttle.PerMinute(10).WithBurst(10),
		"10 per 1h0m0s, burst 3":       throttle.PerHour(10).WithBurst(3),
		"3 in flight":                  throttle.ConcurrencyConfig{Count: 3, MaxAge: time.Second},
		"5 per 1m0s":                   throttle.FixedWindowConfig{Count: 5, Per: time.Minute},
		"200 each day":                 throttle.FixedWindowConfig{Count: 200, Align: throttle.EachDay},
		"rate=10/1s burst=0":           throttle.NginxConfig{Rate: 10, Per: time.Second},
		"rate=10/1s burst=5 delay=1":   throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 5, Delay: 1},
		"rate=10/1m0s burst=5 nodelay": throttle.NginxConfig{Rate: 10, Per: time.Minute, Burst: 5, NoDelay: true},
	} {
		require.Equal(t, want, limit.String())
	}
}
