package model

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/throttle"
)

// A paced is a server that most requests fail at: it accepts one in each interval or, if that is 0, each with a
// probability of share. About a hundred requests per second arrive, at random times.
type paced struct {
	interval time.Duration
	share    float64
	fails    throttle.Feedback // how the others end
	*rand.Rand

	limit *throttle.RemoteLimit // that it states; nil: none
	next  time.Time             // it accepts the next one
}

// respond returns the response to a request that arrives now.
func (p *paced) respond(now time.Time) throttle.Feedback {
	switch {
	case p.interval == 0 && p.Float64() < p.share:
		return accepted
	case p.interval > 0 && !now.Before(p.next):
		p.next = ticks.Later(p.next, now.Add(-p.interval/2)).Add(p.interval)
		return accepted
	}
	return p.fails
}

// play sends what q grants until then, or until stop. It returns when that was, and how many requests were accepted and
// were not.
func (p *paced) play(q *Quota, from, until time.Time, stop func() bool) (now time.Time, good, bad int) {
	for now = from; now.Before(until) && !stop(); now = now.Add(time.Duration(5+p.IntN(11)) * ms) {
		d := ask(q, Claim{}, now)
		if !d.OK {
			continue
		}
		f := p.respond(now)
		if f.Outcome == throttle.Accepted {
			good++
		} else {
			bad++
		}
		if p.limit != nil {
			p.limit.Remaining--
			p.limit.ResetAfter = at(2 * time.Hour).Sub(now)
			f = states(f, *p.limit)
		}
		respond(q, d, f, now.Add(2*ms))
	}
	return now, good, bad
}

// random returns random numbers that are the same in each run.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// again returns f as the response to a request that was rejected before, which begins no hold.
func again(f throttle.Feedback) throttle.Feedback {
	f.Repeated = true
	return f
}

// onTest and found report whether a rate is on test, and whether one was found to be the reason for rejections.
func onTest(q *Quota) bool { return q.Learned != nil && q.Learned.test.Testing() }
func found(q *Quota) bool {
	return q.Learned != nil && q.Learned.Loop.On() && !q.Learned.test.Testing()
}
func never() bool { return false }

// If many requests fail or are rejected, the rate of those that are accepted is put on test. If it is the limit
// of the server, hardly any request is rejected then, and it is learned.
func TestQuota_learnsARateThatMakesRejectionsRarer(t *testing.T) {
	for name, tt := range map[string]struct {
		interval time.Duration
		fails    throttle.Feedback
		cause    throttle.Cause
	}{
		"bare 429, 50/s": {20 * ms, again(bare), throttle.CauseUnstated},
		"bare 429, 20/s": {50 * ms, again(bare), throttle.CauseUnstated},
		"bare 429, 5/s":  {200 * ms, again(bare), throttle.CauseUnstated},
		"429, 20/s":      {50 * ms, again(stated(ms)), throttle.CauseUnstated},
		"500, 20/s":      {50 * ms, failed, throttle.CauseUnavailable},
		"dropped, 20/s":  {50 * ms, dropped, throttle.CauseDropped},
	} {
		q := known(0)
		p := &paced{interval: tt.interval, fails: tt.fails, Rand: random(1)}
		began, _, bad := p.play(q, start, at(time.Minute), func() bool { return onTest(q) })
		require.True(t, onTest(q), name)
		require.Less(t, bad, 20*int(tt.interval/(10*ms)), name)
		l := &q.Learned.Loop
		require.Equal(t, tt.cause, l.Cause, name)
		require.InEpsilon(t, 1/tt.interval.Seconds(), l.Rate, .25, name)

		d := ask(q, Claim{}, began)
		require.Equal(t, []any{false, "learned rate", true}, []any{d.OK, d.Policy, d.Estimated}, name)
		now, good, bad := p.play(q, began, began.Add(100*tt.interval), never)
		require.True(t, found(q), name)
		require.GreaterOrEqual(t, float64(good), .74*float64(now.Sub(began)/tt.interval), name)
		require.LessOrEqual(t, bad, 16, "%s: one trial among them", name)
	}
}

// If requests are rejected at random, they are at the lower rate, too: it is dropped soon, and what has waited is sent.
// Then no rate is put on test for a minute.
func TestQuota_dropsARateThatDoesNotHelp(t *testing.T) {
	tests, learned := 0, 0
	for seed := range uint64(40) {
		q := known(0)
		p := &paced{share: .2 + .05*float64(seed%12), fails: again(bare), Rand: random(seed)}
		began, _, _ := p.play(q, start, at(20*s), func() bool { return onTest(q) })
		if !onTest(q) {
			continue // more than nine of ten are rejected
		}
		tests++
		ended, good, bad := p.play(q, began, at(time.Minute), func() bool { return !onTest(q) })
		require.LessOrEqual(t, good+bad, 40, "share %v", p.share)
		if found(q) {
			learned++
			continue
		}
		require.False(t, q.Learned.Limits())
		require.True(t, q.Ramp.On(ended), "what has waited is sent at a growing rate")
		_, _, _ = p.play(q, ended, ended.Add(time.Minute-s), func() bool { return onTest(q) })
		require.False(t, onTest(q))
	}
	require.Greater(t, tests, 30)
	require.LessOrEqual(t, learned, 5)
}

// No rate is put on test unless enough requests fail or are rejected, and nothing else explains that.
func TestQuota_testsNoRate(t *testing.T) {
	for name, tt := range map[string]struct {
		interval time.Duration
		fails    throttle.Feedback
		change   func(q *Quota)
	}{
		"few are rejected":  {6 * ms, again(bare), func(*Quota) {}},
		"none is accepted":  {time.Hour, again(bare), func(*Quota) {}},
		"StatedOnly":        {50 * ms, again(bare), func(q *Quota) { q.Account.Full = false }},
		"a declared limit":  {50 * ms, again(bare), func(q *Quota) { q.Declare(throttle.PerMinute(1e6)) }},
		"no memory":         {50 * ms, again(bare), func(q *Quota) { q.Account.Memory.Store(MaxBytes) }},
		"a rate has failed": {50 * ms, again(bare), func(q *Quota) { q.remember(start); q.dropLoop(true, start) }},
	} {
		for seed := range uint64(5) {
			q := known(0)
			tt.change(q)
			(&paced{interval: tt.interval, fails: tt.fails, Rand: random(seed)}).play(q, start, at(20*s), func() bool { return onTest(q) })
			require.False(t, onTest(q) || found(q), name)
		}
	}
}

// Where the server states a limit that a rejection has confirmed, no rate is put on test. One that nothing has confirmed
// explains nothing.
func TestQuota_testsNoRateWhereALimitIsStated(t *testing.T) {
	for _, proven := range []bool{true, false} {
		limit := throttle.RemoteLimit{Limit: 1e6, ResetAfter: time.Hour}
		q := known(0)
		exchange(q, start, states(accepted, limit))
		if proven {
			require.True(t, exchange(q, at(s), states(bare, limit)))
		}
		limit.Remaining = limit.Limit
		(&paced{interval: 50 * ms, fails: again(bare), Rand: random(1), limit: &limit}).play(q, at(time.Hour+2*s), at(time.Hour+22*s), func() bool { return onTest(q) })
		require.Equal(t, proven, q.states())
		require.Equal(t, !proven, onTest(q))
	}
}

// After a rate that was wrong, because rejections do not depend on it, none is put on test for a minute, then for twice
// as long each time, at most for 64 minutes. A rate that is not needed any more has not failed.
func TestQuota_aRateThatFailedDoesNotBeginAgain(t *testing.T) {
	q := known(0)
	q.remember(start)
	now := start
	play := func(from, until time.Time) time.Time {
		p := &paced{interval: 50 * ms, fails: again(bare), Rand: random(1)}
		end, _, _ := p.play(q, from, until, func() bool { return onTest(q) })
		return end
	}
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 64, 64} {
		q.dropLoop(true, now)
		end := now.Add(pause * time.Minute)
		play(end.Add(-5*s), end)
		require.False(t, onTest(q), pause)
		now = play(end, end.Add(5*s))
		require.True(t, onTest(q), pause)
	}
	q.dropLoop(false, now)
	play(now, now.Add(5*s))
	require.True(t, onTest(q))
}

// A rate that was found is dropped when requests are rejected at it as often as before, with a Retry-After or without.
func TestQuota_dropsARateThatNoLongerHelps(t *testing.T) {
	for name, rejection := range map[string]throttle.Feedback{"bare": again(bare), "Retry-After": again(stated(ms))} {
		q := known(0)
		p := &paced{interval: 50 * ms, fails: rejection, Rand: random(1)}
		began, _, _ := p.play(q, start, at(time.Minute), func() bool { return found(q) })
		require.True(t, found(q), name)
		p = &paced{share: .5, fails: rejection, Rand: random(2)}
		now, good, bad := p.play(q, began, began.Add(time.Minute), func() bool { return !q.Learned.Loop.On() })
		require.False(t, q.Learned.Loop.On(), name)
		require.Less(t, now.Sub(began), 20*s, "%s: %d accepted, %d rejected", name, good, bad)
	}
}

// While a hold is tested, rejected tests do not count against the rate: they were not sent at it.
func TestQuota_testsOfAHoldDoNotJudgeTheRate(t *testing.T) {
	q := known(0)
	l := q.remember(start)
	l.Loop.BeginAt(throttle.CauseUnstated, 20, 0, start)
	l.test.BeginConfirmed(.5)
	q.Hold.Begin(q.InFlight.Sent, time.Time{}, start)
	for range 20 {
		require.True(t, q.judge(true, start))
		require.True(t, q.judge(false, start))
	}
	require.True(t, l.Loop.On())
	q.Hold.Release()
	for n := 0; l.Loop.On(); n++ {
		require.Less(t, n, 20)
		q.judge(true, start)
		q.judge(false, start)
	}
}

// Rejections with a Retry-After count against a rate that is on test, as those without.
func TestQuota_statedWaitsJudgeTheRate(t *testing.T) {
	q := known(0)
	l := q.remember(start)
	l.Loop.BeginAt(throttle.CauseUnstated, 20, q.InFlight.Sent, start)
	l.test = learnedlimit.RateTest{}
	for n := range uint64(100) { // half of the requests are rejected
		l.test.Measure(n+1, n+1, n%2 == 0, ms, at(time.Duration(n)*ms))
	}
	l.test.Begin()
	require.True(t, onTest(q))
	for n := range uint64(2) {
		require.True(t, l.Loop.On())
		q.rejectedByLearned(q.InFlight.Sent+n+1, s, at(s))
	}
	require.False(t, l.Loop.On())
}

// A rate that is learned after a hold is judged, too, as long as it is used.
func TestQuota_aRateAfterAHoldIsJudged(t *testing.T) {
	q := known(0)
	l := q.remember(start)
	l.before = learnedlimit.AcceptedSpan{Since: start, Until: at(s), N: 3}
	q.Hold.Begin(q.InFlight.Sent, time.Time{}, at(s))
	q.Hold.Latest, q.Hold.Rejected = at(100*s), 3
	q.learn(true, at(101*s))
	q.Hold.Release()
	require.True(t, l.Loop.On())
	require.False(t, l.test.Testing())
	for n := 0; l.Loop.On(); n++ {
		require.Less(t, n, 30)
		q.judge(true, at(102*s))
		q.judge(false, at(102*s))
	}
}
