package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// limited returns a quota with a learned rate of 10 per second, which is used up at start. The first call that gave up
// did so a second before.
func limited(t *testing.T) *Quota {
	q := known(0)
	q.remember(at(-s)).Loop.BeginAt(throttle.CauseUnstated, 10/.99, q.InFlight.Sent, at(-s))
	require.False(t, q.GaveUp(at(-s)), "a trial begins after a second")
	q.Learned.trial.gaveUp = 0
	q.Learned.Loop.Next = at(100 * ms)
	require.False(t, reserve(q, start).OK)
	require.InDelta(t, 10, q.Learned.Loop.Rate, 1e-9)
	return q
}

// extra claims all extra requests that a trial grants at now, and answers the first bad of them with a rejection.
func extra(t *testing.T, q *Quota, bad int, now time.Time) (n int) {
	next, granted := q.Learned.Loop.Next, []throttle.Decision(nil)
	for d := reserve(q, now); d.OK; d = reserve(q, now) {
		require.Equal(t, "learned rate", d.Policy)
		granted = append(granted, d)
	}
	require.Equal(t, next, q.Learned.Loop.Next, "they do not count for the limit")
	for i, d := range granted {
		f := accepted
		if i < bad {
			f = bare
		}
		respond(q, d, f, now.Add(rtt))
	}
	return len(granted)
}

// A call that gives up because it waited for a learned limit begins a trial of four requests, or of as many as a tenth
// of the calls that gave up, at most eight.
func TestTrial_beginsWhenACallGivesUp(t *testing.T) {
	for gaveUp, want := range map[int]int{0: 0, 1: 4, 49: 4, 59: 5, 70: 7, 500: 8} {
		q := limited(t)
		q.Learned.trial.next = at(-1)
		for i := range gaveUp {
			if q.Learned.trial.next = at(1); i == gaveUp-1 {
				q.Learned.trial.next = start
			}
			require.Equal(t, i == gaveUp-1, q.GaveUp(start))
		}
		require.Equal(t, want, extra(t, q, 0, start), gaveUp)
	}
	for name, change := range map[string]func(q *Quota){
		"nothing is learned": func(q *Quota) { q.Learned = nil },
		"no limit":           func(q *Quota) { q.dropLoop(false, start) },
		"a declared limit":   func(q *Quota) { q.Declare(throttle.PerMinute(600)) },
		"StatedOnly":         func(q *Quota) { q.Account.Full = false },
		"soon after another": func(q *Quota) { q.Learned.trial.next = at(1) },
	} {
		q := limited(t)
		change(q)
		require.False(t, q.GaveUp(start), name)
	}
}

// The first trial that is accepted doubles the limit, the second drops it. Rejected ones leave it as it is, are repaid,
// and the pause before the next trial doubles from one second to 640 s.
func TestTrial_raisesAndDropsALimit(t *testing.T) {
	q := limited(t)
	now, trial := start, &q.Learned.trial
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 640, 640} {
		require.True(t, q.GaveUp(now), pause)
		rate := q.Learned.Loop.Rate
		require.Equal(t, 4, extra(t, q, 2, now), pause)
		require.InDelta(t, rate, q.Learned.Loop.Rate, 1e-9)
		require.InDelta(t, 500*ms, q.Learned.Loop.Next.Sub(now.Add(rtt)), float64(150*ms), "four requests, and the one before, are repaid")
		require.Equal(t, now.Add(rtt+pause*s), trial.next)
		require.False(t, q.GaveUp(trial.next.Add(-1)))
		now = trial.next
		q.Learned.Loop.Next, q.Learned.Loop.Rate = now.Add(100*ms), 10 // as if other requests had been sent
	}
	require.True(t, q.GaveUp(now))
	require.Equal(t, 4, extra(t, q, 1, now), "a quarter may be rejected")
	require.True(t, trial.raised)
	require.InDelta(t, 20, q.Learned.Loop.Rate, 1e-9)
	require.Equal(t, now.Add(rtt+640*s), trial.next)

	now = trial.next
	q.Learned.Loop.Next = now.Add(100 * ms)
	require.True(t, q.GaveUp(now))
	for range 4 {
		d := reserve(q, now)
		require.True(t, d.OK)
		defer func() { require.False(t, q.Learned != nil && q.Learned.Limits()) }()
		respond(q, d, accepted, now)
	}
	require.False(t, q.Learned.Limits(), "it is dropped")
	require.Equal(t, now.Add(640*s), q.Learned.trial.next, "the pause is kept for the next estimate")
	require.True(t, q.Ramp.On(now), "what has waited is sent at a growing rate")
}

// While a limit is raised, two rejections in a row restore it, or several if fewer than five times as many requests are
// accepted.
func TestTrial_rejectionsRestoreALimit(t *testing.T) {
	for name, tt := range map[string]struct {
		outcomes string // x: rejected, .: accepted
		restored bool
	}{
		"one": {"x", false}, "two": {"xx", true}, "with few accepted": {"x....xx", true}, "with many accepted": {"x.....x", false},
		"three": {"x.x.x", true}, "none": {"....................", false},
	} {
		q := limited(t)
		require.True(t, q.GaveUp(start))
		old := throttle.Decision{Grant: q.grant(1, start)}
		extra(t, q, 0, start)
		require.True(t, q.Learned.trial.raised)
		respond(q, old, bare, at(2*rtt))
		require.Zero(t, q.Learned.trial.score, "it was sent before the limit was raised")
		rate := q.Learned.Loop.Rate
		now := q.Learned.Loop.Next
		for _, o := range tt.outcomes {
			f := map[rune]throttle.Feedback{'x': bare, '.': accepted}[o]
			respond(q, throttle.Decision{Grant: q.grant(1, now)}, f, now)
		}
		require.Equal(t, tt.restored, !q.Learned.trial.raised, name)
		require.Equal(t, tt.restored, q.Learned.Loop.Rate < rate, name)
		if tt.restored {
			require.Equal(t, now.Add(s), q.Learned.trial.next, name)
			require.True(t, q.Learned.Limits())
		}
	}
}

// A learned window is raised and restored in the same way.
func TestTrial_raisesAWindow(t *testing.T) {
	q := known(0)
	q.remember(start).Window = tenPerSecond(start)
	q.Learned.Window.Used = 10
	q.GaveUp(at(-s))
	require.False(t, reserve(q, start).OK)
	require.True(t, q.GaveUp(start))
	var granted []throttle.Decision
	for range 4 {
		granted = append(granted, reserve(q, start))
		require.EqualValues(t, 10, q.Learned.Window.Used)
	}
	require.False(t, reserve(q, start).OK)
	for _, d := range granted {
		respond(q, d, accepted, at(rtt))
	}
	require.EqualValues(t, []int64{20, 20}, []int64{q.Learned.Window.Limit, q.Learned.Window.ConfirmedLimit})
	for range 2 {
		respond(q, throttle.Decision{Grant: q.grant(1, at(20*ms))}, bare, at(30*ms))
	}
	require.EqualValues(t, []int64{10, 10}, []int64{q.Learned.Window.Limit, q.Learned.Window.ConfirmedLimit})
}

// An extra request that was not sent, or whose caller gave up, shows nothing, and no limit has counted it. If all have
// ended so, the next trial begins after a second. Without responses for 30 s a trial ends as well.
func TestTrial_extraRequestsThatShowNothing(t *testing.T) {
	for _, sent := range []bool{true, false} {
		q := limited(t)
		require.True(t, q.GaveUp(start))
		rate := q.Learned.Loop
		for range 4 {
			d := reserve(q, start)
			require.True(t, d.OK)
			if sent {
				respond(q, d, canceled, at(rtt))
			} else {
				q.Canceled(d.Grant, 1)
			}
		}
		require.Equal(t, rate, q.Learned.Loop)
		q.GaveUp(at(2 * rtt))
		require.False(t, q.Learned.trial.on)
		require.Equal(t, at(s), q.Learned.trial.next.Truncate(s))
	}
	q := limited(t)
	require.True(t, q.GaveUp(start))
	require.True(t, reserve(q, start).OK)
	q.GaveUp(at(30*s - 1))
	require.True(t, q.Learned.trial.on, "a response is missing")
	q.GaveUp(at(30 * s))
	require.False(t, q.Learned.trial.on)
	require.False(t, q.Learned.trial.raised)
}

// A request that ends because its caller gave up while a limit delays requests is a call that gave up.
func TestTrial_aRequestThatWasSentTooLate(t *testing.T) {
	for _, learned := range []bool{true, false} {
		q := known(0)
		d := reserve(q, at(-s))
		if learned {
			q.remember(at(-s)).Loop.BeginAt(throttle.CauseUnstated, 10, q.InFlight.Sent, at(-s))
			q.GaveUp(at(-s))
		}
		respond(q, d, canceled, start)
		require.Equal(t, learned, q.Learned != nil && q.Learned.trial.on)
	}
}
