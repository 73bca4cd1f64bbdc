package statedlimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestUnitCost_isTheCommonDivisorOfSteps(t *testing.T) {
	var c unitCost
	left := int64(1000)
	step := func(units int64, spaced bool) (changed bool) {
		left -= units
		return c.update(left, spaced)
	}
	step(0, true)
	for range 100 {
		require.False(t, step(3, false), "other clients may send in step")
	}
	c, left = unitCost{}, 1000
	step(0, true)
	for i := range minSteps - 1 {
		require.False(t, step(3*int64(1+i%3), true))
	}
	require.EqualValues(t, 1, c.perRequest())
	require.True(t, step(6, true))
	require.EqualValues(t, 3, c.perRequest())
	require.Equal(t, throttle.RemoteLimit{Limit: 333, Remaining: 33}, c.inRequests(throttle.RemoteLimit{Limit: 1000, Remaining: 100}))
	require.False(t, step(-600, false), "units came back")
	require.True(t, step(4, false), "no multiple")
	require.EqualValues(t, 1, c.perRequest())
	require.Equal(t, throttle.RemoteLimit{Limit: 1}, (&unitCost{units: 7}).inRequests(throttle.RemoteLimit{Limit: 5}))
}

// Units are converted to requests at the cost of one; a limit is at least one request. When the cost
// changes, what was learned with another one is dropped.
func TestEstimate_countsInRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		units               int64
		limit, left         int64
		wantLimit, wantLeft int64
	}{
		"one":          {0, 100, 40, 100, 40},
		"five":         {5, 100, 44, 20, 8},
		"less than it": {5, 4, 4, 1, 0},
		"no limit":     {5, 0, 4, 0, 0},
	} {
		c := unitCost{units: tt.units}
		require.Equal(t, throttle.RemoteLimit{Limit: tt.wantLimit, Remaining: tt.wantLeft}, c.inRequests(throttle.RemoteLimit{Limit: tt.limit, Remaining: tt.left}), name)
	}
	now := time.Unix(1000, 0)
	fresh := func() Estimate {
		e := Estimate{Limit: 100, Remaining: 40, Reset: now.Add(time.Second), refill: refill{kind: refillsAtReset}}
		e.others, e.proof.right = otherClients{present: true, share: .5}, true
		e.cost = unitCost{known: true, remaining: 200, units: 5}
		return e
	}
	e := fresh()
	require.Equal(t, throttle.RemoteLimit{Limit: 100, Remaining: 38}, e.updateCost(throttle.RemoteLimit{Limit: 500, Remaining: 190}, now, 0))
	require.Equal(t, []any{int64(100), int64(40), refillsAtReset, .5}, []any{e.Limit, e.Remaining, e.refill.kind, e.others.share}, "the cost is the same")
	require.Equal(t, []int64{10, 1}, []int64{e.cost.divisor, int64(e.cost.steps)}, "requests are spaced because of other clients")
	e = fresh()
	require.Equal(t, throttle.RemoteLimit{Limit: 500, Remaining: 197}, e.updateCost(throttle.RemoteLimit{Limit: 500, Remaining: 197}, now, 0))
	require.Equal(t, []any{int64(500), int64(197), refillUnknown, 0.}, []any{e.Limit, e.Remaining, e.refill.kind, e.others.share}, "no more than is stated")
	e = fresh()
	e.Remaining = 30
	e.updateCost(throttle.RemoteLimit{Limit: 500, Remaining: 197}, now, 0)
	require.EqualValues(t, 150, e.Remaining, "no more than was known")
	e = fresh()
	e.others.present = false
	e.updateCost(throttle.RemoteLimit{Limit: 500, Remaining: -3}, now, 0)
	require.Equal(t, unitCost{known: true, units: 5}, e.cost, "requests are not spaced")
}
