package quota

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

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
				require.LessOrEqual(t, j.throttled, 40, "%s: a tenth", name)
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
				require.LessOrEqual(t, j.throttled, 40, "%s: a tenth", name)
				require.GreaterOrEqual(t, served-j.throttled, tt.served, name)
			})
		}
	}
}
