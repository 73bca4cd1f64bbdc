package throttleredis

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

const month, year = 30 * 24 * time.Hour, 365 * 24 * time.Hour

// kinds returns a limiter of each kind. Each key is granted n units, and then none during a
// test.
func kinds(s *Store, n int64) map[string]throttle.Limiter {
	units := throttle.Limit{Count: n, Per: year}
	slow := throttle.Limit{Count: 1, Per: month}
	return map[string]throttle.Limiter{
		"TokenBucket":      s.TokenBucket(units),
		"RefillBucket":     s.RefillBucket(throttle.RefillBucketConfig{Limit: units}),
		"LeakyBucket":      s.LeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 1, Per: month, Burst: n}}),
		"Nginx":            s.Nginx(throttle.NginxConfig{Rate: 1, Per: 1000 * time.Second, Burst: n - 1, NoDelay: true}),
		"FixedWindow":      s.FixedWindow(throttle.FixedWindowConfig{Count: n, Align: throttle.AtFirst, Per: year}),
		"PermitsPerPeriod": s.PermitsPerPeriod(n, 100*year),
		"SlidingLog":       s.SlidingLog(throttle.SlidingLogConfig{Limit: units}),
		"SubWindows":       s.SlidingCounter(throttle.SlidingCounterConfig{Limit: units, Parts: 3}),
		"SlidingCounter":   s.SlidingCounter(throttle.SlidingCounterConfig{Limit: units}),
		"Concurrency":      s.Concurrency(throttle.ConcurrencyConfig{Count: n, MaxAge: year}),
		"WarmUp":           s.WarmUp(warmup.Config{Limit: slow}),
		"Bursty":           s.Bursty(warmup.BurstyConfig{Limit: slow, MaxBurst: time.Duration(n-1) * month, StartFull: true}),
	}
}

// grantedOf returns how many of n units a kind of limiter grants at the same time.
func grantedOf(kind string, n int64) int64 {
	if kind == "WarmUp" {
		return 1 // the others follow at intervals of a month
	}
	return n
}

// eachWorksOn makes claims on limiters of all kinds, for keys on all nodes.
func eachWorksOn(t *testing.T, s *Store) {
	for kind, l := range kinds(s, 3) {
		for i := range 10 {
			key := strconv.Itoa(i)
			for n := range int64(4) {
				d := take(t, l, key)
				require.Equal(t, n < grantedOf(kind, 3), d.OK, "%s: claim %d: %+v", kind, n, d)
			}
		}
	}
}
