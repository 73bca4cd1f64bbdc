package bandwidth_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/throttle"
)

func TestPerSecond(t *testing.T) {
	for n, burst := range map[int64]int64{1: 1, 7: 7, 1024: 1024, 20_000: 1024, 20_480: 1024, 40_000: 2000, tenMB: tenMB / 20} {
		l := bandwidth.PerSecond(n)
		require.Equal(t, throttle.Limit{Count: n, Per: time.Second, Burst: burst}, l)
		require.NoError(t, l.Validate())
	}
	require.Error(t, bandwidth.PerSecond(0).Validate())
	require.Error(t, bandwidth.PerSecond(-5).Validate())
}

// TestStream_chunks checks how many bytes a Read returns at one time.
func TestStream_chunks(t *testing.T) {
	for _, tt := range []struct {
		limit throttle.Limit
		want  int
	}{
		{throttle.PerSecond(1 << 40), 256 << 10},
		{throttle.PerSecond(tenMB), tenMB / 200},
		{bandwidth.PerSecond(tenMB), tenMB / 200},
		{throttle.PerSecond(50_000), 512},
		{throttle.PerSecond(100), 50},
		{throttle.Limit{Count: 3600, Per: time.Hour}, 1},
		{throttle.Limit{Count: 36_000, Per: time.Hour}, 10},
		{throttle.PerSecond(tenMB).WithBurst(1000), 500},
		{throttle.PerSecond(tenMB).WithBurst(3), 1},
		{throttle.PerSecond(tenMB).WithBurst(1), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, err := download(t, throttle.NewTokenBucket(tt.limit), zeros{}).Read(make([]byte, 1<<20))
			require.NoError(t, err)
			require.Equal(t, tt.want, n, tt.limit)
		})
	}
}

// A statingLimiter grants everything and states a limit.
type statingLimiter struct {
	throttle.Limiter
	size int64
	per  time.Duration
}

func (l statingLimiter) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{OK: true, Limit: l.size, Per: l.per, Remaining: l.size}, nil
}

// Traits implements throttle.Limiter.
func (l statingLimiter) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = true
	return t
}

// TestStream_chunksOfExtremeLimits checks the chunks of limits whose numbers are the largest and
// the smallest.
func TestStream_chunksOfExtremeLimits(t *testing.T) {
	for _, tt := range []struct {
		size int64
		per  time.Duration
		want int
	}{
		{math.MaxInt64, 1, 256 << 10},
		{math.MaxInt64, math.MaxInt64, 256 << 10},
		{math.MaxInt64, 0, 256 << 10},
		{math.MaxInt64, -1, 256 << 10},
		{1, math.MaxInt64, 1},
		{2, 1, 1},
		{-1, time.Second, 256 << 10},
	} {
		n, err := download(t, statingLimiter{throttle.AllowAll, tt.size, tt.per}, zeros{}).Read(make([]byte, 1<<20))
		require.NoError(t, err)
		require.Equal(t, tt.want, n, tt)
	}
}
