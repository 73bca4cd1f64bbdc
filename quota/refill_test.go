package quota

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The time until a unit is free is between one millisecond and maxDelay, however many units are
// missing and however slowly they come back.
func TestRefill_untilIsBounded(t *testing.T) {
	at := time.Unix(0, 0)
	for name, tt := range map[string]struct {
		rate   float64
		units  int64
		passed time.Duration
		want   time.Duration
	}{
		"one unit at two per second": {2, 0, 0, time.Second / 2},
		"part of it has passed":      {2, 0, 200 * time.Millisecond, 300 * time.Millisecond},
		"low rate":                   {1e-12, 0, 0, maxDelay},
		"many units are missing":     {10, math.MinInt64 / 2, 0, maxDelay},
		"high rate":                  {math.MaxInt64, 0, time.Hour, time.Millisecond},
	} {
		r := refill{kind: refillsEvenly, rate: tt.rate}
		require.Equal(t, tt.want, r.until(tt.units, at, at.Add(tt.passed)), name)
	}
}

// In a window, units come back only if more are left than before.
func TestRefill_windowThatRestoresUnitsIsASlidingLog(t *testing.T) {
	start := time.Unix(1000, 0)
	for left, want := range map[int64]refillKind{9: refillsAtReset, 10: refillsAtReset, 11: refillsEach} {
		e := estimate{limit: 100, remaining: 10, at: start, per: time.Minute, reset: start.Add(time.Minute), refill: refill{kind: refillsAtReset}}
		now := start.Add(time.Second)
		e.refill.update(&e, left, e.reset, now, &inFlight{})
		require.Equal(t, want, e.refill.kind, "%d left", left)
		require.Equal(t, want == refillsEach, e.refill.log != nil, "%d left", left)
	}
}
