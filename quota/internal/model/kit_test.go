package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

const (
	ms = time.Millisecond
	s  = time.Second
)

// start is the time at which tests begin. Time is data: nothing sleeps.
var start = time.Unix(1_700_000_000, 0)

// at returns a time after start.
func at(after time.Duration) time.Time { return start.Add(after) }

// Responses.
var (
	accepted = throttle.Feedback{}
	bare     = throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}
	failed   = throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseUnavailable}
	dropped  = throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseDropped}
	canceled = throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseCanceled}
)

// stated returns a 429 with Retry-After.
func stated(wait time.Duration) throttle.Feedback {
	return throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseStated, RetryAfter: wait}
}

// unavailable returns a 503 with Retry-After.
func unavailable(wait time.Duration) throttle.Feedback {
	return throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnavailable, RetryAfter: wait}
}

// states returns f with the limits that it states.
func states(f throttle.Feedback, limits ...throttle.RemoteLimit) throttle.Feedback {
	f.RemoteLimits = limits
	return f
}

// modelAt returns the model of a quota of which nothing is known. All random numbers are random.
func modelAt(random float64) *Quota {
	c := Config{Full: true, Random: func() float64 { return random }}
	a := &Account{Config: &c, Host: new(Host)}
	a.Names = Names{Quota: "quota", RetryAfter: "retry-after", LearnedRate: "learned rate", SlowStart: "slow start", Overload: "overload"}
	return &Quota{Units: Units{Account: a}}
}

// known returns a quota whose slow start is over at start, with a typical round trip of 10 ms. It has accepted a
// request that was sent with a hundred in flight.
func known(random float64) *Quota {
	q := modelAt(random)
	q.InFlight.Open = 99
	d := ask(q, Claim{}, at(-s))
	q.InFlight.Open = 1
	respond(q, d, accepted, at(-s+rtt))
	return q
}

// ask returns the decision on a claim of q.
func ask(q *Quota, c Claim, now time.Time) (d throttle.Decision) {
	c.Units = max(c.Units, 1)
	q.Claim(&d, c, ticks.Later(now, q.LastGranted))
	return d
}

// reserve returns the decision on a claim of one unit, whose caller waits.
func reserve(q *Quota, now time.Time) throttle.Decision { return ask(q, Claim{Waits: true}, now) }

// reserveWaited is reserve for a call that has waited for a round trip.
func reserveWaited(q *Quota, now time.Time) throttle.Decision {
	return ask(q, Claim{Waits: true, Waited: rtt}, now)
}

// dryRun returns the decision on a claim that changes nothing.
func dryRun(q *Quota, now time.Time) throttle.Decision {
	return ask(q, Claim{Waits: true, DryRun: true}, now)
}

// respond applies f, the response to the claim of d.
func respond(q *Quota, d throttle.Decision, f throttle.Feedback, now time.Time) {
	if f.Now = now; q.InFlight.End(number(d.Grant)) {
		q.Responded(d.Grant, &f, false, ticks.Later(now, q.LastGranted))
	}
}

const rtt = 10 * ms // of exchange

// exchange sends a request, if it is granted, and applies its response a round trip later.
func exchange(q *Quota, now time.Time, f throttle.Feedback) (sent bool) {
	d := reserve(q, now)
	if d.OK {
		respond(q, d, f, now.Add(rtt))
	}
	return d.OK
}

// held returns a quota that f holds at start: five rejections one after the other, the last of them at start.
func held(t *testing.T, random float64, f throttle.Feedback) *Quota {
	q := known(random)
	require.Equal(t, start, beginHold(t, q, f, at(-5*rtt)))
	return q
}

// beginHold makes the server reject one request after the other from now on, until q is held. It returns when it is.
func beginHold(t *testing.T, q *Quota, f throttle.Feedback, now time.Time) time.Time {
	for range 64 {
		require.False(t, q.Hold.Held)
		require.True(t, exchange(q, now, f))
		if now = now.Add(rtt); q.Hold.Held {
			return now
		}
	}
	require.Fail(t, "it is not held")
	return now
}

// grants claims every millisecond in (from, to], and returns when claims were granted, in milliseconds after from. Each
// is answered with f a round trip later; what was claimed in the meantime waits.
func grants(q *Quota, from, to time.Time, f throttle.Feedback) (times []int) {
	for now := from.Add(ms); !now.After(to); now = now.Add(ms) {
		if exchange(q, now, f) {
			times = append(times, int(now.Sub(from)/ms))
		}
	}
	return times
}

// usedUp is what a server states that rejects until the end of a minute that began at start.
func usedUp(now time.Time) throttle.RemoteLimit {
	return throttle.RemoteLimit{Limit: 10, Remaining: 0, ResetAfter: at(time.Minute).Sub(now)}
}

// concurrentEstimate returns an estimate of a limit of requests in flight, of which left may be begun.
func concurrentEstimate(limit, left int64, reset time.Time) statedlimit.Estimate {
	e := statedlimit.NewEstimate(throttle.RemoteLimit{Unit: statedlimit.UnitConcurrent}, false)
	e.Limit, e.Remaining, e.Reset = limit, left, reset
	return e
}
