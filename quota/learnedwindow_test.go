package quota

import (
	"math/rand/v2"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/serverrules"
)

// rule returns a server that follows a rule of package serverrules, for one path.
func rule(s serverrules.Server) server {
	return func(now time.Time) (int, http.Header) {
		if reply := s(serverrules.Request{At: now, Path: "/"}); !reply.OK() {
			return reply.Status, reply.Header
		}
		return http.StatusOK, nil
	}
}

// The rejections of these servers state nothing, or only when to come back. The ideal time is that of
// a client that knows the limit. Up to 30 requests are in flight when the limit is met, and at most
// four probes and two tests follow.
func TestTracker_learnsWindows(t *testing.T) {
	const window = 5 * time.Second
	for name, tt := range map[string]struct {
		server  func() serverrules.Server
		ideal   [2]time.Duration
		wasted  [2]int
		elapsed [2]float64 // of the ideal
	}{
		"from the first request": {
			func() serverrules.Server { return serverrules.ModQoS(80, window) },
			[2]time.Duration{2 * window, 2 * window}, [2]int{36, 1}, [2]float64{1.15, 1.15},
		},
		"of the clock": {
			func() serverrules.Server { return serverrules.RackAttack(80, window, serverrules.RackBare) },
			[2]time.Duration{2 * window, 8300 * time.Millisecond}, [2]int{36, 1}, [2]float64{1.15, 1.15},
		},
		"of the clock, stated by rejections": {
			func() serverrules.Server { return serverrules.RackAttack(80, window, serverrules.RackReadme) },
			[2]time.Duration{2 * window, 8300 * time.Millisecond}, [2]int{36, 2}, [2]float64{1.05, 1.05},
		},
		"of the clock, Retry-After": {
			func() serverrules.Server { return serverrules.RackAttack(80, window, serverrules.RackRetryAfter) },
			[2]time.Duration{2 * window, 8300 * time.Millisecond}, [2]int{36, 1}, [2]float64{1.2, 1.35},
		},
	} {
		for _, rtt := range []time.Duration{time.Millisecond, 50 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)))
				random := rand.New(rand.NewPCG(1, 2))
				tr, s := &Tracker{Rand: random.Float64}, rule(tt.server())
				for i := range 2 {
					j := play(t, tr, s, 240, 30, rtt)
					require.Zero(t, j.failed, "%s, %v, job %d: %v", name, rtt, i+1, j)
					require.LessOrEqual(t, j.throttled, tt.wasted[i], "%s, %v, job %d: %v", name, rtt, i+1, j)
					require.LessOrEqual(t, j.elapsed.Seconds()/tt.ideal[i].Seconds(), tt.elapsed[i], "%s, %v, job %d: %v", name, rtt, i+1, j)
					time.Sleep(time.Until(time.Date(2026, time.January, 1, 0, 1, 1, 700e6, time.UTC)))
				}
			})
		}
	}
}

// The length of the window is the longest usual length between the last rejected probe and the accepted
// one. Times are in seconds from the first request.
func TestLearnedWindow_isInferredFromAStop(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	for name, tt := range map[string]struct {
		accepted                     int64
		stopped, rejected, probed    float64 // rejected: 0 if no probe was rejected
		limit                        int64   // 0: no window
		length, minLength, maxLength time.Duration
	}{
		"usual length":    {100, .1, 3, 5.1, 100, 5 * time.Second, 3 * time.Second, 5100 * time.Millisecond},
		"no usual length": {100, .1, 5.3, 8, 100, 8 * time.Second, 5300 * time.Millisecond, 8 * time.Second},
		"first probe":     {21, .02, 0, 1.05, 21, time.Second, 20 * time.Millisecond, 1050 * time.Millisecond},
		"few accepted":    {7, .02, 0, 1.05, 0, 0, 0, 0},
		"slowly sent":     {100, 3, 4, 5.1, 0, 0, 0, 0},
	} {
		rejected := time.Time{}
		if tt.rejected > 0 {
			rejected = at(tt.rejected)
		}
		w := newLearnedWindow(acceptedSpan{since: at(0), n: tt.accepted}, at(tt.stopped), rejected, at(tt.probed), 200)
		require.Equal(t, tt.limit, w.limit, name)
		require.Equal(t, tt.length, w.length, name)
		require.Equal(t, tt.minLength, w.minLength, name)
		require.Equal(t, tt.maxLength, w.maxLength, name)
		if tt.limit > 0 {
			require.EqualValues(t, 1, w.used, name)
			require.Equal(t, at(tt.probed), w.start, name)
		}
	}
}

// A learned window is reported when it is inferred, and as dropped when a test shows that there is
// none.
func TestTracker_reportsLearnedWindows(t *testing.T) {
	for name, tt := range map[string]struct {
		server serverrules.Server
		want   []LimitLearnedInfo
	}{
		"window": {
			serverrules.ModQoS(50, 5*time.Second),
			[]LimitLearnedInfo{{Host: "api.test", Limit: "api.test: learned rate", Size: 50, Per: 5 * time.Second}},
		},
		"ban": {
			serverrules.ModEvasive(20, 10*time.Second, 429),
			[]LimitLearnedInfo{
				{Host: "api.test", Limit: "api.test: learned rate", Size: 21, Per: 20 * time.Second},
				{Host: "api.test", Limit: "api.test: learned rate", Change: Dropped, Size: 21, Per: 20 * time.Second},
			},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []LimitLearnedInfo
			events := &Events{LimitLearned: func(l LimitLearnedInfo) {
				if l.Size > 0 {
					got = append(got, l)
				}
			}}
			tr := seeded(1)
			tr.Listen(events)
			j := play(t, tr, rule(tt.server), 100, 30, time.Millisecond)
			require.Equal(t, tt.want, got, "%s: %v", name, j)
			runtime.KeepAlive(events)
		})
	}
}

// The probe after a window may fail for another reason. Then the next request is the probe.
func TestTracker_probesAWindowAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited, n, failures := rule(serverrules.ModQoS(50, 5*time.Second)), 0, 0
		s := func(now time.Time) (int, http.Header) {
			status, h := limited(now)
			if n++; status == http.StatusOK && n > 100 && failures < 3 {
				failures++
				return http.StatusInternalServerError, nil
			}
			return status, h
		}
		j := play(t, seeded(1), s, 200, 20, time.Millisecond)
		require.Zero(t, j.failed, "%v", j)
		require.Equal(t, 3, failures)
		require.Less(t, j.elapsed, 25*time.Second, "%v", j)
	})
}

// A stop whose probe was accepted immediately shows no window.
func TestLearnedWindow_needsTime(t *testing.T) {
	now := time.Unix(1000, 0)
	w := newLearnedWindow(acceptedSpan{since: now, n: 100}, now, time.Time{}, now, 1)
	require.False(t, w.on())
}

// A probe that failed, and so was neither accepted nor rejected, is followed by another one.
func TestLearnedWindow_doesNotWaitForAFailedProbe(t *testing.T) {
	start := time.Unix(1000, 0)
	var f inFlight
	w := newLearnedWindow(acceptedSpan{since: start, n: 10}, start.Add(time.Millisecond), time.Time{}, start.Add(time.Second), f.add())
	f.end(1)
	end := w.reset.Add(openingDelay)
	_, ok := w.check(end, &f)
	require.True(t, ok)
	n := f.add()
	w.granted(n, end)
	_, ok = w.check(end, &f)
	require.False(t, ok, "the probe is in flight")
	f.end(n) // the probe failed
	_, ok = w.check(end, &f)
	require.True(t, ok)
}

// A window whose rate was measured a second time is tested when it has been used up without a
// rejection, because there may be no limit.
func TestLearnedWindow_isTestedAfterASecondMeasurement(t *testing.T) {
	start := time.Unix(1000, 0)
	w := newLearnedWindow(acceptedSpan{since: start, n: 10}, start.Add(time.Millisecond), time.Time{}, start.Add(time.Second), 1)
	w.measuredRate = 1
	now, n := w.reset.Add(openingDelay), uint64(2)
	for range 2 {
		w.granted(n, now) // the probe
		require.Equal(t, fitsWindow, w.succeeded(n, now))
		for range 9 {
			require.False(t, w.testDue())
			n++
			w.granted(n, now)
			require.Equal(t, fitsWindow, w.succeeded(n, now))
		}
		if w.measuredRate == 0 {
			break
		}
		require.False(t, w.testDue())
		now, n = w.reset.Add(openingDelay), n+1
	}
	require.True(t, w.testDue())
}
