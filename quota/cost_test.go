package quota

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// costly serves limit units per window; each request takes cost() of them.
func costly(limit int, per time.Duration, cost func() int) server {
	var start time.Time
	used := 0
	return func(now time.Time) (int, http.Header) {
		if now.Sub(start) >= per {
			start, used = now, 0
		}
		n := cost()
		ok := used+n <= limit
		if ok {
			used += n
		}
		h := http.Header{}
		h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(limit-used))
		h.Set("X-RateLimit-Reset", strconv.Itoa(int((start.Add(per).Sub(now)+time.Second-1)/time.Second)))
		if ok {
			return 200, h
		}
		h.Set("Retry-After", h.Get("X-RateLimit-Reset"))
		return 429, h
	}
}

// Where requests take several units each, the Tracker stops in time, although the server does not
// state the cost: the steps of the remaining units show it.
func TestTracker_learnsTheCostOfARequest(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	for name, tt := range map[string]struct {
		cost    func() int
		elapsed time.Duration // at most, for 400 requests
	}{
		"1":       {func() int { return 1 }, 2 * time.Second},
		"2":       {func() int { return 2 }, 4 * time.Second},
		"5":       {func() int { return 5 }, 15 * time.Second},                   // ideal: 10 s
		"50":      {func() int { return 50 }, 210 * time.Second},                 // ideal: 190 s
		"1 to 10": {func() int { return 1 + random.IntN(10) }, 30 * time.Second}, // ideal: 20 s
	} {
		for _, rtt := range []time.Duration{time.Millisecond, 50 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				j := play(t, seeded(1), costly(1000, 10*time.Second, tt.cost), 400, 30, rtt)
				t.Logf("%s units each, %v away: %v", name, rtt, j)
				require.Zero(t, j.failed)
				require.LessOrEqual(t, j.throttled, 8, name)
				require.LessOrEqual(t, j.elapsed, tt.elapsed, name)
			})
		}
	}
}

// The same in a window of an hour, where most of the quota is used immediately.
func TestTracker_stopsInTimeAtAnyCost(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	for name, tt := range map[string]struct {
		cost   func() int
		served int // at least, of what 5,000 units pay for
	}{
		"1":        {func() int { return 1 }, 4500},
		"5":        {func() int { return 5 }, 850},
		"100":      {func() int { return 100 }, 35},
		"1 to 200": {func() int { return 1 + random.IntN(200) }, 30},
	} {
		for _, rtt := range []time.Duration{time.Millisecond, 50 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				first := time.Now().Add(time.Hour - time.Second)
				j := playUntil(t, seeded(1), costly(5000, time.Hour, tt.cost), 10_000, 30, rtt, first)
				served := 0
				for _, a := range j.arrivals {
					if a < time.Hour-time.Second {
						served++
					}
				}
				t.Logf("%s units each, %v away: %v, %d in the first hour", name, rtt, j, served)
				require.LessOrEqual(t, j.throttled, 8, name)
				require.GreaterOrEqual(t, served-j.throttled, tt.served, name)
			})
		}
	}
}

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
	fresh := func() estimate {
		e := estimate{limit: 100, remaining: 40, reset: now.Add(time.Second), refill: refill{kind: refillsAtReset}}
		e.others = otherClients{present: true, share: .5}
		e.cost = unitCost{known: true, remaining: 200, units: 5}
		return e
	}
	e := fresh()
	require.Equal(t, throttle.RemoteLimit{Limit: 100, Remaining: 38}, e.updateCost(throttle.RemoteLimit{Limit: 500, Remaining: 190}, now, 0))
	require.Equal(t, []any{int64(100), int64(40), refillsAtReset, .5}, []any{e.limit, e.remaining, e.refill.kind, e.others.share}, "the cost is the same")
	require.Equal(t, []int64{10, 1}, []int64{e.cost.divisor, int64(e.cost.steps)}, "requests are spaced because of other clients")
	e = fresh()
	require.Equal(t, throttle.RemoteLimit{Limit: 500, Remaining: 197}, e.updateCost(throttle.RemoteLimit{Limit: 500, Remaining: 197}, now, 0))
	require.Equal(t, []any{int64(500), int64(197), refillUnknown, 0.}, []any{e.limit, e.remaining, e.refill.kind, e.others.share}, "no more than is stated")
	e = fresh()
	e.remaining = 30
	e.updateCost(throttle.RemoteLimit{Limit: 500, Remaining: 197}, now, 0)
	require.EqualValues(t, 150, e.remaining, "no more than was known")
	e = fresh()
	e.others.present = false
	e.updateCost(throttle.RemoteLimit{Limit: 500, Remaining: -3}, now, 0)
	require.Equal(t, unitCost{known: true, units: 5}, e.cost, "requests are not spaced")
}
