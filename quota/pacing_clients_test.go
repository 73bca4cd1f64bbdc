package quota

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/turns"
)

// shared returns s, safe for concurrent use.
func shared(s server) server {
	var mu sync.Mutex
	return func(now time.Time) (int, http.Header) {
		mu.Lock()
		defer mu.Unlock()
		return s(now)
	}
}

// A fleet is the result of the same job in many processes.
type fleet struct {
	calls, throttled, failed int
	elapsed                  time.Duration // of the slowest
	jain                     float64       // of the rates
}

// playFleet runs n calls from c goroutines in each of many processes that do not communicate. It
// must be called in a bubble.
func playFleet(t *testing.T, seed uint64, s server, processes, n, c int, rtt time.Duration) (f fleet) {
	jobs, g := make([]*job, processes), turns.New(seed)
	s = shared(s)
	for i := range jobs {
		jobs[i] = begin(t, g, seeded(uint64(i)), s, n, c, rtt, time.Time{})
	}
	g.Wait()
	var sum, squares float64
	for _, j := range jobs {
		f.calls += n
		f.throttled += j.throttled
		f.failed += j.failed
		f.elapsed = max(f.elapsed, j.elapsed)
		rate := float64(n) / j.elapsed.Seconds()
		sum += rate
		squares += rate * rate
	}
	f.jain = sum * sum / float64(processes) / squares
	return f
}

// Ten processes that do not communicate use one quota. A seed decides which of them runs first: in some
// orders one of them has made all its calls before the rest begin, and the index says nothing. So the
// median of three seeds counts. Limits of a second, and buckets, miss the goals: 300 callers are more than
// they allow in a round trip.
func TestTracker_sharesWithOtherTrackers(t *testing.T) {
	for name, s := range map[string]func() server{
		"bucket of 50/s":         func() server { return tokenBucket(50, 50, true) },
		"window of 50 per 1 s":   func() server { return fixedWindow(50, time.Second, true, true) },
		"window of 500 per 10 s": func() server { return fixedWindow(500, 10*time.Second, true, true) },
	} {
		for _, rtt := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
			for _, callers := range []int{1, 4, 30} {
				if testing.Short() && (callers > 4 || callers > 1 && rtt < 100*time.Millisecond) {
					continue
				}
				var runs []fleet
				seeds := uint64(3)
				if testing.Short() {
					seeds = 1
				}
				for seed := range seeds {
					synctest.Test(t, func(t *testing.T) { runs = append(runs, playFleet(t, seed, s(), 10, 200, callers, rtt)) })
				}
				slices.SortFunc(runs, func(a, b fleet) int { return cmp.Compare(a.jain, b.jain) })
				f := runs[seeds/2]
				figures := fmt.Sprintf("%s, %v away, %d callers: %.1f %% of %d rejected, %d failed, %.1f s, Jain %.3f",
					name, rtt, callers, 100*float64(f.throttled)/float64(f.calls), f.calls, f.failed, f.elapsed.Seconds(), f.jain)
				t.Log(figures)
				goal(t, "shared without communication", f.throttled <= f.calls*7/100 && f.jain >= 0.7 && f.failed <= 2, "%s", figures)
				require.Less(t, f.elapsed, 60*time.Second, figures)
			}
		}
	}
}

// Units that were used before the first request are not the use of other clients now, and a long
// window is not shared while many units are left.
func TestTracker_usesAllUnitsWithoutOtherClients(t *testing.T) {
	for name, tt := range map[string]struct {
		limit, used int
		per         time.Duration
		maxElapsed  time.Duration
	}{
		"most of an hour's quota is used": {5000, 3000, time.Hour, 2 * time.Second},
		"half of a window's quota":        {1000, 500, 20 * time.Second, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := fixedWindow(tt.limit, tt.per, true, true)
			for range tt.used {
				s(time.Now())
			}
			j := play(t, seeded(1), s, 400, 20, 20*time.Millisecond)
			require.Zero(t, j.throttled, "%s: %v", name, j)
			require.Less(t, j.elapsed, tt.maxElapsed, "%s: %v", name, j)
		})
	}
}

// When the other clients have stopped, the remaining one uses the full quota again.
func TestTracker_detectsThatOtherClientsHaveGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(fixedWindow(100, 5*time.Second, true, true))
		gone := time.Now().Add(30 * time.Second)
		g := turns.New(1)
		for i := range 4 {
			begin(t, g, seeded(uint64(i+2)), s, 10_000, 4, 20*time.Millisecond, gone)
		}
		tr := seeded(1)
		begin(t, g, tr, s, 10_000, 10, 20*time.Millisecond, gone.Add(40*time.Second))
		g.Wait()
		time.Sleep(6 * time.Second)
		j := play(t, tr, s, 300, 10, 20*time.Millisecond)
		require.Less(t, j.elapsed, 16*time.Second, "%v", j)
		require.LessOrEqual(t, j.throttled, 8)
	})
}
