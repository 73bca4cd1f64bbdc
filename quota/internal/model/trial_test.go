package model

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// limited returns a quota with a learned rate of 10 per second, for which claims have waited since start.
func limited(t *testing.T) *Quota {
	q := known(0)
	q.remember(start).Loop.BeginAt(throttle.CauseUnstated, 10/.99, q.InFlight.Sent, start)
	require.False(t, reserve(q, start).OK)
	require.InDelta(t, 10, q.Learned.Loop.Rate, 1e-9)
	return q
}

// demand claims as often as q grants it, each millisecond, and responds after a millisecond until then or stop.
func demand(q *Quota, from, until time.Time, rejects func() bool, stop func() bool) (now time.Time, good, bad int) {
	for now = from; now.Before(until) && !stop(); now = now.Add(ms) {
		d := reserve(q, now)
		if !d.OK {
			continue
		}
		if rejects() {
			bad++
			respond(q, d, again(bare), now.Add(ms))
		} else {
			good++
			respond(q, d, throttle.Feedback{Repeated: true}, now.Add(ms))
		}
	}
	return now, good, bad
}

// A trial begins when claims have waited for 10 s, or for one second if a call gives up.
func TestTrial_begins(t *testing.T) {
	q := limited(t)
	reserve(q, at(10*s-1))
	require.False(t, q.Learned.trial.on)
	require.False(t, q.GaveUp(at(10*s-1)), "after another second")
	q.Learned.Loop.Next = at(11 * s)
	reserve(q, at(10*s))
	require.True(t, q.Learned.trial.on)
	require.InDelta(t, 20, q.Learned.Loop.Rate, 1e-9)

	q = limited(t)
	require.False(t, q.GaveUp(start))
	require.False(t, q.GaveUp(at(s-1)))
	require.True(t, q.GaveUp(at(s)))

	for name, change := range map[string]func(q *Quota){
		"nothing is learned":   func(q *Quota) { q.Learned = nil },
		"no limit":             func(q *Quota) { q.dropLoop(false, start) },
		"a declared limit":     func(q *Quota) { q.Declare(throttle.PerMinute(600)) },
		"StatedOnly":           func(q *Quota) { q.Account.Full = false },
		"the rate is on test":  func(q *Quota) { q.Learned.test.Measure(1, 0, true, 0, start); q.Learned.test.Begin() },
		"a trial":              func(q *Quota) { q.tryLearned(false, at(10*s)) },
		"soon after another":   func(q *Quota) { q.Learned.trial.next = at(time.Hour) },
		"a window is not used": func(q *Quota) { w := tenPerSecond(at(10 * s)); *q.Learned = Learned{Window: w} },
	} {
		q := limited(t)
		change(q)
		require.False(t, q.GaveUp(at(10*s)), name)
	}
}

// A limit that is right is restored after few rejected requests, and the pause before the next trial grows from 10 to
// 640 s. So trials have few requests rejected.
func TestTrial_restoresALimitThatIsRight(t *testing.T) {
	q := limited(t)
	trial, random, now := &q.Learned.trial, rand.New(rand.NewPCG(1, 2)), start
	for _, pause := range []time.Duration{10, 40, 160, 640, 640} {
		trial.next = now
		require.True(t, q.tryLearned(false, now))
		require.InDelta(t, 20, q.Learned.Loop.Rate, 1e-9)
		end, _, bad := demand(q, now, now.Add(time.Minute), func() bool { return random.IntN(2) == 0 }, func() bool { return !trial.on })
		require.False(t, trial.on)
		require.LessOrEqual(t, bad, 24)
		require.InDelta(t, 10, q.Learned.Loop.Rate, 1e-9, "it is as before")
		if trial.pause == 0 { // half of them were accepted by chance
			q.Learned.Loop.Rate, q.Learned.Loop.Goal = 10, 10
			continue
		}
		require.Equal(t, pause*s, trial.pause)
		require.InDelta(t, pause*s, trial.next.Sub(end), float64(s))
		now = trial.next
	}
}

// A limit that is too low is doubled every ten seconds.
func TestTrial_raisesALimitThatIsTooLow(t *testing.T) {
	q := limited(t)
	for i, rate := range []float64{20, 40, 80} {
		now := at(10*s + time.Duration(i)*10*s)
		if i == 0 {
			require.True(t, q.tryLearned(false, now))
		}
		demand(q, now, now.Add(10*s), never, never)
		require.GreaterOrEqual(t, q.Learned.Loop.Rate, rate)
	}
}

// Responses to requests that were sent before a trial do not count, and a trial without enough of them ends: the limit
// is as before, and the pause is not longer.
func TestTrial_withoutAResult(t *testing.T) {
	q := limited(t)
	old := throttle.Decision{Grant: q.grant(1, at(9*s))}
	require.True(t, q.tryLearned(false, at(10*s)))
	respond(q, old, again(bare), at(10*s+rtt))
	require.Zero(t, q.Learned.trial.score)
	until := q.Learned.trial.until
	require.InDelta(t, 10*s, until.Sub(at(10*s)), float64(s))
	require.False(t, q.tryLearned(false, until))
	require.True(t, q.Learned.trial.on)
	require.False(t, q.tryLearned(false, until.Add(1)))
	require.False(t, q.Learned.trial.on)
	require.InDelta(t, 10, q.Learned.Loop.Rate, 1e-9)
	require.Equal(t, until.Add(10*s+1), q.Learned.trial.next)
	require.Zero(t, q.Learned.trial.pause)
}

// A learned window is doubled and restored in the same way, when it is used up: only requests beyond it count.
func TestTrial_raisesAWindow(t *testing.T) {
	for name, rejects := range map[string]bool{"right": true, "too low": false} {
		q := known(0)
		q.remember(start).Window = tenPerSecond(start)
		w := &q.Learned.Window
		w.Used = 9
		q.Learned.trial.next = start
		require.False(t, q.tryLearned(true, start), "it is not used up")
		w.Used = 10
		require.False(t, q.tryLearned(false, start), "no call has given up")
		require.True(t, q.tryLearned(true, start))
		require.EqualValues(t, []int64{20, 20}, []int64{w.Limit, w.ConfirmedLimit})
		for i := range 10 {
			f, now := accepted, at(time.Duration(i)*20*ms)
			if rejects {
				f = again(bare)
			}
			if rejects && i == 3 {
				break
			}
			respond(q, throttle.Decision{Grant: q.grant(1, now)}, f, now.Add(10*ms))
		}
		q.tryLearned(false, at(s+s/2))
		want := map[bool]int64{true: 10, false: 20}[rejects]
		require.EqualValues(t, []int64{want, want}, []int64{w.Limit, w.ConfirmedLimit}, name)
		require.False(t, q.Learned.trial.on, name)
	}
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
