package learnedlimit

import (
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/statedlimit"
)

// The length of the window is the longest usual length between the last rejected probe and the accepted
// one. Times are in seconds from the first request.
func TestWindow_isInferredFromAStop(t *testing.T) {
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
		w := NewWindow(AcceptedSpan{Since: at(0), Until: at(tt.stopped), N: tt.accepted}, rejected, at(tt.probed), 200)
		require.Equal(t, tt.limit, w.Limit, name)
		require.Equal(t, tt.length, w.Length, name)
		require.Equal(t, tt.minLength, w.minLength, name)
		require.Equal(t, tt.maxLength, w.maxLength, name)
		if tt.limit > 0 {
			require.EqualValues(t, 1, w.Used, name)
			require.Equal(t, at(tt.probed), w.Start, name)
		}
	}
}

// A stop whose probe was accepted immediately shows no window.
func TestWindow_needsTime(t *testing.T) {
	now := time.Unix(1000, 0)
	w := NewWindow(AcceptedSpan{Since: now, Until: now, N: 100}, time.Time{}, now, 1)
	require.False(t, w.On())
}

// A probe that failed, and so was neither accepted nor rejected, is followed by another one.
func TestWindow_doesNotWaitForAFailedProbe(t *testing.T) {
	start := time.Unix(1000, 0)
	var f inflight.Claims
	w := NewWindow(AcceptedSpan{Since: start, Until: start.Add(time.Millisecond), N: 10}, time.Time{}, start.Add(time.Second), f.Add())
	f.End(1)
	end := w.Reset.Add(statedlimit.OpeningDelay)
	_, ok := w.Check(end, &f)
	require.True(t, ok)
	n := f.Add()
	w.Granted(n, end)
	_, ok = w.Check(end, &f)
	require.False(t, ok, "the probe is in flight")
	f.End(n) // the probe failed
	_, ok = w.Check(end, &f)
	require.True(t, ok)
}

// A claim that was to test the end of a window and is cancelled changes nothing: the next one tests
// it. So is the first request of a window after a hold counted.
func TestWindow_countsTheFirstRequestOfEachWindow(t *testing.T) {
	start := time.Unix(1000, 0)
	w := NewWindow(AcceptedSpan{Since: start, Until: start.Add(time.Millisecond), N: 10}, time.Time{}, start.Add(time.Second), 1)
	var f inflight.Claims
	now := w.Reset.Add(statedlimit.OpeningDelay)
	before := w
	n := f.Add()
	w.Granted(n, now)
	_, ok := w.Check(now, &f)
	require.False(t, ok, "the end of the window is being tested")
	f.End(n)
	w.Canceled(n)
	require.Equal(t, before, w)
	n = f.Add()
	w.Granted(n, now)
	f.End(n)
	require.Equal(t, FitsWindow, w.Succeeded(n, now))
	require.EqualValues(t, 1, w.Used)
	require.EqualValues(t, 1, w.Accepted)
	total := w.acceptedSinceStop
	n = f.Add()
	w.Released(n, now.Add(time.Hour))
	require.EqualValues(t, 1, w.Used)
	require.EqualValues(t, 1, w.Accepted)
	require.Equal(t, total+1, w.acceptedSinceStop)
}

// While a request is sent beyond the limit, no other one is in flight, so that its response shows
// something.
func TestWindow_testsTheLimitAlone(t *testing.T) {
	start := time.Unix(1000, 0)
	w := NewWindow(AcceptedSpan{Since: start, Until: start.Add(time.Millisecond), N: 10}, time.Time{}, start.Add(time.Second), 1)
	w.Used, w.windows = w.Limit, w.testAfter+1
	at := w.testAt()
	f := inflight.Claims{Open: 1}
	wait, ok := w.Check(at, &f)
	require.False(t, ok, "a request of the window is in flight")
	require.Zero(t, wait)
	f.Open = 0
	_, ok = w.Check(at, &f)
	require.True(t, ok)
	w.Granted(100, at)
	f.Open = 1
	wait, ok = w.Check(at, &f)
	require.False(t, ok, "the test is in flight")
	require.Zero(t, wait, "until its response has come")
}

// tenPerSecond returns a window of 10 requests per second after a stop that began a second before start.
// It began at start, with claim 1, which was accepted.
func tenPerSecond(start time.Time) Window {
	return NewWindow(AcceptedSpan{Since: start.Add(-time.Second), Until: start.Add(-time.Second + time.Millisecond), N: 10}, time.Time{}, start, 1)
}

// A stop shows a window if at least 8 requests were accepted before it, in a shorter time than it took,
// and if both took at most ten minutes.
func TestWindow_stopsThatShowOne(t *testing.T) {
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
		w := NewWindow(AcceptedSpan{Since: start, Until: start.Add(tt.sending), N: tt.accepted}, time.Time{}, start.Add(tt.sending+tt.waited), 1)
		require.Equal(t, tt.on, w.On(), name)
	}
	w := tenPerSecond(start)
	require.Equal(t, Window{
		Limit: 10, ConfirmedLimit: 10, Length: time.Second, minLength: time.Millisecond, maxLength: time.Second,
		Start: start, Reset: start.Add(time.Second), next: start.Add(time.Second / 10 / 7), Used: 1, Accepted: 1,
		windows: 1, boundary: start, stoppedAt: start.Add(-time.Second + time.Millisecond), acceptedSinceStop: 1,
	}, w)
}

// Windows have the longest usual length that is possible, or the longest possible one.
func TestWindow_usualLengths(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct{ minimum, maximum, want time.Duration }{
		{0, s, s}, {0, s - statedlimit.OpeningDelay, s}, {0, s - statedlimit.OpeningDelay - 1, s - statedlimit.OpeningDelay - 1}, {0, 4 * s, 2 * s}, {2 * s, 4 * s, 4 * s},
		{2*s - 1, 4 * s, 2 * s}, {0, 7 * s, 5 * s}, {20 * s, 25 * s, 25 * s}, {20 * s, 30 * s, 30 * s},
	} {
		require.Equal(t, tt.want, usualLengthWithin(tt.minimum, tt.maximum), "%+v", tt)
	}
}

// The requests of a window are sent in a seventh of it. Those of one that is confirmed are sent in a
// 24th, but at least 10 ms apart unless a seventh would not suffice for that. Those of a declared one are
// not spaced.
func TestWindow_spacesRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		w    Window
		want time.Duration
	}{
		"not confirmed": {Window{Limit: 10, Length: 7 * time.Second}, 100 * time.Millisecond},
		"confirmed":     {Window{Limit: 10, Length: 24 * time.Second, confirmed: true}, 100 * time.Millisecond},
		"10 ms apart":   {Window{Limit: 10, Length: time.Second, confirmed: true}, 10 * time.Millisecond},
		"just 10 ms":    {Window{Limit: 10, Length: 700 * time.Millisecond, confirmed: true}, 10 * time.Millisecond},
		"closer":        {Window{Limit: 10, Length: 480 * time.Millisecond, confirmed: true}, 2 * time.Millisecond},
		"declared":      {Window{Limit: 10, Length: time.Second, confirmed: true, Declared: true}, 0},
	} {
		require.Equal(t, tt.want, tt.w.interval(), name)
	}
}

// Windows end on a grid of the server's clock, unless that would be in the first or last eighth of the
// window, or a probe has shown that they do not.
func TestWindow_endsOnAGrid(t *testing.T) {
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
		w := Window{Limit: 10, Length: 800 * ms, boundary: boundary, gridless: tt.gridless, Used: 7, Accepted: 6, test: 5, windows: 3}
		now := boundary.Add(tt.after)
		w.begin(now, 9)
		require.Equal(t, boundary.Add(tt.end), w.Reset, name)
		require.Equal(t, []uint64{8, 0}, []uint64{w.lastBefore, w.test}, name)
		require.Equal(t, []int64{0, 0, 4}, []int64{w.Used, w.Accepted, int64(w.windows)}, name)
		require.Equal(t, now, w.Start, name)
		require.Equal(t, now.Add(w.interval()), w.next, name)
	}
}

// The next request of a window waits for its turn and, while the window is not confirmed, for others in
// flight. Beyond the limit it waits for the test, or for the end of the window.
func TestWindow_whenTheNextRequestIsSent(t *testing.T) {
	const ms = time.Millisecond
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		change func(*Window)
		at     time.Duration
		open   int64
		wait   time.Duration // 0: sent, or not before a response if open > 0
		ok     bool
	}{
		"its turn":                  {func(w *Window) {}, 15 * ms, 0, 0, true},
		"before it":                 {func(w *Window) {}, 0, 0, 100 * ms / 7, false},
		"four in flight":            {func(w *Window) {}, 15 * ms, 4, 0, false},
		"three in flight":           {func(w *Window) {}, 15 * ms, 3, 0, true},
		"four in flight, confirmed": {func(w *Window) { w.confirmed = true }, 15 * ms, 4, 0, true},
		"used up":                   {func(w *Window) { w.Used, w.testAfter = 10, 1 }, 600 * ms, 0, 415 * ms, false},
		"its end":                   {func(w *Window) { w.Used, w.testAfter = 10, 1 }, 1015 * ms, 0, 0, true},
		"the test is due":           {func(w *Window) { w.Used = 10 }, 500 * ms, 0, 0, true},
		"a moment before the test":  {func(w *Window) { w.Used = 10 }, 500*ms - 1, 0, 1, false},
		"a moment before its turn":  {func(w *Window) {}, 100*ms/7 - 1, 0, 1, false},
		"before the test":           {func(w *Window) { w.Used = 10 }, 400 * ms, 0, 100 * ms, false},
		"a test at the end": {func(w *Window) {
			w.Used, w.Reset, w.Limit, w.ConfirmedLimit, w.loweredAt, w.rejectedTests = 9, start.Add(4*time.Second), 9, 10, start, 1
		}, 50 * ms, 0, 1950 * ms, false},
		"a test after the end":          {func(w *Window) { w.Used, w.Limit, w.loweredAt, w.rejectedTests = 9, 9, start, 1 }, 50 * ms, 0, 965 * ms, false},
		"a test, others in flight":      {func(w *Window) { w.Used = 10 }, 500 * ms, 1, 0, false},
		"the test is in flight":         {func(w *Window) { w.Used, w.test = 9, 7 }, 600 * ms, 1, 0, false},
		"the test has ended":            {func(w *Window) { w.Used, w.test = 9, 7 }, 600 * ms, 0, 0, true},
		"declared, no window has begun": {func(w *Window) { w.Declared, w.Start = true, time.Time{} }, 0, 5, 0, true},
		"declared, the window is over":  {func(w *Window) { w.Declared = true }, 1000 * ms, 5, 0, true},
		"declared, used up":             {func(w *Window) { w.Declared, w.confirmed, w.Used, w.testAfter = true, true, 10, 9 }, 999 * ms, 0, ms, false},
		"no window":                     {func(w *Window) { w.Limit = 0 }, 0, 5, 0, true},
	} {
		w := tenPerSecond(start)
		tt.change(&w)
		wait, ok := w.Check(start.Add(tt.at), &inflight.Claims{Open: tt.open})
		require.Equal(t, tt.ok, ok, name)
		require.Equal(t, tt.wait, wait, name)
	}
}

// When a request is sent beyond the limit: in the middle of a window, or after a rejection has lowered the limit a second later, then after 2, 4, 8 ... seconds.
func TestWindow_whenItIsTested(t *testing.T) {
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
		w := Window{Limit: tt.limit, ConfirmedLimit: 10, Start: start, Reset: start.Add(tt.length), loweredAt: start.Add(tt.lowered), rejectedTests: tt.rejectedTests}
		require.Equal(t, start.Add(tt.want), w.testAt(), name)
	}
	for name, tt := range map[string]struct {
		w    Window
		want bool
	}{
		"used up":            {Window{Limit: 10, ConfirmedLimit: 10, Used: 10, windows: 1}, true},
		"not used up":        {Window{Limit: 10, ConfirmedLimit: 10, Used: 9, windows: 1}, false},
		"tested":             {Window{Limit: 10, ConfirmedLimit: 10, Used: 10, windows: 1, test: 3}, false},
		"too few windows":    {Window{Limit: 10, ConfirmedLimit: 10, Used: 10, windows: 20, testAfter: 20}, false},
		"enough windows":     {Window{Limit: 10, ConfirmedLimit: 10, Used: 10, windows: 21, testAfter: 20}, true},
		"lowered":            {Window{Limit: 9, ConfirmedLimit: 10, Used: 9, windows: 1, testAfter: 20}, true},
		"beyond it already ": {Window{Limit: 10, ConfirmedLimit: 10, Used: 11, windows: 1}, false},
	} {
		require.Equal(t, tt.want, tt.w.testDue(), name)
	}
}

// Each granted claim is counted: as the first of a declared window, as the probe after the end, as the
// test beyond the limit, or as one of the window. A cancelled one is not.
func TestWindow_countsClaims(t *testing.T) {
	start := time.Unix(1000, 0)
	w := tenPerSecond(start)
	now := start.Add(50 * time.Millisecond)
	w.Granted(2, now)
	require.EqualValues(t, 2, w.Used)
	require.Equal(t, now.Add(time.Second/10/7), w.next)
	w.Canceled(1) // of this window
	require.EqualValues(t, 1, w.Used)
	w.lastBefore = 1
	w.Canceled(1)
	require.EqualValues(t, 1, w.Used, "of the window before")
	w.Used = 10
	w.Granted(12, now)
	require.EqualValues(t, []uint64{12, 11}, []uint64{w.test, uint64(w.Used)})
	w.Canceled(12)
	require.EqualValues(t, []uint64{0, 10}, []uint64{w.test, uint64(w.Used)})
	w.Granted(13, w.end().Add(-1))
	require.EqualValues(t, 13, w.test, "before the end")
	w.test, w.Used = 0, 10
	w.Granted(14, w.end())
	require.EqualValues(t, []uint64{14, 0, 10}, []uint64{w.probe, w.test, uint64(w.Used)})
	w.Canceled(14)
	require.EqualValues(t, []uint64{0, 10}, []uint64{w.probe, uint64(w.Used)})
	w.Used = 0
	w.Canceled(13)
	require.Zero(t, w.Used)

	w.Declared, w.probe = true, 0
	w.Granted(20, w.Reset.Add(-1))
	require.EqualValues(t, 1, w.Used)
	end := w.Reset
	w.Granted(21, end)
	require.EqualValues(t, []uint64{20, 1, 0}, []uint64{w.lastBefore, uint64(w.Used), w.probe})
	require.Equal(t, end, w.Start)
	w.Start = time.Time{}
	w.Granted(30, end)
	require.EqualValues(t, []uint64{29, 1}, []uint64{w.lastBefore, uint64(w.Used)})
	var none Window
	none.Granted(1, now)
	require.Equal(t, Window{}, none)
}

// An accepted test shows that there is no window, or that a lowered limit is not lower any more.
func TestWindow_acceptedTest(t *testing.T) {
	start := time.Unix(1000, 0)
	w := tenPerSecond(start)
	w.test = 12
	before := w.Accepted
	require.Equal(t, BeyondWindow, w.Succeeded(12, start))
	require.Equal(t, before+1, w.Accepted)
	w = Window{Limit: 30, ConfirmedLimit: 40, test: 12, rejectedTests: 3}
	require.Equal(t, FitsWindow, w.Succeeded(12, start))
	require.Equal(t, Window{Limit: 40, ConfirmedLimit: 40, Accepted: 1, acceptedSinceStop: 1}, w)
	w = Window{Limit: 2, ConfirmedLimit: 7, lastBefore: 5}
	require.Equal(t, FitsWindow, w.Succeeded(5, start))
	require.Zero(t, w.Accepted, "of the window before")
	require.Equal(t, FitsWindow, w.Succeeded(6, start))
	require.EqualValues(t, 1, w.Accepted)
	var none Window
	require.Equal(t, FitsWindow, none.Succeeded(7, start))
	require.Equal(t, Window{}, none)
}

// The probe that is accepted is the first request of the next window. If the end of the window before was
// estimated for a time at most a second before that, it is a boundary of the grid.
func TestWindow_acceptedProbe(t *testing.T) {
	start := time.Unix(1000, 0)
	for sent, boundary := range map[time.Duration]time.Duration{1100: 1000, 2000: 1000, 2001: 0} {
		w := tenPerSecond(start)
		w.probe = 7
		at := start.Add(sent * time.Millisecond)
		require.Equal(t, FitsWindow, w.Succeeded(7, at))
		require.Equal(t, start.Add(boundary*time.Millisecond), w.boundary, "%d ms", sent)
		require.Equal(t, at, w.Start)
		require.EqualValues(t, []uint64{0, 6, 1, 1, 2}, []uint64{w.probe, w.lastBefore, uint64(w.Used), uint64(w.Accepted), uint64(w.windows)})
		require.EqualValues(t, 2, w.acceptedSinceStop)
	}
}

// What a rejected claim shows. The window of 10 per second began at start.
func TestWindow_rejectedClaim(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(200 * time.Millisecond)
	for name, tt := range map[string]struct {
		change func(*Window)
		n      uint64
		want   func(*Window) // changes
		v      Verdict
	}{
		"early: a bucket": {func(w *Window) { w.Used, w.Accepted, w.acceptedSinceStop = 5, 4, 4 }, 6, nil, FitsBucket},
		"the test": {func(w *Window) { w.Used, w.test, w.windows = 11, 12, 3 }, 12, func(w *Window) {
			w.confirmed, w.windows, w.testAfter = true, 0, testEvery
		}, FitsWindow},
		"the test, of a lowered limit": {func(w *Window) { w.Limit, w.test = 7, 12 }, 12, func(w *Window) {
			w.confirmed, w.windows, w.testAfter, w.ConfirmedLimit = true, 0, testEvery, 7
		}, FitsWindow},
		"the test, declared": {func(w *Window) { w.Declared, w.Limit, w.Used, w.test = true, 7, 8, 12 }, 12, func(w *Window) {
			w.rejectedTests, w.test, w.Used, w.loweredAt = 1, 0, 7, now
		}, FitsWindow},
		"of the window before":  {func(w *Window) { w.lastBefore = 6 }, 6, func(*Window) {}, FitsWindow},
		"sent with the test":    {func(w *Window) { w.Used, w.test = 11, 12 }, 11, func(*Window) {}, FitsWindow},
		"it is used up already": {func(w *Window) { w.Used, w.Accepted = 10, 10 }, 11, func(*Window) {}, FitsWindow},
		"most were accepted":    {func(w *Window) { w.Used, w.Accepted, w.acceptedSinceStop = 10, 8, 8 }, 10, nil, FitsBucket},
		"confirmed": {func(w *Window) { w.Used, w.Accepted, w.confirmed = 4, 3, true }, 5, func(w *Window) {
			w.Limit, w.Used, w.loweredAt = 3, 3, now
		}, FitsWindow},
		"confirmed, none accepted": {func(w *Window) {
			w.Used, w.Accepted, w.acceptedSinceStop, w.confirmed, w.testAfter = 4, 0, 30, true, 20
		}, 5, nil, FitsBucket},
		"declared, none accepted": {func(w *Window) { w.Used, w.Accepted, w.confirmed, w.Declared = 4, 0, true, true }, 5, func(w *Window) {
			w.Limit, w.Used, w.loweredAt = 1, 1, now
		}, FitsWindow},
	} {
		w := tenPerSecond(start)
		tt.change(&w)
		want := w
		require.Equal(t, tt.v, w.Rejected(tt.n, now), name)
		if tt.want == nil {
			continue
		}
		tt.want(&want)
		require.Equal(t, want, w, name)
	}
	var none Window
	require.Equal(t, FitsWindow, none.Rejected(1, now))
}

// A rejected probe shows that the window is longer. Beyond the longest possible length there is no
// window, unless the program was idle: then other clients may use it.
func TestWindow_rejectedProbe(t *testing.T) {
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
		w.probe, w.Reset, w.minLength, w.maxLength = 7, start.Add(tt.reset), tt.minLength, tt.maxLength
		v := w.Rejected(7, start.Add(tt.after))
		require.Zero(t, w.probe, name)
		require.Equal(t, tt.length == 0, v == FitsNothing, name)
		if v == FitsNothing {
			continue
		}
		require.Equal(t, FitsWindow, v, name)
		require.Equal(t, start.Add(tt.wantReset), w.Reset, name)
		require.Equal(t, []time.Duration{tt.length, tt.wantMin, tt.maxLength}, []time.Duration{w.Length, w.minLength, w.maxLength}, name)
		require.Equal(t, tt.gridless, w.gridless, name)
	}
}

// The rate of a bucket is what was accepted since the stop began. It is sure if that agrees with the rate
// of the window to a quarter; otherwise the higher one is a lower bound.
func TestWindow_rateOfABucket(t *testing.T) {
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
		w := Window{ConfirmedLimit: 100, maxLength: time.Second, stoppedAt: start, acceptedSinceStop: tt.accepted}
		rate, sure := w.bucketRate(start.Add(time.Second))
		require.InDelta(t, tt.rate, rate, 1e-9, name)
		require.Equal(t, tt.sure, sure, name)
	}
	w := Window{ConfirmedLimit: 3, acceptedSinceStop: 1, stoppedAt: start}
	require.InDelta(t, 3000, w.rate(), 1e-9, "no length: at least a millisecond")
	require.InDelta(t, 1500, w.rateSinceStop(start), 1e-9)
}

// A stated hold begins a window, except for a declared one whose window is not over.
func TestWindow_holdEnds(t *testing.T) {
	start := time.Unix(1000, 0)
	w := tenPerSecond(start)
	w.Declared, w.Used = true, 5
	w.Released(9, w.Reset.Add(-1))
	require.Equal(t, []int64{5, 2, 2}, []int64{w.Used, w.Accepted, w.acceptedSinceStop})
	require.Equal(t, start, w.Start)
	w.Released(9, w.Reset)
	require.Equal(t, []int64{1, 1, 3}, []int64{w.Used, w.Accepted, w.acceptedSinceStop})
	require.Equal(t, start.Add(time.Second), w.Start)
}

// What is known of the rate when a window proves to be none.
func TestWindow_rateLoopThatFollows(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		v                  Verdict
		stated             time.Duration
		accepted           int64 // since the stop, a second ago; the window was 20 in 2 s
		maxLength          time.Duration
		rate, goal, growth float64 // goal 0: none
		confirmed          bool
		plateau            float64 // 0: plateauFirst
	}{
		"a bucket":                   {v: FitsBucket, accepted: 10, rate: 10.5 * .99, goal: 10.5 * .99, confirmed: true},
		"a bucket, not sure":         {v: FitsBucket, accepted: 5, rate: 9.9, growth: .2},
		"a bucket, stated":           {v: FitsBucket, accepted: 10, stated: time.Second, rate: 10.5 * .99, goal: 10.5 * .99, confirmed: true},
		"a bucket, a long wait":      {v: FitsBucket, accepted: 10, stated: 11 * time.Second, rate: 10.5 * .99, goal: 10.5 * .99, confirmed: true},
		"beyond":                     {v: BeyondWindow, rate: 9.9, growth: .2},
		"beyond, stated":             {v: BeyondWindow, stated: 4 * time.Second, rate: .99 * 5, goal: .99 * 5, growth: .2},
		"beyond, a long wait":        {v: BeyondWindow, stated: 11 * time.Second, rate: 9.9, growth: .2},
		"beyond, ten seconds":        {v: BeyondWindow, stated: 10 * time.Second, rate: .99 * 2, goal: .99 * 2, growth: .2},
		"beyond, long stops":         {v: BeyondWindow, maxLength: 10 * time.Second, rate: 1.98, growth: .5, plateau: 200},
		"beyond, three seconds":      {v: BeyondWindow, maxLength: 3 * time.Second, rate: 20. / 3 * .99, growth: .2},
		"beyond, stops of a minute ": {v: BeyondWindow, maxLength: time.Minute, rate: .33, growth: .5, plateau: 300},
	} {
		w := Window{Limit: 15, ConfirmedLimit: 20, Length: 2 * time.Second, maxLength: 2 * time.Second, stated: tt.stated, stoppedAt: now.Add(-time.Second), acceptedSinceStop: tt.accepted}
		if tt.maxLength > 0 {
			w.maxLength = tt.maxLength
		}
		l := w.RateLoop(tt.v, 9, now)
		require.InDelta(t, tt.rate, l.Rate, 1e-9, name)
		if tt.goal > 0 {
			require.InDelta(t, tt.goal, l.Goal, 1e-9, name)
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
		var w Window
		w.DescribeStop(tt.stated, tt.firstProbe)
		require.Equal(t, Window{stated: tt.stated, testAfter: tt.testAfter}, w, name)
	}
}

// A declared window is never tested, and begins with its first request.
func TestWindow_declared(t *testing.T) {
	w := NewDeclaredWindow(9, time.Minute)
	require.True(t, w.Declared && w.confirmed && w.gridless && w.On())
	require.Equal(t, []int64{9, 9}, []int64{w.Limit, w.ConfirmedLimit})
	require.Equal(t, []time.Duration{time.Minute, time.Minute}, []time.Duration{w.Length, w.maxLength})
	require.Equal(t, math.MaxInt, w.testAfter)
}

func TestNextMultiple(t *testing.T) {
	start := time.Unix(1000, 0)
	for now, want := range map[time.Duration]time.Duration{0: 5, 1: 5, 4: 5, 5: 10, 12: 15, -1: 0, -5: 0, -6: -5} {
		require.Equal(t, start.Add(want), nextMultiple(start.Add(now), start, 5), "%v", now)
	}
}
