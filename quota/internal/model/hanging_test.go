package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

const hangingTypical = 10 * time.Millisecond // a response is late after 140 ms

// burst returns a quota that has accepted 40 requests until now, each in hangingTypical. 18 are in flight
// since then, as many as slow start admits. The last of them was sent after the last response.
func burst(t *testing.T, now time.Time) *Quota {
	q := modelAt(0)
	for range 39 {
		n := q.grant(1, now.Add(-hangingTypical))
		q.InFlight.End(n)
		q.Responded(n, &throttle.Feedback{}, false, now)
	}
	q.Slow = concurrency.SlowResponses{}
	last := q.grant(1, now.Add(-hangingTypical))
	for range 17 {
		q.grant(1, now)
	}
	q.InFlight.End(last)
	q.Responded(last, &throttle.Feedback{}, false, now)
	q.grant(1, now)
	require.EqualValues(t, []int64{18, 18, 58}, []int64{q.InFlight.Open, q.MaxInFlight(), int64(q.InFlight.Sent)})
	require.Equal(t, hangingTypical, q.Slow.Typical)
	return q
}

// reserve returns the decision on a claim of q.
func reserve(q *Quota, now time.Time) (d throttle.Decision) {
	q.Claim(&d, 1, false, ticks.Later(now, q.LastGranted))
	return d
}

// dryRun returns the decision on a claim of q, which changes nothing.
func dryRun(q *Quota, now time.Time) (d throttle.Decision) {
	q.Claim(&d, 1, true, ticks.Later(now, q.LastGranted))
	return d
}

// respond applies f, the response to claim n.
func respond(q *Quota, n uint64, f throttle.Feedback, now time.Time) {
	if f.Now = now; q.InFlight.End(n) {
		q.Responded(n, &f, false, ticks.Later(now, q.LastGranted))
	}
}

var rejectedLate = throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}

// Requests that hang as slow start admits no more begin a stop as soon as they are late. Its first probe
// is sent after 2 s, since the stop began within the first second. If it hangs, it counts as rejected.
// When one is accepted in time, a learned rate begins with what was accepted in that time.
func TestQuota_stopsWhenRequestsHang(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	q := burst(t, start)
	for _, tt := range []struct {
		ms     int
		waitMS int // 0: granted
		policy string
	}{
		{100, 50, q.Account.Names.SlowStart}, // the first request more, for long polls
		{141, 100, q.Account.Names.LearnedRate},
		{2005, 0, ""},
		{2006, 140, q.Account.Names.LearnedRate}, // the probe hangs then
		{2146, 100, q.Account.Names.LearnedRate}, // until 3 s after the first request
		{3005, 0, ""},
	} {
		d := reserve(q, at(tt.ms))
		require.Equal(t, tt.waitMS == 0, d.OK, "%+v", tt)
		if tt.waitMS > 0 {
			require.InDelta(t, tt.waitMS, d.Wait.Milliseconds(), 1, "%+v", tt)
			require.Equal(t, tt.policy, d.Policy, "%+v", tt)
		}
	}
	for n := range uint64(18) {
		respond(q, 41+n, rejectedLate, at(3006))
	}
	require.True(t, q.Hold.Active, "late rejections change nothing")
	respond(q, 60, throttle.Feedback{}, at(3015))
	require.False(t, q.Hold.Active)
	require.True(t, q.Inference.Loop.On())
	require.False(t, q.Inference.Window.On())
	require.InDelta(t, 40/2.58, q.Inference.Loop.Rate, .1, "40 until half of the time between the last two probes")
}

// Each of these shows that requests which hang are not rejected, or not known to be.
func TestQuota_whatIsNoEvidenceOfALimit(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	late := start.Add(141 * time.Millisecond)
	for name, change := range map[string]func(q *Quota){
		"evidence":                     func(*Quota) {},
		"few were accepted before":     func(q *Quota) { q.Span.N = minBefore - 1 },
		"the usual time is not known":  func(q *Quota) { q.Slow.Typical = 0 },
		"one of the latest failed":     func(q *Quota) { q.Slow.Recent = 0b1000_0000 },
		"responses were late before":   func(q *Quota) { q.Slow.MaxInFlight = 20 },
		"more may be in flight":        func(q *Quota) { q.InFlight.End(50) },
		"the host is known":            func(q *Quota) { q.SlowStart.Successes = concurrency.KnownAfter },
		"a response has arrived":       func(q *Quota) { q.LastResponse = start.Add(time.Millisecond) },
		"the server states its limits": func(q *Quota) { q.Estimates = make([]statedlimit.Estimate, 1) },
		"the stated limit is used up":  func(q *Quota) { q.Hold.Active = true },
		"another estimate is on": func(q *Quota) {
			q.infer(learnedlimit.AcceptedSpan{}, start).Loop = learnedlimit.RateLoop{Cause: throttle.CauseUnstated, Rate: 20, Next: start}
		},
		"a hanging one was accepted": func(q *Quota) { q.infer(learnedlimit.AcceptedSpan{}, start).nextEstimate[1] = late.Add(1) },
		"none is late":               func(q *Quota) { q.sentBefore, q.Slow.Watched = 39, 0 },
		"no slow start":              func(q *Quota) { q.Account.InitialConcurrency = -1 },
		"StatedOnly":                 func(q *Quota) { q.Account.Full = false },
		"an idle time": func(q *Quota) {
			q.LastResponse, q.Slow.Sent = start.Add(-2*time.Second), start.Add(-2*time.Second)
		},
		"older ones are slow": func(q *Quota) { // 18 hang, but 6 later than them were accepted
			for range 7 {
				q.InFlight.End(q.InFlight.Add())
			}
			q.sentBefore = q.InFlight.Sent
		},
	} {
		q := burst(t, start)
		change(q)
		dryRun(q, late)
		require.False(t, q.Inference != nil && q.Inference.hanging, "%s: a dry run changes nothing", name)
		reserve(q, late)
		require.Equal(t, name == "evidence", q.Inference != nil && q.Inference.hanging, name)
	}
}

// If a request that hung is accepted, the stop or the rate ends, and no other begins for a minute. A
// request that was sent too late to hang shows nothing, and neither does a rejection.
func TestQuota_aHangingRequestIsAcceptedAfterAll(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	late := start.Add(141 * time.Millisecond)
	for name, tt := range map[string]struct {
		claim    uint64
		feedback throttle.Feedback
		want     bool
	}{
		"accepted":                 {41, throttle.Feedback{}, true},
		"accepted, sent too late":  {59, throttle.Feedback{}, false},
		"a 403":                    {41, throttle.Feedback{Cause: throttle.CauseForbidden}, false},
		"rejected":                 {41, rejectedLate, false},
		"the transport timed out":  {41, throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseTimeout}, false},
		"the caller has cancelled": {41, throttle.Feedback{Outcome: throttle.Failed}, false},
	} {
		for _, stopped := range []bool{true, false} {
			q := burst(t, start)
			require.EqualValues(t, 59, q.InFlight.Add(), "sent later than the others")
			q.InFlight.Open = 18
			reserve(q, late)
			require.True(t, q.Inference.hanging)
			require.EqualValues(t, 58, q.Inference.lastHanging)
			if !stopped {
				q.Hold.End()
				q.Hold.Until = late
				q.Inference.Loop.BeginAt(throttle.CauseUnstated, 20, q.InFlight.Sent, late)
			}
			typical := q.Slow.Typical
			respond(q, tt.claim, tt.feedback, late.Add(time.Second))
			require.Equal(t, !tt.want, q.Inference.hanging, name)
			require.Equal(t, stopped && !tt.want, q.Hold.Active, name)
			require.Equal(t, !stopped && !tt.want, q.Inference.Loop.On(), name)
			require.Equal(t, tt.want, q.Inference.nextEstimate[1].Equal(late.Add(time.Second+learnedlimit.NoEstimate)), name)
			require.Equal(t, concurrency.SlowResponses{Typical: typical, Sent: start}, q.Slow, "%s: it was slow, which is known", name)
			require.Equal(t, tt.want || !stopped, reserve(q, late.Add(time.Second)).OK, name)
		}
	}
}

// A hold that the server has stated meanwhile is not ended by that.
func TestQuota_aStatedHoldIsNotEndedByARequestThatHung(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	q := burst(t, start)
	late := start.Add(141 * time.Millisecond)
	reserve(q, late)
	stated := throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseStated, RetryAfter: 9 * time.Second}
	respond(q, 41, stated, late.Add(time.Second))
	q.Hold.Estimated = false
	respond(q, 42, throttle.Feedback{}, late.Add(2*time.Second))
	require.True(t, q.Hold.Active)
	require.Greater(t, reserve(q, late.Add(2*time.Second)).Wait, 7*time.Second)
}

// At a learned rate few requests are in flight, and one that hangs is a rejection as soon as it is late,
// before another one is sent. The goal becomes what was accepted before.
func TestQuota_aRequestThatHangsLowersTheRate(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	q := burst(t, start)
	now := start.Add(141 * time.Millisecond)
	reserve(q, now)
	q.Hold.End()
	q.Hold.Until = now
	l := &q.Inference.Loop
	l.BeginAfterStop(throttle.CauseUnstated, true, learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), Until: now, N: 40}, now, now, now, 0, q.InFlight.Sent)
	require.InDelta(t, 40, l.Rate, 1e-9)
	for range 30 { // at 40/s
		now = now.Add(25 * time.Millisecond)
		d := reserve(q, now)
		require.True(t, d.OK)
		respond(q, d.Grant, throttle.Feedback{}, now.Add(hangingTypical))
	}
	now = now.Add(30 * time.Millisecond)
	for range 2 { // 4 x 10 ms at 40/s are one request, in addition to maxUnproven
		require.True(t, reserve(q, now).OK)
		now = now.Add(30 * time.Millisecond)
	}
	d := reserve(q, now)
	require.False(t, d.OK)
	require.Equal(t, []any{q.Account.Names.LearnedRate, true, 80 * time.Millisecond}, []any{d.Policy, d.Estimated, d.Wait.Truncate(time.Millisecond)})
	require.True(t, dryRun(q, now).OK, "a response may arrive")
	before := l.Rate
	now = now.Add(d.Wait)
	d = reserve(q, now) // it is decided now that the others hang, so the next one waits
	require.False(t, d.OK)
	require.True(t, reserve(q, now.Add(d.Wait)).OK)
	require.Less(t, l.Rate, before)
	require.LessOrEqual(t, l.FiniteGoal(), 40., "what was accepted")
	require.EqualValues(t, 1, q.InFlight.Open, "the two that hang do not count")
	require.False(t, q.Hold.Active)

	before = l.Rate
	q.stop(q.InFlight.Sent, now.Add(d.Wait))
	now = q.Hold.Until
	probe := reserve(q, now)
	require.True(t, probe.OK)
	require.False(t, reserve(q, now.Add(time.Second)).OK)
	require.Equal(t, 2, q.Hold.Rejections, "a probe that hangs extends the stop")
	require.GreaterOrEqual(t, l.Rate, before, "and does not lower the rate")
}

// While a rate is learned from requests that hang, all failures that servers reject with count as
// rejections.
func TestQuota_failuresOfRequestsThatHangAreRejections(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for _, hanging := range []bool{true, false} {
		q := modelAt(0)
		inf := q.infer(learnedlimit.AcceptedSpan{}, start)
		inf.Loop.BeginAt(throttle.CauseUnstated, 20, q.InFlight.Sent, start)
		inf.hanging = hanging
		f := throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseTimeout}
		q.Suspect(&f, learnedlimit.AcceptedSpan{}, true, start)
		require.Equal(t, hanging, f.Outcome == throttle.Throttled)
		q.rejectedUnstated(q.InFlight.Add(), f.Cause, start.Add(time.Second))
		require.Equal(t, hanging, inf.Loop.Rate < 19.8)
	}
}

// An earlier stop, which 403s began, has no effect on one that requests begin that hang: it is not
// bounded, and the learned rate is not one for 403s.
func TestQuota_aStopByRequestsThatHangIsNoBanBy403s(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	q := burst(t, start)
	q.infer(learnedlimit.AcceptedSpan{}, start).Forbidden = true
	now := start.Add(141 * time.Millisecond)
	reserve(q, now)
	require.True(t, q.Inference.hanging)
	require.Equal(t, throttle.CauseUnstated, q.Inference.stopCause())
	for range 6 { // probes, which hang
		now = q.Hold.Until
		require.True(t, reserve(q, now).OK)
		now = now.Add(141 * time.Millisecond)
		require.False(t, reserve(q, now).OK)
	}
	require.Greater(t, now.Sub(start), maxSuspectedStop)
	require.True(t, q.Hold.Active)
}

// After a pause of 1.9 s slow start admits as many as before it, not one more for each 100 ms of it.
func TestQuota_slowStartBoundsRequestsAfterAPause(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	q := burst(t, start)
	reserve(q, start.Add(141*time.Millisecond))
	require.True(t, q.Hold.Active)
	end := start.Add(1900 * time.Millisecond)
	respond(q, 41, throttle.Feedback{}, end)
	granted := int64(0)
	for granted < 100 && reserve(q, end).OK {
		granted++
	}
	require.Equal(t, q.MaxInFlight(), granted)
}

// If lower rates do not make requests rarer that hang, they begin no stop for a minute.
func TestQuota_anAbandonedRateOfRequestsThatHang(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for _, failed := range []bool{true, false} {
		q := burst(t, start)
		inf := q.infer(learnedlimit.AcceptedSpan{}, start)
		inf.hanging = true
		inf.Loop.BeginAt(throttle.CauseUnstated, 20, q.InFlight.Sent, start)
		q.dropLoop(failed, start)
		reserve(q, start.Add(141*time.Millisecond))
		require.Equal(t, !failed, inf.hanging)
	}
}

// If the caller of a request that hangs gives up, nothing will show whether it was rejected.
func TestQuota_aCallerThatGivesUpShowsNoLimit(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for cause, ended := range map[throttle.Cause]bool{throttle.CauseCanceled: true, throttle.CauseTimeout: false, throttle.CauseDropped: false} {
		q := burst(t, start)
		reserve(q, start.Add(141*time.Millisecond))
		require.True(t, q.Hold.Active)
		respond(q, 41, throttle.Feedback{Outcome: throttle.Failed, Cause: cause}, start.Add(time.Second))
		require.Equal(t, ended, !q.Hold.Active, cause)
		require.Equal(t, ended, !q.Inference.hanging, cause)
	}
}
