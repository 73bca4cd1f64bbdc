package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// The rate of guesses grows by a quarter with each one that is accepted until one is rejected, and by less afterwards; in a round trip
// by as much as with one, however many are in flight. Rejections of those that were in flight lower it once.
func TestGuesses_rate(t *testing.T) {
	of := func(rate float64, lowered bool) *guesses { return &guesses{rate: rate, lowered: lowered} }
	for name, tt := range map[string]struct {
		g    *guesses
		trip time.Duration
		want float64
	}{
		"the first":             {of(4, false), 0, 5},
		"far away":              {of(4, false), s, 4.25},
		"after a rejection":     {of(64, true), 0, 65},
		"rare, after it":        {of(1, true), 0, 1.125},
		"very rare":             {of(.25, true), 0, .3125},
		"after it, far away":    {of(64, true), s, 64 + 1./64},
		"at most":               {of(999, false), 0, 1000},
		"one in the round trip": {of(2, false), 500 * ms, 2.5},
	} {
		tt.g.accepted(tt.trip)
		require.InDelta(t, tt.want, tt.g.rate, 1e-9, name)
	}
	g := guesses{rate: 10}
	g.rejected(4, 7, start)
	require.InDelta(t, 6, g.rate, 1e-9)
	require.True(t, g.lowered)
	require.Equal(t, at(s/6).Round(ms), g.next.Round(ms), "and the next one is not sent before")
	g.rejected(7, 9, start)
	require.InDelta(t, 6, g.rate, 1e-9, "it was in flight")
	g.rejected(8, 9, start)
	require.InDelta(t, 3.6, g.rate, 1e-9)
	for n := range uint64(100) {
		g.rejected(10+n, 9+n, start)
	}
	require.InDelta(t, 1./64, g.rate, 1e-9, "at least")
}

// Guesses are sent at their rate. After a time without any, the first waits for half of an interval, and two may follow each other at most.
func TestGuesses_areSpread(t *testing.T) {
	var g guesses
	g.begin(start)
	require.Equal(t, s/2, g.dueIn(start))
	require.Zero(t, g.dueIn(at(s/2)))
	g.sent(at(s / 2))
	require.Equal(t, s, g.dueIn(at(s/2)))
	g.begin(at(2 * s))
	g.sent(at(2 * s))
	require.Equal(t, s/2, g.dueIn(at(2*s)), "the pause counts for half of an interval")
	g.begin(at(10 * s))
	require.Equal(t, s/2, g.dueIn(at(10*s)), "a long one does not")
}

// rounded returns a quota with a limit that is proven and used up at start, as it states in resolution: its reset is after the time reset.
func roundedQuota(reset, resolution time.Duration) (*Quota, throttle.RemoteLimit) {
	q := known(0)
	l := throttle.RemoteLimit{Limit: 10, Remaining: 0, ResetAfter: reset, Resolution: resolution}
	d := reserve(q, at(-2*rtt))
	respond(q, d, states(accepted, l), at(-rtt))
	q.Estimates[0].UpdateByResponse(l, number(d.Grant)+1, true, false, false, start, &q.InFlight)
	q.LastGranted = start
	return q, l
}

// While all that is known of a wait is that it ends within the second to which its reset is rounded, guesses are sent instead of tests.
func TestQuota_guesses(t *testing.T) {
	q, l := roundedQuota(s, s)
	require.True(t, q.Estimates[0].Proven())
	require.Equal(t, s/2, dryRun(q, start).Wait, "nothing is changed")
	require.Equal(t, s/2, reserve(q, start).Wait)
	guess := reserve(q, at(s/2))
	require.True(t, guess.OK)
	require.False(t, q.Testing())
	require.NotZero(t, guess.Grant&guessBit)
	require.EqualValues(t, 1, inFlight(guess.Grant))
	require.False(t, reserve(q, at(s/2)).OK, "the next one is due after an interval")
	chances := q.tests.chances
	respond(q, guess, states(accepted, l), at(s/2+rtt))
	require.InDelta(t, 1.25, q.guesses.rate, 1e-9, "none is left, and one was accepted")
	require.Equal(t, chances+2, q.tests.chances, "as after an accepted test")
	require.True(t, q.Estimates[0].Proven(), "rounding explains it")

	q, l = roundedQuota(s, s)
	reserve(q, start)
	guess = reserve(q, at(s/2))
	l.Remaining, l.ResetAfter = 9, time.Minute
	respond(q, guess, states(accepted, l), at(s/2+rtt))
	require.InDelta(t, 1, q.guesses.rate, 1e-9, "a new window has begun")

	q, l = roundedQuota(s, s)
	reserve(q, start)
	guess = reserve(q, at(s/2))
	respond(q, guess, states(bare, l), at(s/2+rtt))
	require.InDelta(t, .6, q.guesses.rate, 1e-9)

	q, _ = roundedQuota(s, s)
	reserve(q, start)
	guess = reserve(q, at(s/2))
	q.Canceled(guess.Grant, 1)
	require.InDelta(t, 1, q.guesses.rate, 1e-9, "it was not sent")
}

// What is stated exactly, is not proven, or ends much later than rounding explains, is tested as other waits are; with NeverTest nothing is.
func TestQuota_guessesOnlyWhatIsRounded(t *testing.T) {
	for name, tt := range map[string]struct {
		reset, resolution time.Duration
		change            func(*Quota)
		guessed           bool
	}{
		"seconds":      {s, s, func(*Quota) {}, true},
		"Unix time":    {s, 2 * s, func(*Quota) {}, true},
		"milliseconds": {s, ms, func(*Quota) {}, false},
		"a minute":     {time.Minute, s, func(*Quota) {}, false},
		"never tested": {s, s, func(q *Quota) { q.Account.NeverTest = true }, false},
		"not proven": {s, s, func(q *Quota) {
			q.Estimates = q.Estimates[:0]
			q.Update([]throttle.RemoteLimit{{Limit: 10, ResetAfter: s, Resolution: s}}, 0, start)
		}, false},
		"own choice":      {s, s, func(q *Quota) { q.Estimates[0].Remaining = 5; q.Account.Pacing.Headroom = .9 }, false},
		"another process": {s, s, func(q *Quota) { q.FetchUntil = at(time.Minute) }, false},
	} {
		q, _ := roundedQuota(tt.reset, tt.resolution)
		tt.change(q)
		reserve(q, start)
		d := reserve(q, at(s/2))
		require.Equal(t, tt.guessed, d.OK && d.Grant&guessBit != 0, name)
	}
}
