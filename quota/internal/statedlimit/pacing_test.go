package statedlimit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Units are spread over the time until the reset if the program wishes it, and if they do not come back one by
// one.
func TestPacing_spreadsUnits(t *testing.T) {
	for name, tt := range map[string]struct {
		refill refill
		want   bool
	}{
		"not known":       {refill{}, true},
		"window":          {refill{kind: refillsAtReset}, true},
		"token bucket":    {refill{kind: refillsEvenly}, false},
		"sliding counter": {refill{kind: refillsNextWindow}, false},
		"one by one":      {refill{kind: refillsOneByOne}, true},
	} {
		e := Estimate{Limit: 100, refill: tt.refill}
		require.Equal(t, tt.want, Pacing{Spread: true}.spreads(&e), name)
		require.False(t, Pacing{}.spreads(&e), name)
	}
}

// The free units divide the time until the reset.
func TestPacing_schedulesUnitsEvenly(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		headroom  float64
		remaining int64
		open      int64
		want      time.Duration // until the next claim
	}{
		"nine units":            {0, 9, 0, 10 * time.Second},
		"of them, in flight":    {0, 13, 4, 10 * time.Second},
		"of them, for others":   {.1, 19, 0, 10 * time.Second},
		"one unit":              {0, 1, 0, 50 * time.Second},
		"none":                  {0, 0, 0, 100 * time.Second},
		"more than are left":    {0, 2, 7, 100 * time.Second},
		"all reserved or spent": {.5, 40, 0, 100 * time.Second},
	} {
		e := Estimate{Limit: 100, Remaining: tt.remaining, Reset: now.Add(100 * time.Second), refill: refill{kind: refillsAtReset}}
		Pacing{Headroom: tt.headroom}.scheduleNext(&e, now, tt.open)
		require.Equal(t, tt.want, e.next.Sub(now), name)
		before := e.next
		Pacing{}.scheduleNext(&e, e.Reset, 0)
		require.Equal(t, before, e.next, "%s: the reset is over", name)
	}
}

func TestPacing_reservesHeadroom(t *testing.T) {
	for headroom, want := range map[float64]int64{-1: 0, 0: 0, .001: 1, .5: 50, .501: 51, 1: 100, 7: 100} {
		require.Equal(t, want, Pacing{Headroom: headroom}.Reserved(100), "%v", headroom)
	}
	require.Zero(t, Pacing{Headroom: math.NaN()}.Reserved(100))
}
