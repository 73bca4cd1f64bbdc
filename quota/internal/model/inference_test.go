package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/throttle"
)

// The time from a claim to its response is used within bounds, and assumed before the first response.
func TestQuota_roundTripIsBounded(t *testing.T) {
	q := modelAt(0)
	for typical, want := range map[time.Duration]time.Duration{
		0: 50 * time.Millisecond, 1: time.Millisecond, 30 * time.Millisecond: 30 * time.Millisecond, time.Second: 250 * time.Millisecond,
	} {
		q.Slow.Typical = typical
		require.Equal(t, want, q.roundTrip(), "%v", typical)
	}
}

// An inference begins with what was accepted before, as the quota or the caller has counted it. Without
// memory there is none.
func TestQuota_infersFromWhatWasAcceptedBefore(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := modelAt(0)
	q.SlowStart.Successes = 70
	q.Span = learnedlimit.AcceptedSpan{Since: now.Add(-4500 * time.Millisecond), N: 50}
	inf := q.infer(learnedlimit.AcceptedSpan{}, now)
	require.Equal(t, 50, inf.Evidence.N)
	require.Equal(t, 70, inf.Evidence.Total)
	require.InDelta(t, 10, inf.accepted.Highest(now), 1e-9)
	require.Same(t, inf, q.infer(learnedlimit.AcceptedSpan{Since: now, N: 9}, now))

	q = modelAt(0)
	before := learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), N: 9}
	inf = q.infer(before, now)
	require.Equal(t, 9, inf.Evidence.N)
	require.Equal(t, before, q.Span)
	require.Equal(t, inferenceBytes, q.Account.Memory.Load())

	q = modelAt(0)
	q.Span = learnedlimit.AcceptedSpan{Since: now.Add(time.Second), N: 9} // the clock was set back
	require.Equal(t, 9, q.infer(learnedlimit.AcceptedSpan{}, now).Evidence.N)
	for name, prepare := range map[string]func(*Quota){
		"no memory": func(q *Quota) { q.Account.Memory.Store(MaxBytes) },
		"dropped":   func(q *Quota) { q.Dropped = true },
	} {
		q = modelAt(0)
		prepare(q)
		require.Nil(t, q.infer(learnedlimit.AcceptedSpan{}, now), name)
	}
}

// After 50 successes in a row in which nothing was estimated, what was inferred is dropped, unless a loop
// has failed in the last minute.
func TestInference_isDroppedAfterSuccesses(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		change  func(*Quota)
		dropped bool
	}{
		"nothing estimated":            {func(q *Quota) {}, true},
		"a loop":                       {func(q *Quota) { q.Inference.Loop = learnedlimit.RateLoop{Cause: throttle.CauseUnstated, Rate: 1} }, false},
		"a window":                     {func(q *Quota) { q.Inference.Window = tenPerSecond(now) }, false},
		"a loop begins soon":           {func(q *Quota) { q.Inference.loopPending = true }, false},
		"a hold":                       {func(q *Quota) { q.Hold.Active = true }, false},
		"a bare 429 loop has failed":   {func(q *Quota) { q.Inference.nextEstimate[0] = now.Add(1) }, false},
		"a suspected cause has failed": {func(q *Quota) { q.Inference.nextEstimate[1] = now.Add(1) }, false},
		"that was a minute ago":        {func(q *Quota) { q.Inference.nextEstimate[1] = now }, true},
	} {
		q := modelAt(0)
		inf := q.infer(learnedlimit.AcceptedSpan{}, now)
		inf.successesInRow = 48
		tt.change(q)
		q.succeeded(1, now)
		require.Same(t, inf, q.Inference, "%s: the 49th", name)
		q.succeeded(2, now)
		require.Equal(t, tt.dropped, q.Inference == nil, name)
		if tt.dropped {
			require.Zero(t, q.Account.Memory.Load(), name)
		}
	}
}

// When a stop is probed. The first request was sent at 0 s; all times are in milliseconds.
func TestQuota_probesAtTheEndsOfUsualWindows(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for name, tt := range map[string]struct {
		random   float64
		hold     hold.Hold
		now      int
		spanless bool // nothing was accepted before
		loop     bool
		want     float64 // pause in ms; 0: the default
	}{
		"a second":               {now: 100, want: 915},
		"late":                   {random: 1, now: 100, want: 977.5},
		"never after a second":   {random: 1, now: 0, want: 1000},
		"too early, so two":      {now: 751, want: 1264},
		"not too early":          {now: 750, want: 265},
		"two seconds, late":      {random: 1, now: 800, want: 1340},
		"three":                  {now: 1900, want: 1115},
		"five":                   {now: 3000, want: 2015},
		"ten, late":              {random: 1, now: 5000, want: 5265},
		"twenty":                 {now: 10000, want: 10015},
		"thirty":                 {now: 20000, want: 10015},
		"a minute":               {now: 30000, want: 30015},
		"later":                  {now: 60000, want: 0},
		"a loop is on":           {now: 100, loop: true, want: 0},
		"nothing was accepted":   {now: 100, spanless: true, want: 0},
		"as the latest stop":     {hold: hold.Hold{LastPause: 4 * time.Second}, now: 100, want: 4000},
		"as the latest, late":    {random: 1, hold: hold.Hold{LastPause: 4 * time.Second}, now: 100, want: 4250},
		"the latest was short":   {hold: hold.Hold{LastPause: time.Second}, now: 100, want: 915},
		"the latest was long":    {hold: hold.Hold{LastPause: time.Hour}, now: 100, want: 60000},
		"a rejected probe":       {hold: hold.Hold{LastPause: 4 * time.Second, LastTotal: 9 * time.Second, Active: true, Rejections: 1, Since: at(100)}, now: 4100, want: 5000},
		"too near the total":     {hold: hold.Hold{LastPause: 4 * time.Second, LastTotal: 5 * time.Second, Active: true, Rejections: 1, Since: at(100)}, now: 4100, want: 915},
		"total, two probes":      {hold: hold.Hold{LastPause: 4 * time.Second, LastTotal: 9 * time.Second, Active: true, Rejections: 2, Since: at(100)}, now: 4100, want: 915},
		"total, short before":    {hold: hold.Hold{LastPause: time.Second, LastTotal: 9 * time.Second, Active: true, Rejections: 1, Since: at(100)}, now: 4100, want: 915},
		"total, at most a minte": {hold: hold.Hold{LastPause: 4 * time.Second, LastTotal: time.Hour, Active: true, Rejections: 1, Since: at(100)}, now: 4100, want: 60000},
	} {
		q := modelAt(tt.random)
		q.Hold = tt.hold
		q.Inference = &Inference{beforeStop: learnedlimit.AcceptedSpan{Since: start}}
		if tt.spanless {
			q.Inference.beforeStop = learnedlimit.AcceptedSpan{}
		}
		if tt.loop {
			q.Inference.Loop.Cause = throttle.CauseUnstated
		}
		require.InDelta(t, tt.want, float64(q.pauseOfStop(at(tt.now)))/1e6, 1e-6, name)
	}
	q := modelAt(0)
	require.Zero(t, q.pauseOfStop(start), "nothing is inferred")
}

// A stop begins with what was accepted before, ends a cut, and is followed by a loop unless one is on.
func TestQuota_stops(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, loop := range map[string]learnedlimit.RateLoop{"no loop": {}, "loop": {Cause: throttle.CauseUnstated, Rate: 1}} {
		q := modelAt(0)
		q.InFlight.Sent = 9
		q.Span = learnedlimit.AcceptedSpan{Since: now.Add(-100 * time.Millisecond), N: 30}
		q.Inference = &Inference{stopPending: true, Cut: concurrency.Cut{MaxInFlight: 4}, Loop: loop}
		q.stop(8, now)
		inf := q.Inference
		require.Equal(t, learnedlimit.AcceptedSpan{Since: q.Span.Since, Until: now, N: 30}, inf.beforeStop, name)
		require.Equal(t, !loop.On(), inf.loopPending, name)
		require.False(t, inf.stopPending, name)
		require.Equal(t, concurrency.Cut{}, inf.Cut, name)
		require.True(t, q.Hold.Active && q.Hold.Estimated, name)
		require.EqualValues(t, 9, q.Hold.LastSent, name)
		require.EqualValues(t, 15, q.Hold.InFlight, "%s: 300/s and 50 ms", name)
		until := q.Hold.Until
		q.Span.N = 99
		q.stop(10, now.Add(time.Second))
		require.EqualValues(t, 30, inf.beforeStop.N, "%s: the stop has begun already", name)
		require.True(t, q.Hold.Until.After(until), name)
		q.succeeded(9, now)
		require.EqualValues(t, 31, inf.beforeStop.N, "%s: it was in flight when the stop began", name)
		q.succeeded(10, now)
		require.EqualValues(t, 31, inf.beforeStop.N, name)
	}
}

// What the end of a hold begins.
func TestQuota_whatFollowsAHold(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	type before struct {
		n       int64   // accepted before the hold, from 0 s to .1 s
		stated  float64 // wait, in seconds
		probe   float64 // when a probe was rejected; 0: none was
		until   float64 // end of the hold
		sent    float64 // when the accepted probe was sent
		pending bool    // a loop was to begin
	}
	for name, tt := range map[string]struct {
		before
		window, loop bool
		length       time.Duration // of the window
	}{
		"a window":                 {before: before{n: 20, until: 1, sent: 1, pending: true}, window: true, length: time.Second},
		"a window, stated":         {before: before{n: 20, stated: 1, until: 1, sent: 1, pending: true}, window: true, length: time.Second},
		"stated, and a probe":      {before: before{n: 20, stated: 1, probe: 1, until: 2, sent: 2, pending: true}, window: true, length: 2 * time.Second},
		"few accepted":             {before: before{n: 7, until: 1, sent: 1, pending: true}, loop: true},
		"none accepted":            {before: before{until: 1, sent: 1, pending: true}},
		"the program was idle":     {before: before{n: 20, until: 1, sent: 2, pending: true}, loop: true},
		"it was not idle for long": {before: before{n: 20, until: 1, sent: 1.999, pending: true}, window: true, length: 2 * time.Second},
		"no evidence":              {before: before{n: 20, stated: 1, until: 1, sent: 1}},
	} {
		q := modelAt(0)
		b := tt.before
		q.Hold = hold.Hold{Until: at(b.until), RejectedAt: at(.1), InFlight: 30}
		if b.probe > 0 {
			q.Hold.RejectedAt = at(b.probe)
		}
		q.LastGranted, q.InFlight.Sent = at(b.sent), 50
		q.SlowStart.Successes = concurrency.KnownAfter
		q.Inference = &Inference{
			beforeStop: learnedlimit.AcceptedSpan{Since: at(0), Until: at(.1), N: b.n}, loopPending: b.pending,
			statedHold: time.Duration(b.stated * float64(time.Second)), Cut: concurrency.Cut{MaxInFlight: 4},
		}
		q.Inference.Evidence.Add(throttle.CauseUnstated, at(.1))
		q.released(at(b.sent).Add(20 * time.Millisecond))
		inf := q.Inference
		require.Equal(t, tt.window, inf.Window.On(), name)
		require.Equal(t, tt.loop, inf.Loop.On(), name)
		require.Zero(t, inf.Evidence.N, name)
		require.False(t, inf.loopPending, name)
		require.Zero(t, inf.statedHold, name)
		require.Equal(t, learnedlimit.AcceptedSpan{}, inf.beforeStop, name)
		if tt.window {
			require.Equal(t, tt.length, inf.Window.Length, name)
			require.Equal(t, at(b.sent), inf.Window.Start, name)
			require.Equal(t, concurrency.Cut{}, inf.Cut, name)
		}
		if tt.window || tt.loop {
			require.Zero(t, q.SlowStart.MaxInFlight, name)
		} else {
			require.EqualValues(t, 30, q.SlowStart.MaxInFlight, "%s: what was in flight before", name)
			q.SlowStart.CountSuccess(30, 4)
			require.EqualValues(t, 30, q.SlowStart.MaxInFlight, "%s: it does not grow at first", name)
		}
		if b.pending {
			require.Zero(t, q.Span, name)
		} else {
			require.Equal(t, learnedlimit.AcceptedSpan{Since: at(b.sent)}, q.Span, name)
		}
	}
	q := modelAt(0)
	q.released(start)
	require.Zero(t, q.SlowStart, "nothing is inferred")
	q.Inference, q.Hold.InFlight = new(Inference), 3
	q.released(start)
	require.EqualValues(t, 18, q.SlowStart.MaxInFlight, "at least as many as when a host becomes known")
}

// If a loop or a window is on when a hold ends, it goes on with the probe.
func TestQuota_estimatesGoOnAfterAHold(t *testing.T) {
	now := time.Unix(1000, 0)
	q := modelAt(0)
	q.LastGranted = now
	q.Inference = &Inference{Loop: learnedlimit.RateLoop{Cause: throttle.CauseUnstated, Rate: 1}}
	q.released(now)
	require.True(t, q.Inference.Loop.On())
	require.Zero(t, q.SlowStart.MaxInFlight)
	q.Inference = &Inference{Window: tenPerSecond(now.Add(-time.Hour))}
	q.InFlight.Sent = 9
	q.released(now)
	require.Equal(t, now, q.Inference.Window.Start)
}

// What is known of the rate when a window proves to be none.
func TestQuota_whatFollowsAWindow(t *testing.T) {
	now := time.Unix(1000, 0)
	q := modelAt(0)
	q.Inference = &Inference{Window: tenPerSecond(now)}
	q.updateWindow(learnedlimit.FitsWindow, 5, now)
	require.True(t, q.Inference.Window.On())
	q.InFlight.Sent = 9
	q.updateWindow(learnedlimit.FitsBucket, 5, now)
	require.False(t, q.Inference.Window.On())
	require.True(t, q.Inference.Loop.On())
	require.False(t, q.Inference.Loop.Counts(9, now.Add(time.Hour)), "it was sent before the loop began")
	q = modelAt(0)
	q.Inference = &Inference{Window: tenPerSecond(now)}
	q.updateWindow(learnedlimit.FitsNothing, 5, now)
	require.False(t, q.Inference.Window.On() || q.Inference.Loop.On())
	require.True(t, q.Hold.Active, "a stop")
}

// A loop that fails prevents estimates of causes of its class for a minute.
func TestQuota_dropsALoop(t *testing.T) {
	now := time.Unix(1000, 0)
	for cause, class := range map[throttle.Cause]int{throttle.CauseUnstated: 0, throttle.CauseUnavailable: 1, throttle.CauseDropped: 1} {
		for _, failed := range []bool{true, false} {
			q := modelAt(0)
			q.Inference = &Inference{Loop: learnedlimit.RateLoop{Cause: cause}, loopPending: true}
			q.Inference.Evidence.Add(cause, now)
			q.dropLoop(failed, now)
			var want [2]time.Time
			if failed {
				want[class] = now.Add(time.Minute)
			}
			require.Equal(t, want, q.Inference.nextEstimate, "%v", cause)
			require.False(t, q.Inference.Loop.On() || q.Inference.loopPending, "%v", cause)
			require.Zero(t, q.Inference.Evidence.N, "%v", cause)
		}
	}
}

// Whether a response that may be a rejection begins a stop or a trial. The quota has had 20 successes
// and, but for the first two cases, enough rejections or failures for one.
func TestQuota_suspects(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	const bare, failure, retryNow, forbidden = throttle.CauseUnstated, throttle.CauseUnavailable, throttle.CauseRetryNow, throttle.CauseForbidden
	stoppedBy403 := func(q *Quota) {
		q.Hold.Active, q.Hold.Estimated, q.Inference.Forbidden = true, true, true
	}
	for name, tt := range map[string]struct {
		before    int // responses of the cause before this one
		cause     throttle.Cause
		change    func(*Quota)
		ungranted bool
		unhealthy bool // the route
		stop      bool
		trial     bool
		throttled bool // the outcome
		added     bool // to the evidence
	}{
		"4 of 8":                        {before: 3, cause: bare, added: true},
		"5 of 10":                       {before: 4, cause: failure, added: true},
		"5 of 8":                        {before: 4, cause: bare, stop: true},
		"5 of 8, to be repeated now":    {before: 4, cause: retryNow, stop: true},
		"6 of 10":                       {before: 5, cause: failure, trial: true, throttled: true},
		"held":                          {before: 7, cause: bare, change: func(q *Quota) { q.Hold.Active = true }, added: true},
		"held, a failure":               {before: 7, cause: failure, change: func(q *Quota) { q.Hold.Active = true }, added: true},
		"held, not granted":             {before: 7, cause: bare, change: func(q *Quota) { q.Hold.Active = true }, ungranted: true},
		"not granted":                   {before: 7, cause: bare, ungranted: true, stop: true},
		"window":                        {before: 7, cause: bare, change: func(q *Quota) { q.Inference.Window.Limit = 9 }, added: true},
		"window, not granted":           {before: 7, cause: bare, change: func(q *Quota) { q.Inference.Window.Limit = 9 }, ungranted: true, stop: true},
		"window, a failure":             {before: 7, cause: failure, change: func(q *Quota) { q.Inference.Window.Limit = 9 }, added: true},
		"loop of the cause":             {before: 7, cause: failure, change: func(q *Quota) { q.Inference.Loop.Cause = failure }, throttled: true, added: true},
		"loop of another cause":         {before: 7, cause: failure, change: func(q *Quota) { q.Inference.Loop.Cause = bare }, added: true},
		"loop, not granted":             {before: 7, cause: failure, change: func(q *Quota) { q.Inference.Loop.Cause = failure }, ungranted: true},
		"loop, to be repeated now":      {before: 7, cause: retryNow, change: func(q *Quota) { q.Inference.Loop.Cause = bare }, throttled: true, added: true},
		"a loop failed":                 {before: 7, cause: bare, change: func(q *Quota) { q.Inference.nextEstimate[0] = now.Add(1) }, added: true},
		"a loop failed, another class":  {before: 7, cause: bare, change: func(q *Quota) { q.Inference.nextEstimate[1] = now.Add(1) }, stop: true},
		"a loop failed, a failure":      {before: 7, cause: failure, change: func(q *Quota) { q.Inference.nextEstimate[1] = now.Add(1) }, added: true},
		"4 of 8 are 403s":               {before: 3, cause: forbidden, added: true},
		"5 of 8 are 403s":               {before: 4, cause: forbidden, stop: true, throttled: true},
		"5 of 8, of an unhealthy route": {before: 4, cause: forbidden, unhealthy: true},
		"a 403 of an unhealthy route, during a stop by 403s": {before: 1, cause: forbidden, unhealthy: true, change: stoppedBy403, throttled: true},
		"403s of a known host":                               {before: 5, cause: forbidden, change: func(q *Quota) { q.SlowStart.Successes = concurrency.KnownAfter }, trial: true, throttled: true},
		"a 403 during a stop by 403s":                        {before: 1, cause: forbidden, change: stoppedBy403, throttled: true, added: true},
		"a 503 during a stop by 403s":                        {before: 1, cause: failure, change: stoppedBy403, added: true},
		"a 403 during a stop by 429s":                        {before: 1, cause: forbidden, change: func(q *Quota) { q.Hold.Active, q.Hold.Estimated = true, true }, added: true},
		"a 403 during a stated hold":                         {before: 1, cause: forbidden, change: func(q *Quota) { q.Hold.Active, q.Inference.Forbidden = true, true }, added: true},
		"a 403, window of 403s":                              {before: 1, cause: forbidden, change: func(q *Quota) { q.Inference.Window.Limit, q.Inference.Forbidden = 9, true }, throttled: true, added: true},
		"a 403, window of 429s":                              {before: 7, cause: forbidden, change: func(q *Quota) { q.Inference.Window.Limit = 9 }, added: true},
		"a loop failed, but not lately ":                     {before: 7, cause: failure, change: func(q *Quota) { q.Inference.nextEstimate[1] = now }, trial: true, throttled: true},
	} {
		q := modelAt(0)
		q.SlowStart.Successes, q.InFlight.Sent = 40, 9
		inf := q.infer(learnedlimit.AcceptedSpan{Since: now.Add(-6 * time.Second), N: 30}, now.Add(-time.Second))
		inf.successesInRow = 5
		kind := tt.cause
		if kind == retryNow {
			kind = bare
		}
		for range tt.before {
			inf.Evidence.Add(kind, now)
		}
		if tt.change != nil {
			tt.change(q)
		}
		before := inf.Evidence.N
		f := throttle.Feedback{Now: now, Cause: tt.cause, Outcome: throttle.Failed, RetryOnce: tt.cause == forbidden && !tt.unhealthy}
		require.Equal(t, tt.stop, q.Suspect(&f, learnedlimit.AcceptedSpan{}, !tt.ungranted, now), name)
		require.Equal(t, tt.stop, inf.stopPending, name)
		if tt.stop {
			require.Equal(t, tt.cause == forbidden, inf.Forbidden, name)
		}
		require.Equal(t, tt.trial, inf.Loop.Trial.Active, name)
		require.Equal(t, tt.throttled, f.Outcome == throttle.Throttled, name)
		require.Zero(t, inf.successesInRow, name)
		switch {
		case tt.stop, tt.trial:
			require.Zero(t, inf.Evidence.N, name)
		case tt.added:
			require.Equal(t, before+1, inf.Evidence.N, name)
		default:
			require.Equal(t, before, inf.Evidence.N, name)
		}
		if tt.trial {
			require.InDelta(t, .7*5, inf.Loop.Rate, 1, name)
			require.Equal(t, tt.cause, inf.Loop.Cause, name)
			require.False(t, inf.Loop.Counts(9, now.Add(time.Hour)), name)
		}
	}
	q := modelAt(0)
	q.Dropped = true
	f := throttle.Feedback{Now: now, Cause: bare}
	require.False(t, q.Suspect(&f, learnedlimit.AcceptedSpan{}, true, now), "nothing can be inferred")
}

// What the rejection of a claim for an estimated cause changes.
func TestQuota_rejectionsThatStateNothing(t *testing.T) {
	now := time.Unix(1000, 0)
	const bare, failure, forbidden = throttle.CauseUnstated, throttle.CauseUnavailable, throttle.CauseForbidden
	const stopped, cut, counted = "stopped", "cut", "counted"
	loop := func(c throttle.Cause) (l learnedlimit.RateLoop) {
		l.BeginAt(c, 10, 0, now)
		return l
	}
	for name, tt := range map[string]struct {
		cause  throttle.Cause
		change func(*Quota)
		want   string
	}{
		"no evidence":             {bare, func(q *Quota) {}, cut},
		"a failure":               {failure, func(q *Quota) {}, ""},
		"evidence":                {bare, func(q *Quota) { q.Inference.stopPending = true }, stopped},
		"evidence, a failure":     {failure, func(q *Quota) { q.Inference.stopPending = true }, ""},
		"the probe":               {bare, func(q *Quota) { q.Hold.Active, q.Hold.LastSent = true, 4 }, stopped},
		"before the hold":         {bare, func(q *Quota) { q.Hold.Active, q.Hold.LastSent = true, 5 }, ""},
		"a probe that failed":     {failure, func(q *Quota) { q.Hold.Active, q.Hold.LastSent = true, 4 }, ""},
		"evidence, a 403":         {forbidden, func(q *Quota) { q.Inference.stopPending = true }, ""},
		"evidence by 403s":        {forbidden, func(q *Quota) { q.Inference.stopPending, q.Inference.Forbidden = true, true }, stopped},
		"evidence by 403s, a 429": {bare, func(q *Quota) { q.Inference.stopPending, q.Inference.Forbidden = true, true }, stopped},
		"loop":                    {bare, func(q *Quota) { q.Inference.Loop = loop(bare) }, counted},
		"loop, a failure":         {failure, func(q *Quota) { q.Inference.Loop = loop(bare) }, ""},
		"loop of failures":        {failure, func(q *Quota) { q.Inference.Loop = loop(failure) }, counted},
		"loop of failures, a 429": {bare, func(q *Quota) { q.Inference.Loop = loop(failure) }, ""},
	} {
		q := modelAt(0)
		inf := q.infer(learnedlimit.AcceptedSpan{}, now)
		q.InFlight.Sent = 9
		tt.change(q)
		q.rejectedUnstated(5, tt.cause, now)
		require.Equal(t, tt.want == stopped, q.Hold.Rejections == 1, name)
		require.Equal(t, tt.want == cut, inf.Cut.MaxInFlight > 0, name)
		require.Equal(t, tt.want == counted, inf.Loop.On() && inf.Loop.Rate < 9.9, name)
	}
	q := modelAt(0)
	q.infer(learnedlimit.AcceptedSpan{}, now)
	q.Inference.Window = tenPerSecond(now)
	q.rejectedUnstated(5, bare, now)
	require.True(t, q.Inference.Loop.On(), "the window is a bucket")
	for _, by403s := range []bool{false, true} {
		q = modelAt(0)
		q.infer(learnedlimit.AcceptedSpan{}, now)
		q.Inference.Window, q.Inference.Forbidden = tenPerSecond(now), by403s
		q.rejectedUnstated(5, forbidden, now)
		require.Equal(t, by403s, q.Inference.Loop.On())
	}
	q = modelAt(0)
	q.Dropped = true
	q.rejectedUnstated(5, bare, now)
	require.Zero(t, q.Hold)
}

// A stop that 403s began is abandoned if a probe is rejected with a 403 after 14 s, but not one that
// bare 429s began, nor a wait that the server states.
func TestQuota_abandonsAStopBy403s(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		forbidden, estimated bool
		since                time.Duration
		abandoned            bool
	}{
		"403s":               {true, true, maxSuspectedStop, true},
		"403s, earlier":      {true, true, maxSuspectedStop - 1, false},
		"403s, stated since": {true, false, time.Hour, false},
		"bare 429s":          {false, true, time.Hour, false},
	} {
		q := modelAt(0)
		inf := q.infer(learnedlimit.AcceptedSpan{}, now)
		inf.Forbidden, inf.loopPending, inf.Window = tt.forbidden, true, tenPerSecond(now)
		q.InFlight.Sent, q.SlowStart.Successes = 9, concurrency.KnownAfter
		q.Hold = hold.Hold{Active: true, Estimated: tt.estimated, Since: now.Add(-tt.since), Rejections: 3, LastSent: 8, InFlight: 30}
		q.stop(9, now)
		require.Equal(t, !tt.abandoned, q.Hold.Active, name)
		require.Equal(t, !tt.abandoned, inf.loopPending, name)
		require.Equal(t, !tt.abandoned, inf.Window.On(), name)
		if tt.abandoned {
			require.Equal(t, hold.Hold{LastSent: 9, Abandoned: true}, q.Hold, name)
			require.Equal(t, now.Add(learnedlimit.NoEstimate), inf.nextEstimate[1], name)
			require.Zero(t, inf.nextEstimate[0], name)
			require.EqualValues(t, 30, q.SlowStart.MaxInFlight, "%s: those that waited are not sent together", name)
			require.False(t, inf.Limits(), name)
		}
	}
}

// The probes of a stop that 403s began: after 1, 5 and 15 s, unless an earlier ban is known.
func TestQuota_probesABanRarely(t *testing.T) {
	now := time.Unix(1000, 0)
	q := modelAt(0)
	inf := q.infer(learnedlimit.AcceptedSpan{}, now)
	inf.Forbidden, inf.beforeStop = true, learnedlimit.AcceptedSpan{Since: now.Add(-100 * time.Millisecond), N: 20}
	q.Hold.Rejections = 7
	require.Equal(t, time.Second, q.pauseOfStop(now), "probes of an earlier stop do not count")
	q.Hold.Active, q.Hold.Since = true, now
	for rejections, pause := range []time.Duration{time.Second, 4 * time.Second, 10 * time.Second, 10 * time.Second} {
		q.Hold.Rejections = rejections
		require.Equal(t, pause, q.pauseOfStop(now.Add(time.Second)), "%d", rejections)
	}
	q.Hold.Active, q.Hold.LastPause = false, 30*time.Second
	require.Equal(t, 30*time.Second, q.pauseOfStop(now))
}

// What a rejection with Retry-After shows: it counts as evidence, and lowers a learned rate.
func TestQuota_rejectionsThatStateAWait(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := modelAt(0)
	q.SlowStart.Successes = 40
	q.Span = learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), N: 30}
	for i := range 5 {
		n := q.InFlight.Add()
		q.Hold.Rejected(n, now, q.rejectionOf(2*time.Second, now))
		q.rejectedWithHold(n, time.Duration(2-i%2)*time.Second, now)
		require.Equal(t, i == 4, q.Inference.loopPending, "rejection %d", i+1)
		if i < 4 {
			require.Equal(t, learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), Until: now, N: 30}, q.Inference.beforeStop)
		}
		q.Span.N++
	}
	require.Equal(t, 2*time.Second, q.Inference.statedHold)
	require.EqualValues(t, 30, q.Inference.beforeStop.N, "before the hold")
	require.Zero(t, q.Inference.Evidence.N)

	for name, change := range map[string]func(*Quota){
		"a loop has failed": func(q *Quota) { q.Inference.nextEstimate[0] = now.Add(1) },
		"StatedOnly":        func(q *Quota) { q.Account.Full = false },
	} {
		q := modelAt(0)
		q.infer(learnedlimit.AcceptedSpan{}, now)
		change(q)
		for range 10 {
			q.rejectedWithHold(5, time.Second, now)
		}
		require.False(t, q.Inference.loopPending, name)
	}

	q = modelAt(0)
	inf := q.infer(learnedlimit.AcceptedSpan{}, now)
	inf.successesInRow = 9
	inf.Loop.BeginAt(throttle.CauseUnstated, 10, 4, now)
	q.rejectedWithHold(4, 5*time.Second, now)
	require.InDelta(t, 9.9, inf.Loop.Rate, 1e-9, "it was sent before the rate changed")
	require.Zero(t, inf.successesInRow)
	q.rejectedWithHold(5, 5*time.Second, now)
	require.Less(t, inf.Loop.Rate, 9.9)
	for n := uint64(10); inf.Loop.On(); n++ {
		require.Less(t, n, uint64(20))
		at := now.Add(time.Duration(n) * time.Second)
		inf.Loop.AddResponse(false, &inf.accepted, 0, n-1, at)
		q.rejectedWithHold(n, time.Second, at)
	}
	require.NotZero(t, inf.nextEstimate[0], "lower rates do not help")

	inf.Loop = learnedlimit.RateLoop{Cause: throttle.CauseUnavailable, Rate: 10, Goal: 9}
	q.rejectedWithHold(5, time.Second, now)
	require.InDelta(t, 10, inf.Loop.Rate, 1e-9, "of another cause")
	inf.Loop = learnedlimit.RateLoop{}
	inf.Window = tenPerSecond(now)
	q.rejectedWithHold(5, time.Second, now)
	require.True(t, inf.Loop.On(), "the window is a bucket")
	q = modelAt(0)
	q.Dropped = true
	q.rejectedWithHold(5, time.Second, now)
	require.Nil(t, q.Inference)
}

// A stop that 403s began is abandoned if the probe after 14 s is a 403, too. A 429 shows that requests are
// limited, so the stop continues.
func TestInference_only403sEndAStopThat403sBegan(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for _, cause := range []throttle.Cause{throttle.CauseForbidden, throttle.CauseUnstated} {
		q := modelAt(0)
		inf := q.infer(learnedlimit.AcceptedSpan{}, start)
		inf.Forbidden = true
		q.stop(q.InFlight.Add(), start)
		q.InFlight.End(q.InFlight.Sent)
		now := start.Add(maxSuspectedStop)
		d := reserve(q, now)
		require.True(t, d.OK)
		respond(q, d.Grant, throttle.Feedback{Outcome: throttle.Throttled, Cause: cause}, now)
		require.Equal(t, cause == throttle.CauseUnstated, q.Hold.Active)
	}
}

// tenPerSecond returns a window of 10 requests per second after a stop that began a second before start.
// It began at start, with claim 1, which was accepted.
func tenPerSecond(start time.Time) learnedlimit.Window {
	return learnedlimit.NewWindow(learnedlimit.AcceptedSpan{Since: start.Add(-time.Second), Until: start.Add(-time.Second + time.Millisecond), N: 10}, time.Time{}, start, 1)
}

// A rejection with Retry-After during a learned window counts against the window, and is no evidence.
func TestQuota_rejectionsOfALearnedWindowAreNoEvidence(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := modelAt(0)
	q.Inference = &Inference{Window: tenPerSecond(now)}
	q.Hold.Rejections = 1
	q.rejectedWithHold(1, time.Second, now)
	require.Zero(t, q.Inference.Evidence.N)
	require.Zero(t, q.Inference.statedHold)
	require.Equal(t, learnedlimit.AcceptedSpan{}, q.Inference.beforeStop)
	q = modelAt(0)
	q.Hold.Rejections = 1
	q.Span = learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), N: 4}
	q.Hold.RejectedAt = now
	q.rejectedWithHold(1, time.Second, now)
	require.Equal(t, 5, q.Inference.Evidence.N, "with the four that were accepted before")
	require.Equal(t, time.Second, q.Inference.statedHold)
	require.Equal(t, learnedlimit.AcceptedSpan{Since: q.Span.Since, Until: now, N: 4}, q.Inference.beforeStop)
}

// A trial of a suspected cause begins with 70 % of the latest accepted rate, at least with half of the best
// five seconds of the last minute.
func TestQuota_trialsBeginAboveAFloor(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for accepted, want := range map[int64]float64{100: 70, 80: 56, 60: 50, 10: 50} {
		q := modelAt(0)
		inf := q.infer(learnedlimit.AcceptedSpan{}, now)
		for i := range 5 {
			inf.accepted.Add(100, now.Add(time.Duration(i-40)*time.Second))
		}
		for i := range 5 {
			inf.accepted.Add(accepted, now.Add(time.Duration(i-5)*time.Second))
		}
		for range 30 {
			inf.Evidence.Add(learnedlimit.CauseSuccess, now.Add(-time.Second))
		}
		f := throttle.Feedback{Now: now, Outcome: throttle.Failed, Cause: throttle.CauseUnavailable}
		for range 6 {
			require.Equal(t, throttle.Failed, f.Outcome)
			require.False(t, q.Suspect(&f, learnedlimit.AcceptedSpan{}, true, now))
		}
		require.Equal(t, throttle.Throttled, f.Outcome)
		require.InDelta(t, want, inf.Loop.Rate, 1e-9, accepted)
	}
}

// What is declared is a window of as many requests as the burst allows, if that is fewer.
func TestQuota_declaresBursts(t *testing.T) {
	for name, tt := range map[string]struct {
		limit  throttle.Limit
		size   int64
		length time.Duration
	}{
		"no burst":      {throttle.PerMinute(600), 600, time.Minute},
		"a burst":       {throttle.PerMinute(600).WithBurst(10), 10, time.Second},
		"of one":        {throttle.PerMinute(600).WithBurst(1), 1, 100 * time.Millisecond},
		"of all":        {throttle.PerMinute(600).WithBurst(600), 600, time.Minute},
		"more than all": {throttle.PerMinute(600).WithBurst(601), 600, time.Minute},
		"rounded up":    {throttle.Limit{Count: 3, Per: time.Second, Burst: 1}, 1, 333333334},
	} {
		q := modelAt(0)
		q.Declare(tt.limit)
		w := q.Inference.Window
		require.Equal(t, []int64{tt.size, tt.size}, []int64{w.Limit, w.ConfirmedLimit}, name)
		require.Equal(t, tt.length, w.Length, name)
		require.True(t, w.Declared, name)
		require.Equal(t, inferenceBytes, q.Account.Memory.Load(), name)
	}
	q := modelAt(0)
	q.Account.Memory.Store(MaxBytes)
	q.Declare(throttle.PerMinute(600))
	require.Nil(t, q.Inference, "there is no memory")
}
