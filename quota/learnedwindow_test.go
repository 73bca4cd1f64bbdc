package quota

import (
	"cmp"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"

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
					t.Logf("%s, %v, job %d: %v", name, rtt, i+1, j)
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
		w := newLearnedWindow(acceptedSpan{since: at(0), until: at(tt.stopped), n: tt.accepted}, rejected, at(tt.probed), 200)
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
	w := newLearnedWindow(acceptedSpan{since: now, until: now, n: 100}, time.Time{}, now, 1)
	require.False(t, w.on())
}

// A probe that failed, and so was neither accepted nor rejected, is followed by another one.
func TestLearnedWindow_doesNotWaitForAFailedProbe(t *testing.T) {
	start := time.Unix(1000, 0)
	var f inFlight
	w := newLearnedWindow(acceptedSpan{since: start, until: start.Add(time.Millisecond), n: 10}, time.Time{}, start.Add(time.Second), f.add())
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

// A claim that was to test the end of a window and is cancelled changes nothing: the next one tests
// it. So is the first request of a window after a hold counted.
func TestLearnedWindow_countsTheFirstRequestOfEachWindow(t *testing.T) {
	start := time.Unix(1000, 0)
	w := newLearnedWindow(acceptedSpan{since: start, until: start.Add(time.Millisecond), n: 10}, time.Time{}, start.Add(time.Second), 1)
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
	w := newLearnedWindow(acceptedSpan{since: start, until: start.Add(time.Millisecond), n: 10}, time.Time{}, start.Add(time.Second), 1)
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

// tenPerSecond returns a window of 10 requests per second after a stop that began a second before start.
// It began at start, with claim 1, which was accepted.
func tenPerSecond(start time.Time) learnedWindow {
	return newLearnedWindow(acceptedSpan{since: start.Add(-time.Second), until: start.Add(-time.Second + time.Millisecond), n: 10}, time.Time{}, start, 1)
}

// A stop shows a window if at least 8 requests were accepted before it, in a shorter time than it took,
// and if both took at most ten minutes.
func TestLearnedWindow_stopsThatShowOne(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		accepted        int64
		sending, waited time.Duration
		on              bool
	}{
		"a second":               {8, time.Millisecond, time.Second, true},
		"7 accepted":             {7, time.Millisecond, time.Second, false},
		"sent as long":           {8, time.Second, time.Second, true},
		"sent longer":            {8, time.Second + 1, time.Second, false},
		"a millisecond":          {8, 0, time.Millisecond, true},
		"less":                   {8, 0, time.Millisecond - 1, false},
		"ten minutes":            {8, time.Minute, 9 * time.Minute, true},
		"more than that":         {8, time.Minute, 9*time.Minute + 1, false},
		"the clock was set back": {8, -time.Second, 2 * time.Second, false},
	} {
		w := newLearnedWindow(acceptedSpan{since: start, until: start.Add(tt.sending), n: tt.accepted}, time.Time{}, start.Add(tt.sending+tt.waited), 1)
		require.Equal(t, tt.on, w.on(), name)
	}
	w := tenPerSecond(start)
	require.Equal(t, learnedWindow{
		limit: 10, confirmedLimit: 10, length: time.Second, minLength: time.Millisecond, maxLength: time.Second,
		start: start, reset: start.Add(time.Second), next: start.Add(time.Second / 10 / 7), used: 1, accepted: 1,
		windows: 1, boundary: start, stoppedAt: start.Add(-time.Second + time.Millisecond), acceptedSinceStop: 1,
	}, w)
}

// Windows have the longest usual length that is possible, or the longest possible one.
func TestLearnedWindow_usualLengths(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct{ minimum, maximum, want time.Duration }{
		{0, s, s}, {0, s - openingDelay, s}, {0, s - openingDelay - 1, s - openingDelay - 1}, {0, 4 * s, 2 * s}, {2 * s, 4 * s, 4 * s},
		{2*s - 1, 4 * s, 2 * s}, {0, 7 * s, 5 * s}, {20 * s, 25 * s, 25 * s}, {20 * s, 30 * s, 30 * s},
	} {
		require.Equal(t, tt.want, usualLengthWithin(tt.minimum, tt.maximum), "%+v", tt)
	}
}

// The requests of a window are sent in a seventh of it. Those of one that is confirmed are sent in a
// 24th, but at least 10 ms apart unless a seventh would not suffice for that. Those of a declared one are
// not spaced.
func TestLearnedWindow_spacesRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		w    learnedWindow
		want time.Duration
	}{
		"not confirmed": {learnedWindow{limit: 10, length: 7 * time.Second}, 100 * time.Millisecond},
		"maybe a ban":   {learnedWindow{limit: 10, length: 2 * time.Second, ban: true}, 100 * time.Millisecond},
		"no ban":        {learnedWindow{limit: 10, length: 24 * time.Second, ban: true, confirmed: true}, 100 * time.Millisecond},
		"confirmed":     {learnedWindow{limit: 10, length: 24 * time.Second, confirmed: true}, 100 * time.Millisecond},
		"10 ms apart":   {learnedWindow{limit: 10, length: time.Second, confirmed: true}, 10 * time.Millisecond},
		"just 10 ms":    {learnedWindow{limit: 10, length: 700 * time.Millisecond, confirmed: true}, 10 * time.Millisecond},
		"closer":        {learnedWindow{limit: 10, length: 480 * time.Millisecond, confirmed: true}, 2 * time.Millisecond},
		"declared":      {learnedWindow{limit: 10, length: time.Second, confirmed: true, declared: true}, 0},
	} {
		require.Equal(t, tt.want, tt.w.interval(), name)
	}
}

func TestNextMultiple(t *testing.T) {
	start := time.Unix(1000, 0)
	for now, want := range map[time.Duration]time.Duration{0: 5, 1: 5, 4: 5, 5: 10, 12: 15, -1: 0, -5: 0, -6: -5} {
		require.Equal(t, start.Add(want), nextMultiple(start.Add(now), start, 5), "%v", now)
	}
}

// Windows end on a grid of the server's clock, unless that would be in the first or last eighth of the
// window, or a probe has shown that they do not.
func TestLearnedWindow_endsOnAGrid(t *testing.T) {
	const ms = time.Millisecond
	boundary := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		after    time.Duration // since a boundary
		gridless bool
		end      time.Duration // since the boundary
	}{
		"at a boundary":           {0, false, 800 * ms},
		"in the first eighth":     {100 * ms, false, 900 * ms},
		"after it":                {101 * ms, false, 800 * ms},
		"before the last eighth":  {700*ms - 1, false, 800 * ms},
		"in the last eighth":      {700 * ms, false, 1500 * ms},
		"windows are on no grid":  {400 * ms, true, 1200 * ms},
		"two windows later":       {2000 * ms, false, 2400 * ms},
		"long before a boundary":  {-2000 * ms, false, -1600 * ms},
		"shortly before boundary": {-50 * ms, false, 750 * ms},
	} {
		w := learnedWindow{limit: 10, length: 800 * ms, boundary: boundary, gridless: tt.gridless, used: 7, accepted: 6, test: 5, windows: 3}
		now := boundary.Add(tt.after)
		w.begin(now, 9)
		require.Equal(t, boundary.Add(tt.end), w.reset, name)
		require.Equal(t, []uint64{8, 0}, []uint64{w.lastBefore, w.test}, name)
		require.Equal(t, []int64{0, 0, 4}, []int64{w.used, w.accepted, int64(w.windows)}, name)
		require.Equal(t, now, w.start, name)
		require.Equal(t, now.Add(w.interval()), w.next, name)
	}
}

// The next request of a window waits for its turn and, while the window is not confirmed, for others in
// flight. Beyond the limit it waits for the test, or for the end of the window.
func TestLearnedWindow_whenTheNextRequestIsSent(t *testing.T) {
	const ms = time.Millisecond
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		change func(*learnedWindow)
		at     time.Duration
		open   int64
		wait   time.Duration // 0: sent, or not before a response if open > 0
		ok     bool
	}{
		"its turn":                  {func(w *learnedWindow) {}, 15 * ms, 0, 0, true},
		"before it":                 {func(w *learnedWindow) {}, 0, 0, 100 * ms / 7, false},
		"four in flight":            {func(w *learnedWindow) {}, 15 * ms, 4, 0, false},
		"three in flight":           {func(w *learnedWindow) {}, 15 * ms, 3, 0, true},
		"four in flight, confirmed": {func(w *learnedWindow) { w.confirmed = true }, 15 * ms, 4, 0, true},
		"used up":                   {func(w *learnedWindow) { w.used, w.testAfter = 10, 1 }, 600 * ms, 0, 415 * ms, false},
		"its end":                   {func(w *learnedWindow) { w.used, w.testAfter = 10, 1 }, 1015 * ms, 0, 0, true},
		"the test is due":           {func(w *learnedWindow) { w.used = 10 }, 500 * ms, 0, 0, true},
		"a moment before the test":  {func(w *learnedWindow) { w.used = 10 }, 500*ms - 1, 0, 1, false},
		"a moment before its turn":  {func(w *learnedWindow) {}, 100*ms/7 - 1, 0, 1, false},
		"before the test":           {func(w *learnedWindow) { w.used = 10 }, 400 * ms, 0, 100 * ms, false},
		"a test at the end": {func(w *learnedWindow) {
			w.used, w.reset, w.limit, w.confirmedLimit, w.loweredAt, w.rejectedTests = 9, start.Add(4*time.Second), 9, 10, start, 1
		}, 50 * ms, 0, 1950 * ms, false},
		"a test after the end":          {func(w *learnedWindow) { w.used, w.limit, w.loweredAt, w.rejectedTests = 9, 9, start, 1 }, 50 * ms, 0, 965 * ms, false},
		"a test, others in flight":      {func(w *learnedWindow) { w.used = 10 }, 500 * ms, 1, 0, false},
		"the test is in flight":         {func(w *learnedWindow) { w.used, w.test = 9, 7 }, 600 * ms, 1, 0, false},
		"the test has ended":            {func(w *learnedWindow) { w.used, w.test = 9, 7 }, 600 * ms, 0, 0, true},
		"declared, no window has begun": {func(w *learnedWindow) { w.declared, w.start = true, time.Time{} }, 0, 5, 0, true},
		"declared, the window is over":  {func(w *learnedWindow) { w.declared = true }, 1000 * ms, 5, 0, true},
		"declared, used up":             {func(w *learnedWindow) { w.declared, w.confirmed, w.used, w.testAfter = true, true, 10, 9 }, 999 * ms, 0, ms, false},
		"no window":                     {func(w *learnedWindow) { w.limit = 0 }, 0, 5, 0, true},
	} {
		w := tenPerSecond(start)
		tt.change(&w)
		wait, ok := w.check(start.Add(tt.at), &inFlight{open: tt.open})
		require.Equal(t, tt.ok, ok, name)
		require.Equal(t, tt.wait, wait, name)
	}
}

// When a request is sent beyond the limit: in the middle of a window, or after a rejection has lowered the limit a second later, then after 2, 4, 8 ... seconds.
func TestLearnedWindow_whenItIsTested(t *testing.T) {
	const s = time.Second
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		length, lowered time.Duration
		limit           int64
		rejectedTests   int
		want            time.Duration
	}{
		"the middle":                        {10 * s, 0, 10, 0, 5 * s},
		"lowered":                           {10 * s, 2 * s, 9, 0, 3 * s},
		"lowered late":                      {10 * s, 6 * s, 9, 0, 5 * s},
		"lowered, a test was rejected":      {10 * s, 4 * s, 9, 1, 6 * s},
		"lowered, two were rejected":        {10 * s, 4 * s, 9, 2, 8 * s},
		"lowered, many were":                {10 * s, 4 * s, 9, 40, (4 + 4096) * s},
		"not lowered, a test was rejected ": {10 * s, 4 * s, 10, 2, 5 * s},
	} {
		w := learnedWindow{limit: tt.limit, confirmedLimit: 10, start: start, reset: start.Add(tt.length), loweredAt: start.Add(tt.lowered), rejectedTests: tt.rejectedTests}
		require.Equal(t, start.Add(tt.want), w.testAt(), name)
	}
	for name, tt := range map[string]struct {
		w    learnedWindow
		want bool
	}{
		"used up":            {learnedWindow{limit: 10, confirmedLimit: 10, used: 10, windows: 1}, true},
		"not used up":        {learnedWindow{limit: 10, confirmedLimit: 10, used: 9, windows: 1}, false},
		"tested":             {learnedWindow{limit: 10, confirmedLimit: 10, used: 10, windows: 1, test: 3}, false},
		"too few windows":    {learnedWindow{limit: 10, confirmedLimit: 10, used: 10, windows: 20, testAfter: 20}, false},
		"enough windows":     {learnedWindow{limit: 10, confirmedLimit: 10, used: 10, windows: 21, testAfter: 20}, true},
		"lowered":            {learnedWindow{limit: 9, confirmedLimit: 10, used: 9, windows: 1, testAfter: 20}, true},
		"beyond it already ": {learnedWindow{limit: 10, confirmedLimit: 10, used: 11, windows: 1}, false},
	} {
		require.Equal(t, tt.want, tt.w.testDue(), name)
	}
}

// Each granted claim is counted: as the first of a declared window, as the probe after the end, as the
// test beyond the limit, or as one of the window. A cancelled one is not.
func TestLearnedWindow_countsClaims(t *testing.T) {
	start := time.Unix(1000, 0)
	w := tenPerSecond(start)
	now := start.Add(50 * time.Millisecond)
	w.granted(2, now)
	require.EqualValues(t, 2, w.used)
	require.Equal(t, now.Add(time.Second/10/7), w.next)
	w.canceled(1) // of this window
	require.EqualValues(t, 1, w.used)
	w.lastBefore = 1
	w.canceled(1)
	require.EqualValues(t, 1, w.used, "of the window before")
	w.used = 10
	w.granted(12, now)
	require.EqualValues(t, []uint64{12, 11}, []uint64{w.test, uint64(w.used)})
	w.canceled(12)
	require.EqualValues(t, []uint64{0, 10}, []uint64{w.test, uint64(w.used)})
	w.granted(13, w.end().Add(-1))
	require.EqualValues(t, 13, w.test, "before the end")
	w.test, w.used = 0, 10
	w.granted(14, w.end())
	require.EqualValues(t, []uint64{14, 0, 10}, []uint64{w.probe, w.test, uint64(w.used)})
	w.canceled(14)
	require.EqualValues(t, []uint64{0, 10}, []uint64{w.probe, uint64(w.used)})
	w.used = 0
	w.canceled(13)
	require.Zero(t, w.used)

	w.declared, w.probe = true, 0
	w.granted(20, w.reset.Add(-1))
	require.EqualValues(t, 1, w.used)
	end := w.reset
	w.granted(21, end)
	require.EqualValues(t, []uint64{20, 1, 0}, []uint64{w.lastBefore, uint64(w.used), w.probe})
	require.Equal(t, end, w.start)
	w.start = time.Time{}
	w.granted(30, end)
	require.EqualValues(t, []uint64{29, 1}, []uint64{w.lastBefore, uint64(w.used)})
	var none learnedWindow
	none.granted(1, now)
	require.Equal(t, learnedWindow{}, none)
}

// An accepted test shows that there is no window, or that a lowered limit is not lower any more.
func TestLearnedWindow_acceptedTest(t *testing.T) {
	start := time.Unix(1000, 0)
	w := tenPerSecond(start)
	w.test = 12
	before := w.accepted
	require.Equal(t, beyondWindow, w.succeeded(12, start))
	require.Equal(t, before+1, w.accepted)
	w = learnedWindow{limit: 30, confirmedLimit: 40, test: 12, rejectedTests: 3}
	require.Equal(t, fitsWindow, w.succeeded(12, start))
	require.Equal(t, learnedWindow{limit: 40, confirmedLimit: 40, accepted: 1, acceptedSinceStop: 1}, w)
	w = learnedWindow{limit: 2, confirmedLimit: 7, lastBefore: 5}
	require.Equal(t, fitsWindow, w.succeeded(5, start))
	require.Zero(t, w.accepted, "of the window before")
	require.Equal(t, fitsWindow, w.succeeded(6, start))
	require.EqualValues(t, 1, w.accepted)
	var none learnedWindow
	require.Equal(t, fitsWindow, none.succeeded(7, start))
	require.Equal(t, learnedWindow{}, none)
}

// The probe that is accepted is the first request of the next window. If the end of the window before was
// estimated for a time at most a second before that, it is a boundary of the grid.
func TestLearnedWindow_acceptedProbe(t *testing.T) {
	start := time.Unix(1000, 0)
	for sent, boundary := range map[time.Duration]time.Duration{1100: 1000, 2000: 1000, 2001: 0} {
		w := tenPerSecond(start)
		w.probe = 7
		at := start.Add(sent * time.Millisecond)
		require.Equal(t, fitsWindow, w.succeeded(7, at))
		require.Equal(t, start.Add(boundary*time.Millisecond), w.boundary, "%d ms", sent)
		require.Equal(t, at, w.start)
		require.EqualValues(t, []uint64{0, 6, 1, 1, 2}, []uint64{w.probe, w.lastBefore, uint64(w.used), uint64(w.accepted), uint64(w.windows)})
		require.EqualValues(t, 2, w.acceptedSinceStop)
	}
}

// What a rejected claim shows. The window of 10 per second began at start.
func TestLearnedWindow_rejectedClaim(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(200 * time.Millisecond)
	for name, tt := range map[string]struct {
		change func(*learnedWindow)
		n      uint64
		want   func(*learnedWindow) // changes
		v      verdict
	}{
		"early: a bucket": {func(w *learnedWindow) { w.used, w.accepted, w.acceptedSinceStop = 5, 4, 4 }, 6, nil, fitsBucket},
		"the test": {func(w *learnedWindow) { w.used, w.test, w.windows = 11, 12, 3 }, 12, func(w *learnedWindow) {
			w.confirmed, w.windows, w.testAfter = true, 0, testEvery
		}, fitsWindow},
		"the test, of a lowered limit": {func(w *learnedWindow) { w.limit, w.test = 7, 12 }, 12, func(w *learnedWindow) {
			w.confirmed, w.windows, w.testAfter, w.confirmedLimit = true, 0, testEvery, 7
		}, fitsWindow},
		"the test, declared": {func(w *learnedWindow) { w.declared, w.limit, w.used, w.test = true, 7, 8, 12 }, 12, func(w *learnedWindow) {
			w.rejectedTests, w.test, w.used, w.loweredAt = 1, 0, 7, now
		}, fitsWindow},
		"of the window before":  {func(w *learnedWindow) { w.lastBefore = 6 }, 6, func(*learnedWindow) {}, fitsWindow},
		"sent with the test":    {func(w *learnedWindow) { w.used, w.test = 11, 12 }, 11, func(*learnedWindow) {}, fitsWindow},
		"it is used up already": {func(w *learnedWindow) { w.used, w.accepted = 10, 10 }, 11, func(*learnedWindow) {}, fitsWindow},
		"most were accepted":    {func(w *learnedWindow) { w.used, w.accepted, w.acceptedSinceStop = 10, 8, 8 }, 10, nil, fitsBucket},
		"confirmed": {func(w *learnedWindow) { w.used, w.accepted, w.confirmed = 4, 3, true }, 5, func(w *learnedWindow) {
			w.limit, w.used, w.loweredAt = 3, 3, now
		}, fitsWindow},
		"confirmed, none accepted": {func(w *learnedWindow) {
			w.used, w.accepted, w.acceptedSinceStop, w.confirmed, w.testAfter = 4, 0, 30, true, 20
		}, 5, nil, fitsBucket},
		"declared, none accepted": {func(w *learnedWindow) { w.used, w.accepted, w.confirmed, w.declared = 4, 0, true, true }, 5, func(w *learnedWindow) {
			w.limit, w.used, w.loweredAt = 1, 1, now
		}, fitsWindow},
	} {
		w := tenPerSecond(start)
		tt.change(&w)
		want := w
		require.Equal(t, tt.v, w.rejected(tt.n, now), name)
		if tt.want == nil {
			continue
		}
		tt.want(&want)
		require.Equal(t, want, w, name)
	}
	var none learnedWindow
	require.Equal(t, fitsWindow, none.rejected(1, now))
}

// A rejected probe shows that the window is longer. Beyond the longest possible length there is no
// window, unless the program was idle: then other clients may use it.
func TestLearnedWindow_rejectedProbe(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		reset, minLength, maxLength time.Duration // before
		after                       time.Duration
		wantReset, length, wantMin  time.Duration // afterwards; 0: there is no window
		gridless                    bool
	}{
		"not on the grid":          {600 * ms, ms, s, 650 * ms, s, s, ms, true},
		"at the longest":           {s, ms, s, s, 0, 0, 0, false},
		"beyond it":                {s, ms, s, 2*s - 1, 0, 0, 0, false},
		"idle":                     {s, ms, s, 2 * s, 3 * s, s, ms, false},
		"within the lengths":       {s, ms, 2500 * ms, 1500 * ms, 2 * s, 2 * s, 1500 * ms, false},
		"no usual length":          {s, ms, 2500 * ms, 2100 * ms, 2500 * ms, 2500 * ms, 2100 * ms, false},
		"shorter than the minimum": {s, 1800 * ms, 2500 * ms, 1500 * ms, 2 * s, 2 * s, 1800 * ms, false},
		"a little before the end":  {s, ms, 2500 * ms, 1990 * ms, 2005 * ms, 2 * s, 1990 * ms, false},
	} {
		w := tenPerSecond(start)
		w.probe, w.reset, w.minLength, w.maxLength = 7, start.Add(tt.reset), tt.minLength, tt.maxLength
		v := w.rejected(7, start.Add(tt.after))
		require.Zero(t, w.probe, name)
		require.Equal(t, tt.length == 0, v == fitsNothing, name)
		if v == fitsNothing {
			continue
		}
		require.Equal(t, fitsWindow, v, name)
		require.Equal(t, start.Add(tt.wantReset), w.reset, name)
		require.Equal(t, []time.Duration{tt.length, tt.wantMin, tt.maxLength}, []time.Duration{w.length, w.minLength, w.maxLength}, name)
		require.Equal(t, tt.gridless, w.gridless, name)
	}
}

// The rate of a bucket is what was accepted since the stop began. It is sure if that agrees with the rate
// of the window to a quarter; otherwise the higher one is a lower bound.
func TestLearnedWindow_rateOfABucket(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		accepted int64 // in one second, and one half more; the window was 100 per second
		rate     float64
		sure     bool
	}{
		"they agree":  {75, 100, true},
		"they do not": {74, 100, false},
		"faster":      {132, 132.5, true},
		"much faster": {133, 133.5, false},
	} {
		w := learnedWindow{confirmedLimit: 100, maxLength: time.Second, stoppedAt: start, acceptedSinceStop: tt.accepted}
		rate, sure := w.bucketRate(start.Add(time.Second))
		require.InDelta(t, tt.rate, rate, 1e-9, name)
		require.Equal(t, tt.sure, sure, name)
	}
	w := learnedWindow{confirmedLimit: 3, acceptedSinceStop: 1, stoppedAt: start}
	require.InDelta(t, 3000, w.rate(), 1e-9, "no length: at least a millisecond")
	require.InDelta(t, 1500, w.rateSinceStop(start), 1e-9)
}

// A stated hold begins a window, except for a declared one whose window is not over.
func TestLearnedWindow_holdEnds(t *testing.T) {
	start := time.Unix(1000, 0)
	w := tenPerSecond(start)
	w.declared, w.used = true, 5
	w.released(9, w.reset.Add(-1))
	require.Equal(t, []int64{5, 2, 2}, []int64{w.used, w.accepted, w.acceptedSinceStop})
	require.Equal(t, start, w.start)
	w.released(9, w.reset)
	require.Equal(t, []int64{1, 1, 3}, []int64{w.used, w.accepted, w.acceptedSinceStop})
	require.Equal(t, start.Add(time.Second), w.start)
}

// What is known of the rate when a window proves to be none.
func TestWindow_rateLoopThatFollows(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		v                  verdict
		stated             time.Duration
		accepted           int64 // since the stop, a second ago; the window was 20 in 2 s
		maxLength          time.Duration
		rate, goal, growth float64 // goal 0: none
		confirmed          bool
		plateau            float64 // 0: plateauFirst
	}{
		"a bucket":                   {v: fitsBucket, accepted: 10, rate: 10.5 * .99, goal: 10.5 * .99, confirmed: true},
		"a bucket, not sure":         {v: fitsBucket, accepted: 5, rate: 9.9, growth: .2},
		"a bucket, stated":           {v: fitsBucket, accepted: 10, stated: time.Second, rate: 10.5 * .99, goal: 10.5 * .99, confirmed: true},
		"a bucket, a long wait":      {v: fitsBucket, accepted: 10, stated: 11 * time.Second, rate: 10.5 * .99, goal: 10.5 * .99, confirmed: true},
		"beyond":                     {v: beyondWindow, rate: 9.9, growth: .2},
		"beyond, stated":             {v: beyondWindow, stated: 4 * time.Second, rate: .99 * 5, goal: .99 * 5, growth: .2},
		"beyond, a long wait":        {v: beyondWindow, stated: 11 * time.Second, rate: 9.9, growth: .2},
		"beyond, ten seconds":        {v: beyondWindow, stated: 10 * time.Second, rate: .99 * 2, goal: .99 * 2, growth: .2},
		"beyond, long stops":         {v: beyondWindow, maxLength: 10 * time.Second, rate: 1.98, growth: .5, plateau: 200},
		"beyond, three seconds":      {v: beyondWindow, maxLength: 3 * time.Second, rate: 20. / 3 * .99, growth: .2},
		"beyond, stops of a minute ": {v: beyondWindow, maxLength: time.Minute, rate: .33, growth: .5, plateau: 300},
	} {
		w := learnedWindow{limit: 15, confirmedLimit: 20, length: 2 * time.Second, maxLength: 2 * time.Second, stated: tt.stated, stoppedAt: now.Add(-time.Second), acceptedSinceStop: tt.accepted}
		if tt.maxLength > 0 {
			w.maxLength = tt.maxLength
		}
		l := w.rateLoop(tt.v, throttle.CauseUnstated, 9, now)
		require.InDelta(t, tt.rate, l.rate, 1e-9, name)
		if tt.goal > 0 {
			require.InDelta(t, tt.goal, l.goal, 1e-9, name)
		} else {
			require.False(t, l.hasGoal(), name)
		}
		require.InDelta(t, tt.growth, l.growth, 1e-9, name)
		require.Equal(t, tt.confirmed, l.confirmed, name)
		require.InDelta(t, cmp.Or(tt.plateau, plateauFirst), l.plateau, 1e-9, name)
		require.EqualValues(t, 9, l.lastSent, name)
	}
}

// The rejections of a stop describe the window: after a stated wait it is tested early, if no probe was
// rejected.
func TestWindow_describeStop(t *testing.T) {
	for name, tt := range map[string]struct {
		stated     time.Duration
		firstProbe bool
		testAfter  int
	}{
		"nothing is stated":    {0, true, 0},
		"stated":               {time.Second, true, statedTestAfter},
		"a probe was rejected": {time.Second, false, 0},
	} {
		for _, forbidden := range []bool{false, true} {
			var w learnedWindow
			w.describeStop(tt.stated, forbidden, tt.firstProbe)
			require.Equal(t, learnedWindow{stated: tt.stated, ban: forbidden, testAfter: tt.testAfter}, w, name)
		}
	}
}

// A declared window is never tested, and begins with its first request.
func TestWindow_declared(t *testing.T) {
	w := newDeclaredWindow(9, time.Minute)
	require.True(t, w.declared && w.confirmed && w.gridless && w.on())
	require.Equal(t, []int64{9, 9}, []int64{w.limit, w.confirmedLimit})
	require.Equal(t, []time.Duration{time.Minute, time.Minute}, []time.Duration{w.length, w.maxLength})
	require.Equal(t, math.MaxInt, w.testAfter)
}
