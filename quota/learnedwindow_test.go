package quota

import (
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/serverrules"
)

// rule returns a server that follows a rule of package serverrules, for one path.
func rule(s serverrules.Server) server {
	return func(now time.Time) (int, http.Header) {
		reply := s(serverrules.Request{At: now, Path: "/"})
		if reply.OK() {
			return http.StatusOK, reply.Header
		}
		return reply.Status, reply.Header
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

// flooredReset returns a server that admits limit requests per window, which begins with its first
// request, and rounds the times of its resets down to seconds, as ulule/limiter does.
func flooredReset(limit int, per time.Duration) serverrules.Server {
	var end time.Time
	used := 0
	return func(r serverrules.Request) serverrules.Reply {
		if !r.At.Before(end) {
			end, used = r.At.Add(per), 0
		}
		used++
		reply := serverrules.Reply{Header: http.Header{}}
		reply.Header.Set("X-RateLimit-Limit", strconv.Itoa(limit))
		reply.Header.Set("X-RateLimit-Remaining", strconv.Itoa(max(limit-used, 0)))
		reply.Header.Set("X-RateLimit-Reset", strconv.FormatInt(end.Unix(), 10))
		if used > limit {
			reply.Status = http.StatusTooManyRequests
		}
		return reply
	}
}

// Servers that state their limits in each response, but not how the stated resets are to be
// understood: two jobs of 300 calls, the first of which begins within a second of the server's clock.
// The ideal time is that of a client which knows the limits.
func TestTracker_learnsHowResetsAreStated(t *testing.T) {
	const window = 5 * time.Second
	for name, tt := range map[string]struct {
		server  func() serverrules.Server
		ideal   time.Duration
		wasted  [2]int
		elapsed [2]float64 // of the ideal
	}{
		"sliding log, the reset moves": {
			func() serverrules.Server { return serverrules.FlaskMoving(100, window) },
			2 * window, [2]int{2, 2}, [2]float64{1.25, 1.15},
		},
		"two limits of one name": {
			func() serverrules.Server {
				return serverrules.Envoy(serverrules.EnvoyLimit{Limit: 20, Unit: time.Second}, serverrules.EnvoyLimit{Limit: 100, Unit: time.Minute})
			},
			2*time.Minute + 4*time.Second, [2]int{3, 3}, [2]float64{1.25, 1.25},
		},
		"rounded down": {
			func() serverrules.Server { return flooredReset(100, window) },
			2 * window, [2]int{2, 0}, [2]float64{1.15, 1.15},
		},
	} {
		for _, begin := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
				time.Sleep(time.Until(start.Add(begin)))
				tr, s := seeded(1), rule(tt.server())
				for i := range 2 {
					j := play(t, tr, s, 300, 30, time.Millisecond)
					t.Logf("%s, begun at %v, job %d: %v", name, begin, i+1, j)
					require.Zero(t, j.failed, "%s, begun at %v, job %d: %v", name, begin, i+1, j)
					require.LessOrEqual(t, j.throttled, tt.wasted[i], "%s, begun at %v, job %d: %v", name, begin, i+1, j)
					require.LessOrEqual(t, j.elapsed.Seconds()/tt.ideal.Seconds(), tt.elapsed[i], "%s, begun at %v, job %d: %v", name, begin, i+1, j)
					time.Sleep(time.Until(start.Add(4*time.Minute + 1700*time.Millisecond)))
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
		"usual length":        {100, .1, 3, 5.1, 100, 5 * time.Second, 3 * time.Second, 5100 * time.Millisecond},
		"no usual length":     {100, .1, 5.3, 8, 100, 8 * time.Second, 5300 * time.Millisecond, 8 * time.Second},
		"first probe":         {21, .02, 0, 1.05, 21, time.Second, 20 * time.Millisecond, 1050 * time.Millisecond},
		"few accepted":        {7, .02, 0, 1.05, 0, 0, 0, 0},
		"slowly sent":         {100, 3, 4, 5.1, 0, 0, 0, 0},
		"as long as the stop": {100, 2.5, 0, 5, 100, 5 * time.Second, 2500 * time.Millisecond, 5 * time.Second},
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

// A claim that was to test the end of a window and is cancelled changes nothing: the next one tests
// it. So is the first request of a window after a hold counted.
func TestLearnedWindow_countsTheFirstRequestOfEachWindow(t *testing.T) {
	start := time.Unix(1000, 0)
	w := newLearnedWindow(acceptedSpan{since: start, n: 10}, start.Add(time.Millisecond), time.Time{}, start.Add(time.Second), 1)
	var f inFlight
	now := w.reset.Add(openingDelay)
	before := w
	n := f.add()
	w.granted(n, now)
	_, ok := w.check(now, &f)
	require.False(t, ok, "the end of the window is being tested")
	f.end(n)
	w.canceled(n)
	require.Equal(t, before, w)
	n = f.add()
	w.granted(n, now)
	f.end(n)
	require.Equal(t, fitsWindow, w.succeeded(n, now))
	require.EqualValues(t, 1, w.used)
	require.EqualValues(t, 1, w.accepted)
	total := w.acceptedSinceStop
	n = f.add()
	w.released(n, now.Add(time.Hour))
	require.EqualValues(t, 1, w.used)
	require.EqualValues(t, 1, w.accepted)
	require.Equal(t, total+1, w.acceptedSinceStop)
}

// While a request is sent beyond the limit, no other one is in flight, so that its response shows
// something.
func TestLearnedWindow_testsTheLimitAlone(t *testing.T) {
	start := time.Unix(1000, 0)
	w := newLearnedWindow(acceptedSpan{since: start, n: 10}, start.Add(time.Millisecond), time.Time{}, start.Add(time.Second), 1)
	w.used, w.windows = w.limit, w.testAfter+1
	at := w.testAt()
	f := inFlight{open: 1}
	wait, ok := w.check(at, &f)
	require.False(t, ok, "a request of the window is in flight")
	require.Zero(t, wait)
	f.open = 0
	_, ok = w.check(at, &f)
	require.True(t, ok)
	w.granted(100, at)
	f.open = 1
	wait, ok = w.check(at, &f)
	require.False(t, ok, "the test is in flight")
	require.Zero(t, wait, "until its response has come")
}
