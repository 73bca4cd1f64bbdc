package quota

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func seeded(seed uint64) *Tracker {
	return &Tracker{Rand: rand.New(rand.NewPCG(seed, 1)).Float64}
}

// A quota of ten a second that the server does not state.
func TestTracker_findsHiddenQuota(t *testing.T) {
	for name, s := range map[string]func() server{
		"bucket":              func() server { return tokenBucket(10, 10, false) },
		"window":              func() server { return fixedWindow(10, time.Second, false, false) },
		"window, Retry-After": func() server { return fixedWindow(10, time.Second, false, true) },
		"rejections count":    func() server { return haproxy(20, 2*time.Second, "") },
	} {
		synctest.Test(t, func(t *testing.T) {
			var served, rejected int
			start := time.Now()
			server := s()
			counted := func(now time.Time) (int, http.Header) {
				status, h := server(now)
				if at := now.Sub(start); at >= time.Minute && at < 2*time.Minute {
					if status == 200 {
						served++
					} else {
						rejected++
					}
				}
				return status, h
			}
			tr := seeded(1)
			tr.Mode = Full
			playUntil(t, tr, counted, 10_000, 30, 20*time.Millisecond, start.Add(2*time.Minute))
			t.Logf("%s: %d served of 600, %d rejected", name, served, rejected)
			goal(t, "hidden quota: "+name, served >= 600*85/100 && rejected < (served+rejected)*3/100, "%d served of 600, %d rejected", served, rejected)
		})
	}
}

// The server halves the quota during the job.
func TestTracker_followsAQuotaThatShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wide, narrow := fixedWindow(100, 10*time.Second, true, true), fixedWindow(50, 10*time.Second, true, true)
		start := time.Now()
		j := play(t, seeded(1), func(now time.Time) (int, http.Header) {
			if now.Sub(start) < 25*time.Second {
				return wide(now)
			}
			return narrow(now)
		}, 500, 30, 20*time.Millisecond)
		goal(t, "quota that shrinks", j.throttled <= 30, "%v", j)
		require.Zero(t, j.failed)
	})
}
