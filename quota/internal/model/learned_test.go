package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A window of 20 requests in 4 s that states nothing, or the end of its window.
type window struct {
	limit  int
	length time.Duration
	states bool
	end    time.Time
	used   int
}

func (w *window) respond(now time.Time) throttle.Feedback {
	if !now.Before(w.end) {
		w.end, w.used = now.Add(w.length), 0
	}
	if w.used++; w.used <= w.limit {
		return accepted
	}
	if w.states {
		return stated(w.end.Sub(now))
	}
	return bare
}

// play claims every step until a time, and lets w respond. It returns the rejections.
func (w *window) play(q *Quota, from, to time.Time, step time.Duration) (rejected int) {
	for now := from; now.Before(to); now = now.Add(step) {
		if d := reserve(q, now); d.OK {
			f := w.respond(now)
			if f.Outcome == throttle.Throttled {
				rejected++
			}
			respond(q, d, f, now.Add(step/2))
		}
	}
	return rejected
}

// A window or a rate is learned when the first right hold has ended that states no time, and not with one. StatedOnly
// learns nothing.
func TestQuota_learnsAfterARightHold(t *testing.T) {
	for name, tt := range map[string]struct {
		states, full bool
		want         bool
	}{"states nothing": {false, true, true}, "Retry-After": {true, true, false}, "StatedOnly": {false, false, false}} {
		q := known(0)
		q.Account.Full = tt.full
		w := &window{limit: 20, length: 4 * s, states: tt.states}
		ended, wasHeld := 0, false
		for now := start; now.Before(at(time.Minute)); now = now.Add(rtt) {
			w.play(q, now, now.Add(rtt), rtt)
			if wasHeld && !q.Hold.Held {
				ended++
			}
			wasHeld = q.Hold.Held
			if ended == 0 {
				require.False(t, q.Learned != nil && q.Learned.Limits(), "%s: no hold has ended", name)
			} else if ended == 1 || !tt.want {
				require.Equal(t, tt.want, q.Learned != nil && q.Learned.Limits(), "%s: after %d holds", name, ended)
			}
		}
		require.Positive(t, ended, name)
		if tt.want {
			require.LessOrEqual(t, w.play(q, at(time.Minute), at(3*time.Minute), rtt), 60, "of 600: trials are frequent at first")
			require.LessOrEqual(t, w.play(q, at(3*time.Minute), at(13*time.Minute), rtt), 90, "3 %% of 3000")
		}
	}
}

// One hold that a test has ended early, and a limit that the server states, show no learned limit.
func TestQuota_holdsThatShowNoLimit(t *testing.T) {
	limits := []statedlimit.Estimate{provenEstimate()}
	for name, tt := range map[string]struct {
		change   func(q *Quota)
		rejected int // tests of the hold
		before   int // accepted before
		want     bool
	}{
		"a right hold":         {func(*Quota) {}, 2, 40, true},
		"no test was rejected": {func(*Quota) {}, 0, 40, false},
		"one that is not proven": {func(q *Quota) {
			q.Estimates = []statedlimit.Estimate{{Limit: 1000, Remaining: 900, Reset: at(time.Hour)}}
		}, 2, 40, true},
		"a stated limit":         {func(q *Quota) { q.Estimates = limits }, 2, 40, false},
		"StatedOnly":             {func(q *Quota) { q.Account.Full = false }, 2, 40, false},
		"no memory":              {func(q *Quota) { q.Account.Memory.Store(MaxBytes); q.Learned = nil }, 2, 40, false},
		"nothing was accepted":   {func(q *Quota) { q.Span.N = 0 }, 2, 0, false},
		"a window is learned":    {func(q *Quota) { q.remember(start).Window = tenPerSecond(start) }, 2, 40, true},
		"a dropped quota":        {func(q *Quota) { q.Account.Memory.Release(q.DropAll()) }, 2, 40, false},
		"it was declared, right": {func(q *Quota) { q.Declare(throttle.PerMinute(600)) }, 2, 40, true},
	} {
		q := known(0)
		now := start
		for range tt.before {
			now = now.Add(rtt)
			require.True(t, exchange(q, now, accepted), name)
		}
		require.False(t, q.Learned != nil && q.Learned.Limits(), name)
		tt.change(q)
		if q.stop(now); q.Account.Full {
			q.rememberSpan(now)
		}
		for range tt.rejected {
			now = now.Add(10 * s)
			require.True(t, exchange(q, now, bare), name)
		}
		require.True(t, exchange(q, now.Add(20*s), accepted), name)
		require.False(t, q.Hold.Held, name)
		require.Equal(t, tt.want, q.Learned != nil && q.Learned.Limits(), name)
	}
}

// provenEstimate returns an estimate of which much is left for an hour, and with which a rejection has coincided.
func provenEstimate() statedlimit.Estimate {
	q := nothingLeft()
	exchange(q, at(ms), states(bare, usedUp(at(ms))))
	exchange(q, at(time.Minute), states(accepted, throttle.RemoteLimit{Limit: 10, Remaining: 9, ResetAfter: time.Hour}))
	e := q.Estimates[0]
	e.Limit, e.Remaining = 1000, 900
	return e
}

// What was learned is forgotten after fifty successes in a row if nothing is estimated.
func TestQuota_forgetsWhatItHasLearned(t *testing.T) {
	q := known(0)
	exchange(q, start, bare)
	require.NotNil(t, q.Learned)
	for i := range 49 {
		exchange(q, at(time.Duration(i+1)*2*rtt), accepted)
	}
	require.NotNil(t, q.Learned)
	exchange(q, at(50*2*rtt), accepted)
	require.Nil(t, q.Learned)
	require.Zero(t, q.Account.Memory.Load())
	exchange(q, at(s), bare)
	for i := range 60 {
		f := accepted
		if i%40 == 39 {
			f = failed
		}
		exchange(q, at(2*s+time.Duration(i)*2*rtt), f)
	}
	require.NotNil(t, q.Learned, "a failure begins the count anew")
}

// A learned window delays requests, and its rejections correct it. Those of requests that the quota did not grant do
// not concern it, nor those that a stated limit explains.
func TestQuota_rejectionsCorrectALearnedWindow(t *testing.T) {
	for name, tt := range map[string]struct {
		reject func(q *Quota)
		want   bool // the window has changed
	}{
		"a rejection":           {func(q *Quota) { exchange(q, at(100*ms), bare) }, true},
		"with a time":           {func(q *Quota) { exchange(q, at(100*ms), stated(s)) }, true},
		"not granted":           {func(q *Quota) { f := bare; q.RejectedElsewhere(&f, at(1500*ms)) }, false},
		"a limit is used up":    {func(q *Quota) { exchange(q, at(100*ms), states(bare, usedUp(at(100*ms)))) }, false},
		"a failure":             {func(q *Quota) { exchange(q, at(100*ms), failed) }, false},
		"a caller has given up": {func(q *Quota) { exchange(q, at(100*ms), canceled) }, false},
	} {
		q := known(0)
		q.remember(start).Window = tenPerSecond(start)
		tt.reject(q)
		w := tenPerSecond(start)
		require.Equal(t, tt.want, q.Learned.Window.Limit != w.Limit || q.Learned.Loop.On(), name)
		require.Equal(t, tt.want, q.Learned.Window.Length != w.Length || q.Learned.Window.Reset != w.Reset, name)
	}
}

// tenPerSecond returns a window of 10 requests per second after a stop that began a second before start.
// It began at start, with claim 1, which was accepted.
func tenPerSecond(start time.Time) learnedlimit.Window {
	return learnedlimit.NewWindow(learnedlimit.AcceptedSpan{Since: start.Add(-time.Second), Until: start.Add(-time.Second + time.Millisecond), N: 10}, time.Time{}, start, 1)
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
		w := q.Learned.Window
		require.Equal(t, []int64{tt.size, tt.size}, []int64{w.Limit, w.ConfirmedLimit}, name)
		require.Equal(t, tt.length, w.Length, name)
		require.True(t, w.Declared, name)
		require.Equal(t, LearnedBytes, q.Account.Memory.Load(), name)
	}
	q := modelAt(0)
	q.Account.Memory.Store(MaxBytes)
	q.Declare(throttle.PerMinute(600))
	require.Nil(t, q.Learned, "there is no memory")
}

// A declared limit holds until the server states how many requests are left.
func TestQuota_aStatementReplacesADeclaration(t *testing.T) {
	for unit, declared := range map[string]bool{"": false, "requests": false, "tokens": true} {
		q := known(0)
		q.Declare(throttle.PerMinute(600).WithBurst(2))
		require.True(t, exchange(q, start, states(accepted, throttle.RemoteLimit{Unit: unit, Limit: 100, Remaining: 99, ResetAfter: time.Minute})))
		require.Equal(t, declared, q.Learned.Window.Declared)
		require.True(t, exchange(q, at(rtt), accepted))
		d := reserve(q, at(2*rtt))
		require.Equal(t, !declared, d.OK)
		if declared {
			require.Equal(t, []any{"quota", true, false}, []any{d.Policy, d.ServerImposed, d.Estimated})
		}
	}
}

// The time from a claim to its response is measured of one claim at a time, and used within bounds.
func TestQuota_roundTrips(t *testing.T) {
	var r roundTrip
	require.Equal(t, 50*ms, r.Typical(), "before the first response")
	r.granted(1, start)
	r.granted(2, at(5*ms))
	r.ended(2, true, at(6*ms))
	require.Equal(t, 50*ms, r.Typical(), "1 is watched")
	r.ended(1, false, at(7*ms))
	r.granted(3, at(10*ms))
	r.ended(3, true, at(90*ms))
	require.Equal(t, 80*ms, r.Typical())
	r.granted(4, at(100*ms))
	r.ended(4, true, at(100*ms))
	require.InDelta(t, 70*ms, r.Typical(), float64(time.Microsecond))
	for typical, want := range map[time.Duration][2]time.Duration{0: {50 * ms, 50 * ms}, 1: {ms, ms}, 30 * ms: {30 * ms, 30 * ms}, s: {s, 250 * ms}} {
		r.typical = typical
		require.Equal(t, want, [2]time.Duration{r.Typical(), r.bounded()})
	}
}
