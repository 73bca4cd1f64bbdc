package model

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A paced is a server that most requests fail at: it accepts one in each interval or, if that is 0, each with a
// probability of a quarter. About a hundred requests per second arrive, at random times.
type paced struct {
	interval time.Duration
	fails    throttle.Feedback // how the others end
	*rand.Rand

	limit *throttle.RemoteLimit // that it states; nil: none
	next  time.Time             // it accepts the next one
}

// respond returns the response to a request that arrives now.
func (p *paced) respond(now time.Time) throttle.Feedback {
	switch {
	case p.interval == 0 && p.Float64() < .25:
		return accepted
	case p.interval > 0 && !now.Before(p.next):
		p.next = ticks.Later(p.next, now.Add(-p.interval/2)).Add(p.interval)
		return accepted
	}
	return p.fails
}

// play sends what q grants until then, or until a rate has begun. It returns when that was, or until, and how many
// requests were accepted and were not.
func (p *paced) play(q *Quota, from, until time.Time) (now time.Time, good, bad int) {
	for now = from; now.Before(until) && (q.Learned == nil || !q.Learned.Loop.On()); now = now.Add(time.Duration(5+p.IntN(11)) * ms) {
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

// If most requests fail, but those that are accepted come at even times, the server accepts a rate: it is learned,
// whatever the failures are, and explains them.
func TestQuota_learnsARateFromEvenTimes(t *testing.T) {
	for name, tt := range map[string]struct {
		interval time.Duration
		fails    throttle.Feedback
		cause    throttle.Cause
	}{
		"500, 20/s":            {50 * ms, failed, throttle.CauseUnavailable},
		"dropped, 20/s":        {50 * ms, dropped, throttle.CauseDropped},
		"bare 429, 20/s":       {50 * ms, again(bare), throttle.CauseUnstated},
		"429, 20/s":            {50 * ms, again(stated(ms)), throttle.CauseUnstated},
		"503 with a time, 5/s": {200 * ms, again(unavailable(ms)), throttle.CauseUnstated},
		"500, 2/s":             {500 * ms, failed, throttle.CauseUnavailable},
	} {
		q := known(0)
		p := &paced{interval: tt.interval, fails: tt.fails, Rand: random(1)}
		began, good, _ := p.play(q, start, at(time.Minute))
		require.True(t, q.Learned != nil && q.Learned.Loop.On(), name)
		require.GreaterOrEqual(t, good, 17, "%s: 16 times", name)
		require.LessOrEqual(t, good, 20, name)
		l := &q.Learned.Loop
		require.Equal(t, tt.cause, l.Cause, name)
		require.InEpsilon(t, .99/tt.interval.Seconds(), l.Rate, .1, name)
		require.False(t, q.Overload.MostFail(), "%s: the rate explains the failures", name)
		require.Zero(t, q.Overload.Limit(), name)
		require.Zero(t, q.Learned.pace, name)

		d := ask(q, Claim{}, began)
		require.Equal(t, []any{false, "learned rate", true}, []any{d.OK, d.Policy, d.Estimated}, name)
		good, bad := 0, 0
		for now := began; now.Before(began.Add(20 * tt.interval)); now = now.Add(ms) {
			if d = ask(q, Claim{}, now); d.OK {
				f := p.respond(now)
				if f.Outcome == throttle.Accepted {
					good++
				} else {
					bad++
				}
				respond(q, d, f, now.Add(2*ms))
			}
		}
		require.GreaterOrEqual(t, good, 15, name)
		require.LessOrEqual(t, bad, 2, name)
	}
}

// A rate does not begin if the accepted requests come at random times, or if something else explains the failures.
func TestQuota_learnsNoRate(t *testing.T) {
	for name, tt := range map[string]struct {
		interval time.Duration
		fails    throttle.Feedback
		change   func(q *Quota)
	}{
		"random times, 500":      {0, failed, func(*Quota) {}},
		"random times, bare 429": {0, again(bare), func(*Quota) {}},
		"fewer than half fail":   {17 * ms, failed, func(*Quota) {}},
		"none is accepted":       {time.Hour, failed, func(*Quota) {}},
		"StatedOnly":             {50 * ms, failed, func(q *Quota) { q.Account.Full = false }},
		"a declared limit":       {50 * ms, failed, func(q *Quota) { q.Declare(throttle.PerMinute(1e6)) }},
		"no memory":              {50 * ms, failed, func(q *Quota) { q.Account.Memory.Store(MaxBytes) }},
		"a rate has failed":      {50 * ms, failed, func(q *Quota) { q.remember(start); q.dropLoop(true, start) }},
	} {
		for seed := range uint64(5) {
			q := known(0)
			tt.change(q)
			(&paced{interval: tt.interval, fails: tt.fails, Rand: random(seed)}).play(q, start, at(20*s))
			require.False(t, q.Learned != nil && q.Learned.Loop.On(), name)
		}
	}
}

// Where the server states a limit that a rejection has confirmed, no rate begins. One that nothing has confirmed explains
// nothing.
func TestQuota_learnsNoRateWhereALimitIsStated(t *testing.T) {
	for _, proven := range []bool{true, false} {
		limit := throttle.RemoteLimit{Limit: 1e6, ResetAfter: time.Hour}
		q := known(0)
		exchange(q, start, states(accepted, limit))
		if proven {
			require.True(t, exchange(q, at(s), states(bare, limit)))
		}
		limit.Remaining = limit.Limit
		(&paced{interval: 50 * ms, fails: failed, Rand: random(1), limit: &limit}).play(q, at(time.Hour+2*s), at(time.Hour+22*s))
		require.Equal(t, proven, q.states())
		require.Equal(t, !proven, q.Learned != nil && q.Learned.Loop.On())
	}
}

// After half of the requests are accepted again, or a limit is stated, the times are measured anew.
func TestQuota_measuresTimesAnew(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(q *Quota, now time.Time)
		anew bool
	}{
		"one more is accepted": {func(q *Quota, now time.Time) { exchange(q, now, accepted) }, false},
		"many are accepted":    {func(q *Quota, now time.Time) { grants(q, now, now.Add(40*ms), accepted) }, true},
		"the server states limits": {func(q *Quota, now time.Time) {
			q.Estimates = []statedlimit.Estimate{provenEstimate()}
			exchange(q, now, failed)
		}, true},
	} {
		q := known(0)
		p := &paced{interval: 200 * ms, fails: failed, Rand: random(1)}
		now, good, _ := p.play(q, start, at(2*s))
		require.GreaterOrEqual(t, good, 8, name)
		require.NotZero(t, q.Learned.pace, name)
		tt.then(q, now)
		require.Equal(t, tt.anew, q.Learned.pace == learnedlimit.Pace{}, name)
	}
}

// After a rate that was wrong, because rejections do not depend on it, none begins for a minute, then for twice as long
// each time, at most for 64 minutes. A rate that is not needed any more has not failed.
func TestQuota_aRateThatFailedDoesNotBeginAgain(t *testing.T) {
	q := known(0)
	q.remember(start)
	now := start
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 64, 64} {
		q.dropLoop(true, now)
		p := &paced{interval: 50 * ms, fails: failed, Rand: random(1)}
		end := now.Add(pause * time.Minute)
		_, good, _ := p.play(q, end.Add(-5*s), end)
		require.Greater(t, good, 50)
		require.False(t, q.Learned.Loop.On(), pause)
		now, _, _ = p.play(q, end, end.Add(5*s))
		require.True(t, q.Learned.Loop.On(), pause)
		require.False(t, now.Before(end))
	}
	q.dropLoop(false, now)
	_, _, _ = (&paced{interval: 50 * ms, fails: failed, Rand: random(1)}).play(q, now, now.Add(5*s))
	require.True(t, q.Learned.Loop.On())
}
